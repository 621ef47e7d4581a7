// The top line: business, pipeline, numbers. Each has a word and a reason, and a link to where it comes from.

import { groupsOf, levelOf, whereOf } from "./alerts.js";
import { el, patch, runbookLink, setText, svg } from "./dom.js";
import { clockTime, count, plural, span } from "./format.js";
import { worst } from "./judge.js";

const MARKS = {
  ok: "M4 12.5 9.5 18 20 6.5",
  warn: "M12 5v9M12 18v.5",
  bad: "M6 6l12 12M18 6 6 18",
  none: "M7 12h10",
};

const WORDS = { warn: "Attention", bad: "Trouble" };
const APART = ["store", "log", "live"]; // checks that are not about a source

export class Verdict {
  /** `spoken` is a live region: it gets a verdict when it changes, not the numbers in it. */
  constructor(root, spoken, page) {
    this.page = page;
    this.root = root;
    this.spoken = spoken;
    this.last = "";
    this.words = "";
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
    const words = lines.map(({ name, word }) => `${name}: ${word}`).join(". ");
    if (this.words !== words && !words.includes("Loading")) setText(this.spoken, (this.words = words));
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
    const [group = [], ...rest] = groupsOf(alerts.open);
    const [first] = group;
    if (!alerts.loadedAt || (alerts.problem && !first))
      return unknown(base, "alerts", alerts.problem);
    const { panels } = this.page;
    const nothing = panels.length > 0 && panels.every((panel) => panel.loaded && panel.series.isEmpty);
    if (!first && nothing)
      return unsure(base, "Nothing yet", "No open alert, but no number either.");
    if (!first) return { ...base, level: "ok", word: "Fine", reason: "No open alert." };
    const where = group.length > 1 ? ` (${count(group.length)} open)` : whereOf(first) && ` in ${whereOf(first)}`;
    const others = rest.flat().length;
    const more = others ? ` and ${plural(others, "other alert")}` : "";
    const level = levelOf(first);
    return {
      ...base,
      level,
      word: WORDS[level],
      reason: `${first.alert}${where}${more}.`,
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
    const found = worst(pipeline.found);
    const wrong = (health.checks ?? []).filter((check) => check.status !== "ok");
    if (health.status !== "ok") {
      const down = health.status === "down";
      const level = down || found.level === "bad" ? "bad" : "warn";
      return { ...base, level, word: down ? "Down" : WORDS[level], ...this.because(wrong) };
    }
    const { level, text, runbook } = found;
    if (level !== "ok") return { ...base, level, word: WORDS[level], reason: `${text}.`, runbook };
    return { ...base, level: "ok", word: "Fine", reason: this.pace() };
  }

  /** As the panels say it; what these do not know, such as a store that is away, as the check says it. */
  because(wrong) {
    const check = wrong.find((one) => one.status === "down") ?? wrong[0];
    const found = worst(this.page.pipeline.found);
    if (found.level !== "ok" && !APART.includes(check?.name))
      return { reason: `${found.text}.`, runbook: found.runbook };
    const more = wrong.length > 1 ? ` (and ${plural(wrong.length - 1, "other check")})` : "";
    const reason = check ? `${check.name}: ${check.detail}${more}` : "";
    return { reason, runbook: check?.runbook ?? "restart-storms" };
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
