// Enrichment: how often the tables knew the keys of events, and how old the tables are.

import { get } from "./api.js";
import { patch } from "./dom.js";
import { count, share, since, span } from "./format.js";
import { judged, scrolling, table } from "./panel.js";
import { Polled } from "./polled.js";

const HEADS = [
  "Enriched stream",
  { text: "Hit rate", number: true },
  { text: "Found", number: true, minor: true },
  { text: "Unknown keys", number: true },
  { text: "Without a key", number: true, minor: true },
  "Table",
  { text: "Versions", number: true, minor: true },
  "Read",
];

export class Enrichment extends Polled {
  constructor(page) {
    super({
      title: "Enrichment",
      detail: "tables as they were at the event's time",
      span: 12,
      note: "Hit rate: of the events that name a key, the share that the tables knew.",
    });
    this.page = page;
    this.root.hidden = true;
  }

  async fetch() {
    this.streams = (await get("enrichments")).items;
  }

  draw() {
    if (this.problem && this.at === null) this.root.hidden = false;
    super.draw();
  }

  judge() {
    const finding = (text) => ({ level: "warn", text, runbook: "unknown-keys" });
    return this.streams.flatMap((one) => [
      ...(this.isPoor(one) ? [finding(`${one.name}: many keys are unknown`)] : []),
      ...one.tables.filter((known) => known.problem).map((known) => finding(`${known.name} cannot be read`)),
    ]);
  }

  /** As the alert rule has it; before the limits are known nobody is judged. */
  isPoor(stream) {
    const most = this.page.pipeline.now?.sources[0]?.limits.unknown_keys_ratio ?? 1;
    return stream.hit_rate !== null && 1 - stream.hit_rate > most;
  }

  drawBody() {
    this.root.hidden = !this.streams.length;
    if (!this.streams.some((one) => one.tables.length)) {
      this.panel.empty(
        "Nothing is enriched yet",
        "The engine reads the tables when it starts, and counts with every batch.",
      );
      return;
    }
    this.panel.ready();
    const rows = this.streams.flatMap((one) => rowsOf(one, this.isPoor(one)));
    patch(
      this.panel.body,
      scrolling("Enrichment", table(HEADS, rows, { caption: "Enrichment", kind: "cards" })),
    );
  }
}

/** A row for each table; the counts are those of the stream, and stand in its first row. */
function rowsOf(stream, poor) {
  const counts = stream.counts;
  const found = (counts.found ?? 0) + (counts.retried ?? 0);
  const unknown = (counts.unknown ?? 0) + (counts.dead_lettered ?? 0);
  const rate = stream.hit_rate === null ? "–" : share(found, found + unknown);
  return (stream.tables.length ? stream.tables : [null]).map((known, n) => [
    n ? "" : stream.name,
    n ? "" : judged(rate, poor ? "warn" : "none"),
    n ? "" : count(found),
    n ? "" : count(unknown),
    n ? "" : count(counts.no_key ?? 0),
    known ? known.name : "not read yet",
    known ? count(known.rows) : "–",
    known ? readOf(known) : "–",
  ]);
}

function readOf(known) {
  if (!known.problem) return since(known.loaded_at);
  return judged(`stale for ${span(Math.round(known.stale_seconds))}: ${known.problem}`, "warn");
}
