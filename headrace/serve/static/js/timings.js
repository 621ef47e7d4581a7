// Where a batch spends its time: every step that the engine reports, checkpoint and commits among them.

import { el, patch } from "./dom.js";
import { bytes, count, moment, plain, span } from "./format.js";
import { serverNow } from "./frame.js";
import { slowSteps } from "./judge.js";
import { judged, Panel, ranked } from "./panel.js";

const MOST_STEPS = 12;
const STEPS = {
  triggerExecution: "whole trigger",
  addBatch: "batch work",
  walCommit: "checkpoint offsets",
  commitOffsets: "checkpoint commit",
  stateCommit: "checkpoint state",
  record: "store commit",
};

export class Timings {
  constructor() {
    this.panel = new Panel({ title: "Where the time goes", span: 5, note: "Of the last batch." });
  }

  draw(sources) {
    const [slowest] = sources
      .filter((one) => one.batch || one.durations_ms)
      .sort((a, b) => trouble(b) - trouble(a));
    if (!slowest) {
      this.panel.empty("No batch yet");
      return;
    }
    this.panel.ready();
    this.panel.detail.textContent = sources.length > 1 ? `${slowest.source}, the slowest` : slowest.source;
    patch(this.panel.body, facts(slowest), steps(slowest));
  }
}

/** Those with a slow checkpoint or commit come first, then the slowest batch. */
function trouble(one) {
  return 1e6 * slowSteps(one).length + (one.batch?.seconds ?? 0);
}

function facts({ batch, state }) {
  const lines = [
    ["Batch", batch ? span(batch.seconds) : "–"],
    ["Finished", moment(batch?.at, serverNow())],
    ["Number", count(batch?.batch_id)],
    ["State", state ? `${plain(state.rows)} rows, ${bytes(state.bytes)}` : "–"],
  ];
  const items = lines.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)));
  return el("dl", { class: "facts" }, items);
}

function steps(one) {
  const slow = new Set(slowSteps(one));
  const known = Object.entries(one.durations_ms ?? {}).filter(([, ms]) => Number.isFinite(ms));
  if (!known.length) return el("p", { class: "quiet-text" }, "The engine has not reported its steps yet.");
  const longest = known.sort((a, b) => b[1] - a[1]).slice(0, MOST_STEPS);
  return ranked(
    longest.map(([name, ms]) => ({
      item: stepName(name),
      size: ms,
      text: judged(span(ms / 1000), slow.has(name) ? "warn" : "none"),
      kind: slow.has(name) ? "warn" : "",
    })),
  );
}

/** Names that nobody explained become words: queryPlanning, store_commit. */
function stepName(name) {
  const words = name.replace(/([a-z])([A-Z])/g, "$1 $2").replaceAll("_", " ");
  return STEPS[name] ?? words.toLowerCase();
}
