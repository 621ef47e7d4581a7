// What is wrong with the pipeline, by the limits that the shipped alert rules have too. A rule waits for some
// minutes before it fires; the page says it at once.

import { bytes, count, share, since, span } from "./format.js";
import { serverNow } from "./frame.js";

const FEWEST_RECORDS = 100; // in the last minute: a share of fewer says nothing
const CHECKPOINT = ["walCommit", "commitOffsets", "stateCommit"];
const COMMIT = ["record", "publish"];
const GRAVITY = { bad: 0, warn: 1 };

/** A finding has level, text and runbook, and the panels that it belongs to. */
const finding = (level, panels, runbook, text) => ({ level, panels, runbook, text });

export function findings(now) {
  const broker = (now.problems ?? []).map((text) =>
    finding("bad", ["sources", "partitions"], "restart-storms", `lag is not known: ${text}`),
  );
  const lanes = (now.lanes ?? []).filter((lane) => hasRun(lane) && lane.status !== "running");
  return [
    ...broker,
    ...now.sources.flatMap((one) => [...ofQuery(one), ...ofRecords(one), ...ofCosts(one)]),
    ...lanes.map((lane) =>
      finding("bad", ["flows"], "realtime-lane", `the real-time lane of ${lane.source} is ${lane.status}`),
    ),
  ];
}

/** The gravest of these in words, and how many there are besides. */
export function worst(found) {
  if (!found.length) return { level: "ok", text: "", runbook: null };
  const [first] = found.toSorted((a, b) => GRAVITY[a.level] - GRAVITY[b.level]);
  const more = found.length > 1 ? ` (and ${count(found.length - 1)} more)` : "";
  return { ...first, text: first.text + more };
}

/** Whether an engine has ever told of the lane. */
export function hasRun(lane) {
  return lane.status !== "unknown" || Boolean(lane.at);
}

export function isDown(one) {
  return one.status !== "running" && one.status !== "restarting";
}

/** Without a broker that answers it is not known, and not judged here. */
export function isLagging(one) {
  return (one.lag?.seconds ?? 0) > one.limits.freshness_seconds;
}

export function isSlow(one) {
  return (one.latency_seconds?.p99 ?? 0) > one.limits.latency_seconds;
}

export function isStalled(one) {
  const at = Date.parse(one.watermark ?? "");
  return Number.isFinite(at) && (serverNow() - at) / 1000 > one.limits.watermark_seconds;
}

export function isGrowing({ state, limits }) {
  const before = state?.rows_a_day_ago ?? null;
  return before !== null && state.bytes > limits.state_bytes && state.rows > limits.state_growth * before;
}

/** The steps of the last batch that write, and took too long. */
export function slowSteps({ durations_ms: durations, limits }) {
  const steps = [...CHECKPOINT, ...COMMIT];
  return steps.filter((step) => (durations?.[step] ?? 0) / 1000 > limits.checkpoint_seconds);
}

function ofQuery(one) {
  const found = [];
  const all = ["sources", "flow"];
  if (one.unaccounted) {
    const text = `${one.source}: ${count(one.unaccounted)} without a fate`;
    found.push(finding("bad", all, "unaccounted-records", text));
  }
  if (isDown(one)) found.push(finding("bad", ["sources"], "restart-storms", downText(one)));
  if (one.status === "restarting")
    found.push(finding("warn", ["sources"], "restart-storms", `${one.source} is being started again`));
  if (isLagging(one)) {
    const text = `${one.source}: unread for ${span(one.lag.seconds)}, limit ${span(one.limits.freshness_seconds)}`;
    found.push(finding("bad", ["sources", "partitions"], "growing-lag", text));
  }
  if (isStalled(one)) {
    const text = `${one.source}: the watermark stands, ${since(one.watermark)}`;
    found.push(finding("warn", ["sources"], "stalled-watermark", text));
  }
  if (one.partitions?.some((p) => p.hot))
    found.push(finding("warn", ["partitions"], "hot-partitions", `${one.source} has a hot partition`));
  return found;
}

function downText(one) {
  if (one.status === "stopped") return `${one.source} has stopped`;
  return one.reported_at
    ? `${one.source}: the last report was ${since(one.reported_at)}`
    : `${one.source}: no engine has reported yet`;
}

function ofRecords({ source, last_minute: minute, limits }) {
  if (minute.received < FEWEST_RECORDS) return [];
  const found = [];
  const check = (n, limit, panels, runbook, words) => {
    if (n / minute.received > limit)
      found.push(
        finding("warn", panels, runbook, `${words} ${share(n, minute.received)} in the last minute`),
      );
  };
  check(minute.rejected, limits.rejected_ratio, ["letters"], "dead-letters", `${source}: rejected`);
  check(minute.late, limits.late_ratio, ["late", "flow"], "late-surprises", `${source}: late`);
  check(minute.duplicate, limits.duplicate_ratio, ["flow"], "duplicate-outputs", `${source}: repeated`);
  for (const [metric, n] of Object.entries(minute.late_for))
    check(n, limits.late_for_metric_ratio, ["late"], "late-surprises", `${metric}: missed windows`);
  return found;
}

function ofCosts(one) {
  const found = [];
  if (isSlow(one)) {
    const text = `${one.source}: p99 from log to table ${span(one.latency_seconds.p99)}, limit ${span(one.limits.latency_seconds)}`;
    found.push(finding("warn", ["sources"], "sink-backpressure", text));
  }
  if (isGrowing(one)) {
    const text = `${one.source}: the state grew by half in a day, to ${bytes(one.state.bytes)}`;
    found.push(finding("warn", ["sources"], "growing-state", text));
  }
  const slow = slowSteps(one);
  if (slow.some((step) => CHECKPOINT.includes(step)))
    found.push(finding("warn", ["timings"], "failing-checkpoints", `${one.source}: a slow checkpoint`));
  if (slow.some((step) => COMMIT.includes(step)))
    found.push(finding("warn", ["timings"], "sink-backpressure", `${one.source}: a slow commit`));
  return found;
}
