// The panels of the metrics, drawn by their shape. What they are called and in which order is the app's choice.

import { get } from "./api.js";
import { Columns, legendMark } from "./columns.js";
import { el, patch, setText } from "./dom.js";
import { age, clockTime, count, measured, plural, span, windowText, withUnit } from "./format.js";
import { redraw, serverNow } from "./frame.js";
import { median, Series, valueOf } from "./model.js";
import { bar, Panel, table } from "./panel.js";

const FRESH_MS = 10_000;
const STATES = {
  open: "still counting",
  preliminary: "published, may change",
  corrected: "changed after it was published",
  final: "never changes again",
};

export function legend() {
  return Object.entries(STATES).map(([state, text]) =>
    el("li", {}, legendMark(state), el("span", {}, el("b", {}, state), el("span", { class: "wide" }, ` ${text}`))));
}

/** What all panels of a metric share: its rows, its freshness, its states. */
class MetricPanel {
  constructor(shown, page, columns, tall = false) {
    this.shown = shown;
    this.page = page;
    this.series = new Series(shown);
    const { kind, size_seconds: size, hop_seconds: hop } = shown.window;
    const window = kind === "sliding" ? `${span(size)} every ${span(hop)}` : kind === "running" ? `running, ${span(size)}` : span(size);
    this.panel = new Panel({ title: shown.title, detail: `${shown.metric} · ${window}`, note: shown.note, span: columns, tall });
    this.root = this.panel.root;
  }

  async load() {
    try {
      this.take(await get(`metrics/${encodeURIComponent(this.shown.metric)}/rows`, this.query()));
    } catch (problem) {
      this.problem = problem;
    }
    redraw(this);
  }

  query() {
    const windows = this.series.keep * Math.max(1, this.shown.groups?.length ?? 1);
    const grouping = this.shown.grouping.join(",") || "all";
    return { grouping, order: "-window_start", limit: Math.min(1000, windows) };
  }

  take(answer) {
    this.problem = null;
    this.loaded = true;
    for (const row of answer.items) this.series.merge(row, serverNow());
  }

  /** A row of this metric changed. */
  row(row) {
    if (row.grouping !== (this.shown.grouping.join(",") || "all")) return;
    this.series.merge(row, serverNow());
    redraw(this);
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
    const { text, level } = this.page.freshnessOf(this.shown.metric, this.series.updatedAt);
    this.panel.freshness(text, level, "stale-metric");
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
    return `${where}${this.windowOf(slot)}: ${values.join(", ")}, ${row.state}${revision}; ${plural(row.events, "event")}${late}`
      + this.was(row);
  }

  was(row) {
    if (!row.correction) return "";
    const [name] = this.shown.values;
    return `; was ${withUnit(row.correction.was?.[name], this.shown.unit)}`;
  }
}

/** Charts of columns: one for the total, or one for each group. */
class ChartPanel extends MetricPanel {
  constructor(shown, page, columns, { height, tall }) {
    super(shown, page, columns, tall);
    this.height = height;
    this.tiles = new Map();
    this.holder = el("div", { class: shown.grouping.length ? "tiles" : "tiles one" });
    this.panel.body.append(this.holder);
    this.panel.withTable(() => this.table());
  }

  drawBody() {
    const newest = this.series.newestStart(this.page.watermarkOf(this.shown.metric) ?? serverNow());
    if (!Number.isFinite(newest)) return;
    this.newest = newest;
    const all = [...this.series.groups.keys()].map((group) => [group, this.slots(group, newest)]);
    const highest = (slots) => Math.max(0, ...slots.map((slot) => slot.high ?? 0));
    const shared = Math.max(0, ...all.map(([, slots]) => highest(slots)));
    for (const [group, slots] of all) {
      const max = nice(this.shown.shared_scale ? shared : highest(slots));
      const settled = slots.filter((slot) => slot.state === "final").map((slot) => slot.middle);
      this.tile(group).draw(slots, {
        max, top: max ? scaleText(max, this.shown.unit) : "",
        middle: median(settled), size: this.shown.window.size_seconds,
      });
    }
  }

  slots(group, newest) {
    const now = serverNow();
    return this.series.slots(group, newest).map((slot) => {
      const values = this.shown.values.map((name) => valueOf(slot.row, name)).filter((v) => v !== null);
      const several = values.length > 1;
      return {
        ...slot,
        state: slot.row?.state ?? "",
        high: values.length ? Math.max(...values) : null,
        low: several ? Math.min(...values) : null,
        middle: several ? median(values) : (values[0] ?? null),
        marks: several ? values.slice().sort((a, b) => a - b).slice(1, -1) : [],
        fresh: Boolean(slot.row?.correction && now - slot.row.correction.at < FRESH_MS),
      };
    });
  }

  tile(group) {
    if (!this.tiles.has(group)) {
      const tile = new Tile(this, group);
      this.tiles.set(group, tile);
      this.holder.append(tile.root);
    }
    return this.tiles.get(group);
  }

  tick() {
    super.tick();
    for (const tile of this.tiles.values()) tile.tick();
  }

  table() {
    const heads = ["Window", ...(this.shown.grouping.length ? ["Group"] : []),
      ...this.shown.values.map((name) => ({ text: shortName(name), number: true })), "State",
      { text: "Revision", number: true }, { text: "Events", number: true }, { text: "Too late", number: true }];
    const rows = [];
    for (const [group] of this.series.groups) {
      for (const slot of this.series.slots(group, this.newest).slice(-10).reverse()) {
        if (!slot.row) continue;
        rows.push({ start: slot.start, cells: [
          this.windowOf(slot), ...(this.shown.grouping.length ? [group] : []),
          ...this.shown.values.map((name) => withUnit(slot.row.values?.[name], this.shown.unit)), slot.row.state,
          count(slot.row.revision), count(slot.row.events), count(slot.row.late_events)] });
      }
    }
    rows.sort((a, b) => b.start - a.start);
    return table(heads, rows, { caption: `${this.shown.title}, the newest windows first` });
  }
}

/** One group: its newest published number, its chart, and what was corrected last. */
class Tile {
  constructor(owner, group) {
    this.owner = owner;
    this.group = group;
    this.head = el("div", { class: "tile-head" });
    this.correction = el("p", { class: "correction" });
    this.chart = new Columns({
      label: `${owner.shown.title}${group ? `, ${group}` : ""}: windows`,
      height: owner.height,
      say: (slot) => owner.say(slot, group),
      picked: (slot) => setText(owner.panel.note, slot ? owner.say(slot, group) : owner.shown.note),
    });
    this.root = el("div", { class: "tile", "data-group": group }, group ? el("h4", {}, group) : null, this.head, this.chart.root, this.correction);
  }

  draw(slots, scale) {
    const { owner } = this;
    const row = owner.series.headline(this.group, owner.newest);
    const numbers = owner.shown.values.length > 1
      ? owner.shown.values.map((name) => el("div", { class: "of-several" }, owner.big(row, name), el("p", { class: "label" }, shortName(name))))
      : [owner.big(row, owner.shown.values[0])];
    patch(this.head,
      el("div", { class: "numbers" }, numbers),
      row ? el("p", { class: "when" }, owner.state(row), el("span", {}, owner.windowOf(row))) : el("p", { class: "when" }, "no events yet"));
    this.chart.update(slots, scale);
    this.tick();
  }

  tick() {
    const { owner } = this;
    const now = serverNow();
    const row = owner.series.correction(this.group, now);
    const [name] = owner.shown.values;
    this.correction.classList.toggle("now", Boolean(row && now - row.correction.at < FRESH_MS));
    if (!row) {
      setText(this.correction, "");
      return;
    }
    const { was, is, revision, at } = row.correction;
    const unit = owner.shown.unit === "percent" ? "percent" : "";
    setText(this.correction, `${clockTime(row.start, false)}: ${withUnit(was?.[name], unit)} → ${withUnit(is?.[name], unit)}, revision ${revision}`);
    this.correction.title = `${owner.windowOf(row)} was corrected ${age(now - at)}`;
  }
}

/** The lists of a top measure, or the largest groups of the newest window. */
class ListPanel extends MetricPanel {
  constructor(shown, page, columns) {
    super(shown, page, columns);
    this.list = el("ol", { class: "ranked" });
    this.when = el("p", { class: "when" });
    this.panel.body.append(this.when, this.list);
  }

  query() {
    if (this.shown.shape === "top") return { ...super.query(), limit: 2 };
    return { grouping: this.shown.grouping.join(",") || "all", order: `-${this.shown.values[0]}`, limit: 10 };
  }

  async load() {
    if (this.shown.shape === "top") return super.load();
    try {
      this.ranking = (await get(`metrics/${encodeURIComponent(this.shown.metric)}/latest`, this.query())).items;
      this.take({ items: this.ranking.slice(0, 1) });
    } catch (problem) {
      this.problem = problem;
    }
    redraw(this);
    return undefined;
  }

  entries(row) {
    const [name] = this.shown.values;
    if (this.shown.shape === "top") return (row.values?.[name] ?? []).slice(0, 10).map(({ item, count: n }) => [item, n]);
    return this.ranking.map((one) => [this.shown.grouping.map((d) => one.dimensions?.[d]).join(" · "), valueOf(one, name) ?? 0]);
  }

  drawBody() {
    const [group] = [...this.series.groups].find(([, windows]) => windows.size) ?? [];
    const row = this.series.headline(group, Infinity);
    const entries = this.ranking || this.shown.shape === "top" ? this.entries(row) : [];
    const most = Math.max(0, ...entries.map(([, n]) => n));
    patch(this.when, this.state(row), el("span", {}, this.windowOf(row)));
    patch(this.list, entries.map(([item, n]) =>
      el("li", {}, el("span", { class: "item" }, item), bar(n, most), el("span", { class: "value" }, withUnit(n, "")))));
  }
}

export function makePanel(shown, page, first) {
  if (shown.shape === "top" || shown.shape === "ranking") return new ListPanel(shown, page, 4);
  if (shown.shape === "groups") return new ChartPanel(shown, page, 12, { height: first ? 132 : 96, tall: first });
  return new ChartPanel(shown, page, 4, { height: 112, tall: false });
}

/** latency_ms_p95 is p95 where its fellows stand beside it. */
function shortName(name) {
  return /_(p[0-9_]+)$/.exec(name)?.[1].replaceAll("_", ".") ?? name.replaceAll("_", " ");
}

function scaleText(max, unit) {
  if (unit === "percent") return `${Number((max * 100).toPrecision(3))} %`;
  return withUnit(max, unit === "ms" ? unit : "");
}

/** The next round number, so that the scale stays where it is while values wobble. */
function nice(max) {
  if (!max) return 0;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= max * 1.02) ?? 15 * power;
}


