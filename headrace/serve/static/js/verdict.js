// The top line: business, pipeline, numbers. Each has a word and a reason, and a link to where it comes from.

import { levelOf, whereOf } from "./alerts.js";
import { el, patch, runbookLink, svg } from "./dom.js";
import { clockTime, count, plural, span } from "./format.js";
import { worst } from "./judge.js";

const MARKS = {
  ok: "M4 12.5 9.5 18 20 6.5",
  warn: "M12 5v9M12 18v.5",
  bad: "M6 6l12 12M18 6 6 18",
  none: "M7 12h10",
};

export class Verdict {
  constructor(root, page) {
    this.page = page;
    this.root = root;
    this.last = "";
  }

  draw() {
    const lines =
      this.page.connection.isLost
        ? ["Business", "Pipeline", "Numbers"].map((name) => ({
            name,
            level: "none",
            word: "Unknown",
            reason: this.unknownBecause(),
          }))
        : [this.business(), this.pipeline(), this.numbers()];
    const key = JSON.stringify(lines);
    if (key === this.last) return;
    this.last = key;
    patch(
      this.root,
      lines.map((line) => this.card(line)),
    );
  }

  unknownBecause() {
    const { lostAt, wasLive } = this.page.connection;
    const since = `No connection since ${clockTime(lostAt)}`;
    return wasLive ? `${since}; below is what was known then.` : `${since}.`;
  }

  card({ name, level, word, reason, href, runbook }) {
    const anchor = { Business: "#business", Pipeline: "#pipeline", Numbers: "#trouble" }[name];
    return el(
      "div",
      { class: `card ${level}`, "data-verdict": name.toLowerCase() },
      mark(level),
      el(
        "div",
        {},
        el(
          "h2",
          {},
          el("a", { href: href ?? anchor, "data-key": `verdict-${name}` }, name),
          el("span", { class: "hidden" }, ": "),
        ),
        el("p", { class: "word" }, word),
        el(
          "p",
          { class: "reason" },
          reason,
          level !== "ok" && runbook ? [" ", runbookLink(runbook)] : null,
        ),
      ),
    );
  }

  business() {
    const { alerts } = this.page;
    const base = { name: "Business", href: "#alerts", runbook: "incident-alerts" };
    const [first, ...rest] = alerts.open;
    if (!alerts.loadedAt || (alerts.problem && !first))
      return unknown(base, "alerts", alerts.problem);
    const { panels } = this.page;
    const nothing = panels.length > 0 && panels.every((panel) => panel.loaded && panel.series.isEmpty);
    if (!first && nothing)
      return unsure(base, "Nothing yet", "No open alert, but no number either.");
    if (!first) return { ...base, level: "ok", word: "Fine", reason: "No open alert." };
    const where = whereOf(first);
    const more = rest.length ? ` and ${plural(rest.length, "other alert")}` : "";
    const level = levelOf(first);
    return {
      ...base,
      level,
      word: level === "bad" ? "Trouble" : "Attention",
      reason: `${first.alert}${where ? ` in ${where}` : ""}${more}.`,
      runbook: first.runbook || base.runbook,
    };
  }

  pipeline() {
    const { health, pipeline, healthProblem } = this.page;
    const base = { name: "Pipeline", runbook: "growing-lag" };
    const leak = pipeline.now?.sources.find((one) => one.unaccounted);
    if (leak)
      return {
        ...base,
        level: "bad",
        word: "Leak",
        reason: `${leak.source}: ${plural(leak.unaccounted, "record")} without a fate.`,
        runbook: "unaccounted-records",
      };
    if (!health || healthProblem) return unknown(base, "health", healthProblem);
    const wrong = (health.checks ?? []).filter((check) => check.status !== "ok");
    if (health.status !== "ok") {
      const worst = wrong.find((check) => check.status === "down" || check.status === "failed") ?? wrong[0];
      const more = wrong.length > 1 ? ` (and ${plural(wrong.length - 1, "other check")})` : "";
      return {
        ...base,
        level: health.status === "down" ? "bad" : "warn",
        word: health.status === "down" ? "Down" : "Attention",
        reason: worst ? `${worst.name}: ${worst.detail}${more}` : "",
        runbook: worst?.runbook ?? base.runbook,
      };
    }
    const { level, text, runbook } = worst(pipeline.found);
    if (level !== "ok") return { ...base, level, word: "Attention", reason: `${text}.`, runbook };
    return { ...base, level: "ok", word: "Fine", reason: this.pace() };
  }

  pace() {
    const sources = this.page.pipeline.now?.sources ?? [];
    const rates = sources.map((one) => one.rate_per_second).filter((n) => n !== null && n !== undefined);
    const rate = rates.length
      ? `${count(Math.round(rates.reduce((a, b) => a + b, 0)))} records a second, `
      : "";
    const lags = sources.map((one) => one.lag?.seconds).filter((n) => n !== null && n !== undefined);
    const lag = lags.length ? `lag ${span(Math.max(...lags))}, ` : "";
    return sources.length
      ? `${rate}${lag}${rate || lag ? "none unaccounted" : "Every record has a fate"}.`
      : "All checks pass.";
  }

  numbers() {
    const { catalogue, catalogueProblem, panels } = this.page;
    const base = { name: "Numbers", runbook: "stale-metric" };
    if (!catalogue || catalogueProblem || panels.some((panel) => !panel.loaded && !panel.problem))
      return unknown(base, "metrics", catalogueProblem);
    const judged = [...catalogue.keys()].map((name) => ({ name, ...this.page.standing.judge(name) }));
    const stale = judged.filter((one) => one.level === "bad");
    const settled = this.settled();
    if (stale.length) {
      const worst = stale.reduce((a, b) => (a.behind > b.behind ? a : b));
      const more = stale.length > 1 ? `, with ${plural(stale.length - 1, "other")}` : "";
      const reason = `${worst.name} is ${span(worst.behind)} behind${more}. ${settled}`;
      return { ...base, level: "bad", word: "Stale", reason };
    }
    if (judged.every((one) => one.behind === null))
      return unsure(base, "Nothing yet", "No metric has a window.");
    return { ...base, level: "ok", word: "Fresh", reason: settled };
  }

  /** Which numbers are not final yet, said by the first panel that has final windows. */
  settled() {
    const panel = this.page.panels.find((one) => one.series.finalTo() !== null);
    if (!panel) return "No window is final yet.";
    const seconds = panel.shown.window.size_seconds % 60 !== 0;
    const until = clockTime(panel.series.finalTo(), seconds);
    return `${panel.shown.title} is final to ${until}; later windows may still change.`;
  }
}

function unsure(base, word, reason, runbook = null) {
  return { ...base, level: "none", word, reason, runbook };
}

/** There is no answer yet, or the last one was none. */
function unknown(base, what, problem) {
  if (!problem) return unsure(base, "Loading", `Asking for ${what}.`);
  return unsure(base, "Unknown", `No news of ${what}: ${problem.message}.`, "restart-storms");
}

function mark(level) {
  const path = svg("path", { d: MARKS[level] });
  return svg("svg", { class: "mark", viewBox: "0 0 24 24", "aria-hidden": "true" }, path);
}
