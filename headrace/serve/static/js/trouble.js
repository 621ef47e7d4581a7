// What went wrong: records that were turned away, and events that came too late.

import { get } from "./api.js";
import { el, patch } from "./dom.js";
import { count, moment, span } from "./format.js";
import { serverNow } from "./frame.js";
import { ranked } from "./panel.js";
import { Polled } from "./polled.js";

const LONGEST_SAMPLE = 1200;

export class DeadLetters extends Polled {
  constructor(page) {
    super({
      title: "Dead letters",
      detail: "rejected in the last 24 hours, by reason",
      span: 6,
      note: "A sample is masked as its contract says.",
    });
    this.page = page;
  }

  async fetch() {
    const histogram = await get("dead-letters/histogram", { by: "reason" });
    this.reasons = histogram.items
      .map((one) => [one.key, one.count])
      .sort((a, b) => b[1] - a[1])
      .slice(0, 8);
    this.sample = this.reasons.length ? ((await get("dead-letters", { limit: 1 })).items?.[0] ?? null) : null;
  }

  judge() {
    return this.page.pipeline.about("letters");
  }

  drawBody() {
    if (!this.reasons.length) {
      this.panel.empty("No record was rejected", "The invalid topics are empty.");
      return;
    }
    this.panel.ready();
    const entries = this.reasons.map(([reason, n]) => ({ item: reason, size: n, text: count(n) }));
    patch(
      this.panel.body,
      ranked(entries, { kind: "warn", code: true }),
      this.sample ? this.sampleOf(this.sample) : null,
    );
  }

  sampleOf(record) {
    const reasons = record.reasons
      .map((reason) => [reason.code, reason.field].filter(Boolean).join(" "))
      .join(", ");
    const value =
      typeof record.value === "string" ? record.value : JSON.stringify(record.value ?? null, null, 1);
    return el(
      "figure",
      { class: "sample" },
      el(
        "figcaption",
        {},
        el("b", {}, "Newest: "),
        `${reasons || "no reason"} · ${record.source} ${record.partition}/${record.offset}`,
        ` · ${moment(record.at, serverNow())}`,
      ),
      el(
        "pre",
        { tabindex: 0, "data-key": "sample", "aria-label": "Sample record" },
        (value ?? "").slice(0, LONGEST_SAMPLE),
      ),
    );
  }
}

export class LateEvents extends Polled {
  constructor(page) {
    super({
      title: "Late events",
      detail: "missed a window in the last 24 hours, by how long",
      span: 6,
      note: "An event counts once for each window that it missed.",
    });
    this.page = page;
  }

  async fetch() {
    const answer = await get("late-events/delays");
    const counted = answer.items.map((one) => one.count > 0);
    this.delays = answer.items.slice(Math.max(0, counted.indexOf(true)), counted.lastIndexOf(true) + 1);
  }

  get total() {
    return this.delays.reduce((sum, one) => sum + one.count, 0);
  }

  judge() {
    return this.page.pipeline.about("late");
  }

  drawBody() {
    if (!this.total) {
      this.panel.empty(
        "No event missed its window",
        "Late events are listed with how late they were and by which clock.",
      );
      return;
    }
    this.panel.ready();
    const entries = this.delays.map((one) => ({
      item: delayText(one),
      size: one.count,
      text: count(one.count),
    }));
    patch(
      this.panel.body,
      el("p", { class: "big small" }, count(this.total), el("small", {}, " missed windows")),
      ranked(entries),
    );
  }
}

function delayText(one) {
  const { from_seconds: from, to_seconds: to } = one;
  if (from === null) return "its partition slept";
  if (to === null) return `over ${span(from)}`;
  return from ? `${span(from)} to ${span(to)}` : `up to ${span(to)}`;
}
