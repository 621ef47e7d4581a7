// What joins, patterns and signals made of the events that they took, and what still waits for a partner.

import { el, patch } from "./dom.js";
import { bytes, count } from "./format.js";
import { Panel, scrolling, table } from "./panel.js";

const HEADS = [
  "Flow",
  "Source",
  { text: "Taken", number: true },
  { text: "Matched", number: true },
  { text: "Unmatched", number: true },
  { text: "Waiting", number: true },
  { text: "Late", number: true },
  { text: "Memory", number: true, minor: true },
];

export class Flows {
  constructor() {
    this.panel = new Panel({
      title: "Flows",
      detail: "joins, patterns, signals",
      span: 12,
      note: "Taken = matched + unmatched + waiting + late.",
    });
  }

  draw(flows, signals) {
    const scored = Object.entries(signals);
    this.panel.root.hidden = !flows.length && !scored.length;
    this.panel.ready();
    const rows = flows.map((one) => [
      one.side ? `${one.flow}, ${one.side}` : one.flow,
      one.source,
      ...[one.taken, one.matched, one.unmatched, one.pending, one.late].map((n) => count(n)),
      one.bytes === null ? "–" : bytes(one.bytes),
    ]);
    patch(
      this.panel.body,
      rows.length ? scrolling("Flows", table(HEADS, rows, { caption: "Flows", kind: "cards" })) : null,
      scored.map(([name, decisions]) => el("p", { class: "signals" }, `${name}: ${inWords(decisions)}`)),
    );
  }
}

function inWords(decisions) {
  const parts = Object.entries(decisions).map(([decision, n]) => `${decision} ${count(n)}`);
  return parts.join(" · ") || "nothing scored yet";
}
