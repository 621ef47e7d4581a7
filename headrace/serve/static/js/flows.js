// What joins, sessions, patterns, signals and enrichment made of the events that they took, what they keep, and
// how the real-time lanes of signals are.

import { el, patch } from "./dom.js";
import { bytes, count, span } from "./format.js";
import { hasRun } from "./judge.js";
import { judged, Panel, scrolling, table } from "./panel.js";

const HEADS = [
  "Flow",
  { text: "Kind", minor: true },
  "Source",
  { text: "Taken", number: true },
  { text: "Outcomes", wide: true },
  { text: "Late", number: true },
  { text: "Kept", number: true },
  { text: "Memory", number: true, minor: true },
];

export class Flows {
  constructor() {
    this.panel = new Panel({
      title: "Flows",
      detail: "joins, sessions, patterns, signals, enrichment",
      span: 12,
      note: "Each event that a flow takes has one outcome. Kept: what waits, or is remembered, for later events.",
    });
  }

  draw(flows, signals, lanes) {
    const named = new Set(flows.map((one) => one.flow));
    const scored = Object.entries(signals).filter(([name]) => !named.has(name));
    this.panel.root.hidden = !flows.length && !scored.length && !lanes.some(hasRun);
    this.panel.ready();
    const rows = flows.map((one) => [
      one.side ? `${one.flow}, ${one.side}` : one.flow,
      one.kind,
      one.source,
      count(one.taken),
      inWords(withoutLate(one)),
      count(one.late),
      one.kind === "enrichment" ? "–" : count(one.waiting),
      one.bytes === null ? "–" : bytes(one.bytes),
    ]);
    patch(
      this.panel.body,
      rows.length ? scrolling("Flows", table(HEADS, rows, { caption: "Flows", kind: "cards" })) : null,
      scored.map(([name, decisions]) => el("p", { class: "signals" }, `${name}: ${inWords(decisions)}`)),
      lanes.map((lane) => laneLine(lane)),
    );
  }
}

function laneLine(lane) {
  const well = lane.status === "running" || !hasRun(lane);
  const cause = lane.last_failure && !well ? el("span", {}, ` · ${lane.last_failure}`) : null;
  return el("p", { class: "lane" }, judged(laneInWords(lane), well ? "none" : "bad"), cause);
}

function laneInWords(lane) {
  const { p50 = null, p99 = null } = lane.latency_ms ?? {};
  const slow = p50 === null ? "" : ` · p50 ${span(p50 / 1000)} · p99 ${span(p99 / 1000)}`;
  const counts = ` · read ${count(lane.received)} · signals ${count(lane.signals)}`;
  return `Real-time lane of ${lane.source}: ${lane.status}${slow}${counts}`;
}

/** With the alerts of a pattern, which are what it is there for. */
function withoutLate(flow) {
  const { late: _late, ...outcomes } = flow.outcomes;
  return flow.kind === "pattern" ? { alerts: flow.alerts, ...outcomes } : outcomes;
}

function inWords(outcomes) {
  const parts = Object.entries(outcomes).map(([outcome, n]) => `${outcome.replaceAll("_", " ")} ${count(n)}`);
  return parts.join(" · ") || "nothing yet";
}
