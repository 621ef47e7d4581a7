// The sources and their partitions: rates, latency, lag, clocks, state and where a batch spends its time.

import { el, patch, svg } from "./dom.js";
import { age, bytes, clockTime, count, moment, plain, plural, span } from "./format.js";
import { redraw, serverNow } from "./frame.js";
import { Flow } from "./flow.js";
import { Ring } from "./model.js";
import { bar, Panel, table } from "./panel.js";

const RATES = 120;
const OLD_MS = 30_000;
const MOST_ROWS = 64;
const FEW_ROWS = 8;
const ALL = "";
const STATUS = { running: "ok", restarting: "warn", stopped: "bad", unknown: "none" };

export class Pipeline {
  constructor(page) {
    this.page = page;
    this.now = null;
    this.rates = new Map();
    this.chosen = ALL;
    this.flow = new Flow();
    this.timings = new Panel({ title: "Where the time goes", span: 5, note: "Of the last batch." });
    this.sources = new Panel({ title: "Sources", detail: "choose one to see its partitions", span: 12, note: "Rates are of the last 10 seconds." });
    this.partitions = new Panel({ title: "Partitions", span: 12, note: "Hot: far more than its share of the records. Idle: silent, does not hold the watermark." });
    this.roots = [this.flow, this.timings, this.sources, this.partitions].map((part) => part.root);
    this.clocks = [];
  }

  take(now) {
    this.now = now;
    this.problem = null;
    const known = new Set(now.sources.map((source) => source.source));
    for (const name of this.rates.keys()) if (!known.has(name)) this.rates.delete(name);
    for (const source of now.sources) {
      if (!this.rates.has(source.source)) this.rates.set(source.source, new Ring(RATES));
      this.rates.get(source.source).push(source.rate_per_second ?? 0);
    }
    redraw(this);
  }

  failed(problem) {
    this.problem = problem;
    redraw(this);
  }

  source(name) {
    return this.now?.sources.find((one) => one.source === name) ?? null;
  }

  draw() {
    if (!this.now) {
      for (const part of [this.flow.panel, this.timings, this.sources, this.partitions]) {
        if (this.problem) part.failed(this.problem, () => this.page.loadPipeline());
      }
      return;
    }
    const all = this.now.sources;
    const chosen = all.filter((one) => one.source === this.chosen);
    const shown = chosen.length ? chosen : all;
    this.flow.panel.detail.textContent = chosen.length ? this.chosen : "all sources";
    this.flow.update(shown, chosen.length ? this.chosen : "all sources");
    this.drawSources(all);
    this.drawPartitions(shown);
    this.drawTimings(shown);
    this.tick();
  }

  drawSources(all) {
    if (!all.length) {
      this.sources.empty("No source", "Every contract of the app is a source.");
      return;
    }
    this.sources.ready();
    const heads = ["Source", "Status", { text: "Records a second", number: true }, { text: "Latency p50 / p99", number: true },
      { text: "Lag", number: true }, { text: "Lag in time", number: true }, { text: "Watermark", number: true },
      { text: "Batch", number: true }, { text: "State", number: true }, { text: "Unaccounted", number: true }];
    const rows = all.map((one) => ({ kind: one.source === this.chosen ? "chosen" : "", cells: [
      this.chooser(one.source), this.status(one), this.rate(one),
      one.latency_seconds ? `${span(one.latency_seconds.p50)} / ${span(one.latency_seconds.p99)}` : "–",
      count(one.lag?.records), this.judged(span(one.lag?.seconds), this.lagLevel(one)),
      el("span", {}, clockTime(one.watermark), el("small", {}, ` ${this.behind(one.watermark)}`)),
      one.batch ? span(one.batch.seconds) : "–",
      one.state ? `${plain(one.state.rows)} rows, ${bytes(one.state.bytes)}` : "–",
      this.judged(count(one.unaccounted), one.unaccounted ? "bad" : "none")] }));
    patch(this.sources.body, el("div", { class: "table-wrap", role: "region", tabindex: 0, "data-key": "sources", "aria-label": "Sources" },
      table(heads, rows, { caption: "Sources of the pipeline", kind: "cards" })));
  }

  chooser(name) {
    const pressed = name === this.chosen;
    const choose = () => {
      this.chosen = this.chosen === name ? ALL : name;
      redraw(this);
    };
    return el("button", { type: "button", class: "choose", "data-key": `source-${name}`, "aria-pressed": String(pressed), on: { click: choose } }, name);
  }

  status(one) {
    const extra = one.restarts ? `, ${plural(one.restarts, "restart")}` : "";
    const node = this.judged(`${one.status ?? "unknown"}${extra}`, STATUS[one.status] ?? "none");
    if (one.last_failure) node.title = failureText(one.last_failure);
    return node;
  }

  judged(text, level) {
    if (level === "none") return el("span", {}, text);
    const mark = { ok: "✓", warn: "!", bad: "✕" }[level];
    return el("span", { class: `judged ${level}` }, el("span", { class: `badge ${level}`, "aria-hidden": "true" }, mark), text);
  }

  rate(one) {
    return el("span", { class: "with-spark" }, spark(this.rates.get(one.source)?.items ?? []), one.rate_per_second === null ? "–" : plain(Math.round(one.rate_per_second)));
  }

  lagLevel(one) {
    const target = one.slo?.freshness_seconds ?? null;
    if (target === null || one.lag?.seconds === null || one.lag?.seconds === undefined) return "none";
    return one.lag.seconds > target ? "bad" : "none";
  }

  behind(at) {
    const ms = Date.parse(at ?? "");
    return Number.isFinite(ms) ? age(serverNow() - ms) : "";
  }

  drawPartitions(shown) {
    const several = shown.length > 1;
    const all = shown.flatMap((one) => (one.partitions ?? []).map((p) => [one, p]));
    if (!all.length) {
      this.partitions.empty("No partition has records yet");
      return;
    }
    const weight = ([, p]) => (p.hot ? 1e12 : 0) + (p.lag_seconds ?? 0) * 1e3 + (p.lag_records ?? 0) / 1e3;
    const few = several ? all.toSorted((a, b) => weight(b) - weight(a)).slice(0, FEW_ROWS) : all.slice(0, MOST_ROWS);
    const rows = few.map(([one, p]) => this.partitionRow(one, p, several));
    const left = all.length > few.length ? `${few.length} of ${all.length}, hot ones and the furthest behind; choose a source for its own` : "";
    this.partitions.detail.textContent = several ? left || "of all sources" : (shown[0]?.source ?? "");
    this.partitions.ready();
    const heads = ["Partition", { text: "Lag", number: true }, { text: "Lag in time", number: true }, { text: "Clock", number: true },
      { text: "Behind", number: true }, { text: "Watermark", number: true }, { text: "Read to", number: true }, "Share", "Marks"];
    patch(this.partitions.body, el("div", { class: "table-wrap", role: "region", tabindex: 0, "data-key": "partitions", "aria-label": "Partitions" },
      table(heads, rows, { caption: "Partitions", kind: "cards" })));
  }

  partitionRow(source, p, several) {
    const most = Math.max(0.0001, ...source.partitions.map((one) => one.share ?? 0));
    const marks = [p.hot ? this.judged("hot", "warn") : null, p.idle ? el("span", { class: "mark-idle" }, "◌ idle") : null].filter(Boolean);
    return { kind: p.idle ? "idle" : "", cells: [
      several ? `${source.source} ${p.partition}` : String(p.partition), count(p.lag_records), span(p.lag_seconds),
      clockTime(p.clock), this.behind(p.clock).replace(" ago", ""), clockTime(p.watermark ?? source.watermark),
      count(p.next_offset),
      p.share === null || p.share === undefined ? "–" : el("span", { class: "with-bar" }, bar(p.share, most, p.hot ? "warn" : ""), `${(100 * p.share).toFixed(0)} %`),
      marks.length ? el("span", { class: "marks" }, marks) : "–"] };
  }

  drawTimings(shown) {
    const slowest = shown.filter((one) => one.batch || one.durations_ms).sort((a, b) => (b.batch?.seconds ?? 0) - (a.batch?.seconds ?? 0))[0];
    this.timed = slowest ?? null;
    if (!slowest) {
      this.timings.empty("No batch yet");
      return;
    }
    this.timings.ready();
    this.timings.detail.textContent = shown.length > 1 ? `${slowest.source}, the slowest` : slowest.source;
    const steps = Object.entries(slowest.durations_ms ?? {}).filter(([, ms]) => Number.isFinite(ms)).sort((a, b) => b[1] - a[1]).slice(0, 7);
    const most = Math.max(1, ...steps.map(([, ms]) => ms));
    const facts = [
      ["Batch", slowest.batch ? span(slowest.batch.seconds) : "–"],
      ["Finished", slowest.batch ? moment(slowest.batch.at, serverNow()) : "–"],
      ["Number", count(slowest.batch?.batch_id)],
      ["State", slowest.state ? `${plain(slowest.state.rows)} rows, ${bytes(slowest.state.bytes)}` : "–"],
      ["Restarts", count(slowest.restarts ?? 0)],
    ];
    patch(this.timings.body,
      el("dl", { class: "facts" }, facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
      steps.length
        ? el("ol", { class: "ranked steps" }, steps.map(([name, ms]) =>
          el("li", {}, el("span", { class: "item" }, stepName(name)), bar(ms, most), el("span", { class: "value" }, span(ms / 1000)))))
        : el("p", { class: "quiet-text" }, "The engine has not reported its steps yet."),
      slowest.last_failure ? el("p", { class: "failure" }, `Last failure: ${failureText(slowest.last_failure)}`) : null);
  }

  tick() {
    if (!this.now) return;
    const ms = serverNow() - Date.parse(this.now.at);
    const text = `as of ${age(ms)}`;
    const old = ms > OLD_MS;
    const leak = this.now.sources.some((one) => one.unaccounted);
    const stopped = this.now.sources.some((one) => one.status === "stopped");
    const restarting = this.now.sources.some((one) => one.status === "restarting");
    const lagging = this.now.sources.some((one) => this.lagLevel(one) === "bad");
    const hot = this.now.sources.some((one) => one.partitions?.some((p) => p.hot));
    this.flow.panel.freshness(text, leak ? "bad" : old ? "warn" : "ok", leak ? "unaccounted-records" : "growing-lag");
    this.sources.freshness(text, stopped || lagging ? "bad" : restarting || old ? "warn" : "ok", stopped || restarting ? "restart-storms" : "growing-lag");
    this.partitions.freshness(text, hot || old ? "warn" : "ok", hot ? "hot-partitions" : "growing-lag");
    this.timings.freshness(text, old ? "warn" : "ok", "failing-checkpoints");
  }
}

function failureText(failure) {
  return typeof failure === "string" ? failure : (failure?.message ?? failure?.cause ?? JSON.stringify(failure)).slice(0, 300);
}

/** addBatch, store_commit: words. */
function stepName(name) {
  return name.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ").toLowerCase();
}

function spark(items) {
  const width = 72;
  const height = 18;
  const most = Math.max(1, ...items);
  const points = items.map((n, i) => `${(((RATES - items.length + i) / (RATES - 1)) * width).toFixed(1)} ${(height - 1 - (n / most) * (height - 3)).toFixed(1)}`);
  return svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    points.length > 1 ? svg("path", { d: `M${points.join("L")}` }) : null);
}
