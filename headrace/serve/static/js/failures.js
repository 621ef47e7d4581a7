// Why queries failed, in the words that the engine gives: all of it is text, for every reader.

import { el } from "./dom.js";
import { moment, plural } from "./format.js";
import { serverNow } from "./frame.js";

const LONGEST = 500;
const REMEMBERED_MS = 24 * 3_600_000; // of a query that runs again

/** A list of the sources that failed, or nothing. */
export function failures(sources) {
  const failed = sources.filter((one) => one.last_failure && isOfInterest(one));
  if (!failed.length) return null;
  return el(
    "section",
    { class: "failures", "aria-label": "Last failures" },
    el("h4", {}, "Last failures"),
    el(
      "ul",
      {},
      failed.map((one) => item(one)),
    ),
  );
}

function isOfInterest(one) {
  return one.status !== "running" || serverNow() - Date.parse(one.last_failure_at ?? "") < REMEMBERED_MS;
}

function item(one) {
  const runs = one.status === "running";
  const how = runs ? "runs again" : one.status;
  const often = one.failures ? ` · ${plural(one.failures, "failure")} in all` : "";
  return el(
    "li",
    { class: runs ? "" : "bad", "data-key": `failure-${one.source}` },
    el("b", {}, one.source),
    el("span", { class: "quiet-text" }, ` ${moment(one.last_failure_at, serverNow())} · ${how}${often}`),
    el("p", {}, String(one.last_failure).slice(0, LONGEST)),
  );
}
