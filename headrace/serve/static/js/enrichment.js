// Enrichment: how often the tables knew the keys of events, and how old the tables are.

import { get } from "./api.js";
import { patch } from "./dom.js";
import { count, share, since, span } from "./format.js";
import { judged, scrolling, table } from "./panel.js";
import { Polled } from "./polled.js";

const FEW = 0.9; // of the keys; below it an alert fires
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
  constructor() {
    super({
      title: "Enrichment",
      detail: "tables as they were at the event's time",
      span: 12,
      note: "Hit rate: of the events that name a key, the share that the tables knew.",
    });
    this.root.hidden = true;
  }

  async fetch() {
    this.streams = (await get("enrichments")).items;
  }

  draw() {
    if (this.problem && this.at === null) this.root.hidden = false;
    super.draw();
  }

  get troubled() {
    return this.streams.some((one) => isPoor(one) || one.tables.some((known) => known.problem));
  }

  judge() {
    return { level: this.troubled ? "warn" : "ok", runbook: "unknown-keys" };
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
    const rows = this.streams.flatMap((one) => rowsOf(one));
    patch(
      this.panel.body,
      scrolling("Enrichment", table(HEADS, rows, { caption: "Enrichment", kind: "cards" })),
    );
  }
}

function isPoor(stream) {
  return stream.hit_rate !== null && stream.hit_rate < FEW;
}

/** A row for each table; the counts are those of the stream, and stand in its first row. */
function rowsOf(stream) {
  const { found: atOnce = 0, retried = 0, no_key: noKey = 0, unknown: kept = 0, dead_lettered: dead = 0 } = stream.counts;
  const found = atOnce + retried;
  const unknown = kept + dead;
  const rate = stream.hit_rate === null ? "–" : share(found, found + unknown);
  return (stream.tables.length ? stream.tables : [null]).map((known, n) => [
    n ? "" : stream.name,
    n ? "" : judged(rate, isPoor(stream) ? "warn" : "none"),
    n ? "" : count(found),
    n ? "" : count(unknown),
    n ? "" : count(noKey),
    known ? known.name : "not read yet",
    known ? count(known.rows) : "–",
    known ? readOf(known) : "–",
  ]);
}

function readOf(known) {
  if (!known.problem) return since(known.loaded_at);
  return judged(`stale for ${span(Math.round(known.stale_seconds))}: ${known.problem}`, "warn");
}
