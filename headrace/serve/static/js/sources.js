// The table of sources: rates, latency, lag, watermark, state. Its first column chooses what the others show.

import { el, patch, svg } from "./dom.js";
import { failures } from "./failures.js";
import { bytes, clockTime, count, plain, plural, since, span } from "./format.js";
import { isGrowing, isLagging, isSlow, isStalled } from "./judge.js";
import { Ring } from "./model.js";
import { judged, Panel, scrolling, table } from "./panel.js";

const RATES = 120;
const STATUS = { running: "ok", restarting: "warn", stopped: "bad", unknown: "bad" };
const HEADS = [
  "Source",
  "Status",
  { text: "Rate a second", number: true },
  { text: "p50 / p99", number: true },
  { text: "Lag", number: true },
  { text: "Lag in time", number: true },
  { text: "Watermark", number: true },
  { text: "Batch", number: true, minor: true },
  { text: "State", number: true },
  { text: "Unaccounted", number: true },
];

export class Sources {
  /** `choose(name)` hears which source is pressed. */
  constructor(choose) {
    this.choose = choose;
    this.rates = new Map();
    this.panel = new Panel({
      title: "Sources",
      detail: "choose one to see its partitions",
      span: 12,
      note: "Rates are of the last 10 seconds; p50 and p99 from the log to the table, of the last minute.",
    });
  }

  remember(sources) {
    const known = new Set(sources.map((one) => one.source));
    for (const name of this.rates.keys()) if (!known.has(name)) this.rates.delete(name);
    for (const one of sources) {
      if (!this.rates.has(one.source)) this.rates.set(one.source, new Ring(RATES));
      this.rates.get(one.source).push(one.rate_per_second ?? 0);
    }
  }

  draw(sources, chosen) {
    if (!sources.length) {
      this.panel.empty("No source", "Every contract of the app is a source.");
      return;
    }
    this.panel.ready();
    const rows = sources.map((one) => this.row(one, one.source === chosen));
    patch(
      this.panel.body,
      scrolling("Sources", table(HEADS, rows, { caption: "Sources of the pipeline", kind: "cards" })),
      failures(sources),
    );
  }

  row(one, chosen) {
    return {
      kind: chosen ? "chosen" : "",
      cells: [
        this.chooser(one.source, chosen),
        status(one),
        this.rate(one),
        judged(latency(one), isSlow(one) ? "warn" : "none"),
        count(one.lag?.records),
        judged(span(one.lag?.seconds), isLagging(one) ? "bad" : "none"),
        judged(
          clockTime(one.watermark),
          isStalled(one) ? "warn" : "none",
          el("small", {}, ` ${since(one.watermark)}`),
        ),
        one.batch ? span(one.batch.seconds) : "–",
        judged(
          one.state ? `${plain(one.state.rows)} rows, ${bytes(one.state.bytes)}` : "–",
          isGrowing(one) ? "warn" : "none",
        ),
        judged(count(one.unaccounted), one.unaccounted ? "bad" : "none"),
      ],
    };
  }

  chooser(name, chosen) {
    const attributes = { type: "button", class: "choose", "data-key": `source-${name}` };
    const on = { click: () => this.choose(name) };
    return el("button", { ...attributes, "aria-pressed": String(chosen), on }, name);
  }

  rate(one) {
    const known = one.rate_per_second !== null && one.rate_per_second !== undefined;
    return el(
      "span",
      { class: "with-spark" },
      spark(this.rates.get(one.source)?.items ?? []),
      known ? plain(Math.round(one.rate_per_second)) : "–",
    );
  }
}

function status(one) {
  const restarts = one.restarts ? `, ${plural(one.restarts, "restart")}` : "";
  return judged(`${one.status ?? "unknown"}${restarts}`, STATUS[one.status] ?? "bad");
}

function latency({ latency_seconds: known }) {
  return known ? `${span(known.p50)} / ${span(known.p99)}` : "–";
}

function spark(items) {
  const [width, height] = [72, 18];
  const most = Math.max(1, ...items);
  const points = items.map((n, i) => {
    const x = ((RATES - items.length + i) / (RATES - 1)) * width;
    const y = height - 1 - (n / most) * (height - 3);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  return svg(
    "svg",
    { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    points.length > 1 ? svg("path", { d: `M${points.join("L")}` }) : null,
  );
}
