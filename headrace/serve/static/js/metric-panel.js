// What all panels of a metric share: its rows, its freshness, and how a window is said in words.

import { get } from "./api.js";
import { legendMark } from "./columns.js";
import { el } from "./dom.js";
import { count, measured, plural, span, windowText, withUnit } from "./format.js";
import { redraw, serverNow, spaced } from "./frame.js";
import { Series } from "./model.js";
import { Panel } from "./panel.js";

const RELOAD_SECONDS = 2;

export class MetricPanel {
  constructor(shown, page, columns, tall = false) {
    this.shown = shown;
    this.page = page;
    this.series = new Series(shown);
    const { kind, size_seconds: size, hop_seconds: hop, trigger_seconds: trigger } = shown.window;
    const window =
      kind === "sliding"
        ? `${span(size)} every ${span(hop)}`
        : kind === "running"
          ? `running, ${span(size)}${trigger ? ` every ${span(trigger)}` : ""}`
          : span(size);
    this.panel = new Panel({
      title: shown.title,
      detail: `${shown.metric} · ${window}`,
      note: shown.note,
      span: columns,
      tall,
    });
    this.root = this.panel.root;
    this.reload = spaced(RELOAD_SECONDS, async () => {
      await this.load();
      if (this.problem) this.reload();
    });
  }

  /** The grouping as rows name it. */
  get grouping() {
    return this.shown.grouping.join(",") || "all";
  }

  /** What of /live has the rows of this panel. */
  get feed() {
    return `${this.shown.metric}:${this.shown.grouping.join(".") || "all"}`;
  }

  async load() {
    try {
      this.take(await get(`metrics/${encodeURIComponent(this.shown.metric)}/${this.path}`, this.query()));
    } catch (problem) {
      this.problem = problem;
    }
    redraw(this);
    redraw(this.page.verdict);
  }

  get path() {
    return "rows";
  }

  query() {
    const windows = this.series.keep * Math.max(1, this.shown.groups?.length ?? 1);
    return { grouping: this.grouping, order: "-window_start", limit: Math.min(1000, windows) };
  }

  take(answer) {
    this.problem = null;
    this.loaded = true;
    for (const row of answer.items) this.series.merge(row, serverNow());
  }

  /** A row of this metric changed. */
  row(row) {
    if (row.grouping !== this.grouping) return;
    this.series.merge(row, serverNow());
    redraw(this);
  }

  /** Rows of this metric were left out of the stream, of one grouping if it is named. */
  skipped(grouping = this.grouping) {
    if (grouping === this.grouping) this.reload();
  }

  draw() {
    if (this.problem && this.series.isEmpty) {
      this.panel.failed(this.problem, () => {
        this.panel.loading();
        this.load();
      });
    } else if (!this.loaded && this.series.isEmpty) {
      this.panel.loading();
    } else if (this.series.isEmpty) {
      this.panel.empty("No window yet", "The first appears here as soon as events arrive.");
    } else {
      this.panel.ready();
      this.drawBody();
      this.panel.drawTable?.();
    }
    this.tick();
  }

  tick() {
    if (this.problem && this.series.isEmpty) return;
    const { text, level } = this.page.standing.inWords(this.shown.metric, this.series.updatedAt);
    if (this.problem && level !== "bad")
      this.panel.freshness(`not refreshed: ${this.problem.message} · ${text}`, "warn", "restart-storms");
    else this.panel.freshness(text, level, "stale-metric");
  }

  state(row) {
    return el("span", { class: `state ${row.state}` }, legendMark(row.state), row.state);
  }

  big(row, name, unit = this.shown.unit) {
    const [number, sign] = measured(row?.values?.[name], unit);
    return el("p", { class: "big" }, number, sign ? el("small", {}, ` ${sign}`) : null);
  }

  windowOf(slot) {
    return windowText(slot.start, slot.end, this.shown.window.size_seconds);
  }

  /** One window in words, for the line under the charts and for screen readers. */
  say(slot, group) {
    const where = group ? `${group}, ` : "";
    if (!slot?.row) return `${where}${slot ? this.windowOf(slot) : ""}: no events`;
    const { row } = slot;
    const values = this.shown.values.map((name) => {
      const label = this.shown.values.length > 1 ? `${shortName(name)} ` : "";
      return label + withUnit(row.values?.[name], this.shown.unit);
    });
    const late = row.late_events ? `, ${count(row.late_events)} too late` : "";
    const revision = row.revision > 1 ? ` (revision ${row.revision})` : "";
    const number = `${values.join(", ")}, ${row.state}${revision}`;
    const events = `${plural(row.events, "event")}${late}${this.was(row)}`;
    return `${where}${this.windowOf(slot)}: ${number}; ${events}`;
  }

  was(row) {
    if (!row.correction) return "";
    const [name] = this.shown.values;
    return `; was ${withUnit(row.correction.was?.[name], this.shown.unit)}`;
  }
}

/** latency_ms_p95 is p95 where its fellows stand beside it. */
export function shortName(name) {
  return /_(p[0-9_]+)$/.exec(name)?.[1].replaceAll("_", ".") ?? name.replaceAll("_", " ");
}
