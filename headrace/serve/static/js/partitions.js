// The table of partitions: lag, clock and share of each, the idle and the hot ones marked.

import { el, patch } from "./dom.js";
import { clockTime, count, since, span } from "./format.js";
import { bar, judged, Panel, scrolling, table } from "./panel.js";

const FEW_ROWS = 8;
const MOST_ROWS = 64;
const HEADS = [
  "Partition",
  { text: "Lag", number: true },
  { text: "Lag in time", number: true },
  { text: "Clock", number: true },
  { text: "Behind", number: true },
  { text: "Late before", number: true, minor: true },
  { text: "Read to", number: true, minor: true },
  "Share",
  "Marks",
];

export class Partitions {
  constructor() {
    this.panel = new Panel({
      title: "Partitions",
      span: 12,
      note: "Hot: far more than its share of the records. Idle: silent, does not hold the watermark.",
    });
  }

  /** All partitions of one source, or of many sources those that want attention. */
  draw(sources) {
    const several = sources.length > 1;
    const all = sources.flatMap((source) => (source.partitions ?? []).map((p) => ({ source, p })));
    if (!all.length) {
      this.panel.empty("No partition has records yet");
      return;
    }
    this.panel.ready();
    const few = several ? all.toSorted(byTrouble).slice(0, FEW_ROWS) : all.slice(0, MOST_ROWS);
    const part = `${few.length} of ${all.length}, hot ones and the furthest behind`;
    this.panel.detail.textContent =
      few.length < all.length ? part : several ? "of all sources" : sources[0].source;
    const rows = few.map(({ source, p }) => partitionRow(source, p, several));
    patch(
      this.panel.body,
      scrolling("Partitions", table(HEADS, rows, { caption: "Partitions", kind: "cards" })),
    );
  }
}

function byTrouble(a, b) {
  const weight = ({ p }) => (p.hot ? 1e12 : 0) + (p.lag_seconds ?? 0) * 1e3 + (p.lag_records ?? 0) / 1e3;
  return weight(b) - weight(a);
}

function partitionRow(source, p, several) {
  const marks = [p.hot ? judged("hot", "warn") : null, p.idle ? el("span", {}, "◌ idle") : null].filter(
    Boolean,
  );
  return {
    kind: p.idle ? "idle" : "",
    cells: [
      several ? `${source.source} ${p.partition}` : String(p.partition),
      count(p.lag_records),
      span(p.lag_seconds),
      clockTime(p.clock),
      since(p.clock).replace(" ago", ""),
      clockTime(p.watermark),
      count(p.next_offset),
      share(source, p),
      marks.length ? el("span", { class: "marks" }, marks) : "–",
    ],
  };
}

function share(source, p) {
  if (p.share === null || p.share === undefined) return "–";
  const most = Math.max(...source.partitions.map((one) => one.share ?? 0));
  const percent = `${(100 * p.share).toFixed(0)} %`;
  return el("span", { class: "with-bar" }, bar(p.share, most, p.hot ? "warn" : ""), percent);
}
