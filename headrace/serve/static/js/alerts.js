// Open alerts, the gravest first. Resolved ones leave the list a minute later, so that the end is seen too.

import { get } from "./api.js";
import { el, runbookLink, patch } from "./dom.js";
import { count, moment, plural, span } from "./format.js";
import { redraw, serverNow } from "./frame.js";
import { MARKS, Panel } from "./panel.js";

const MOST = 200;
const SHOWN = 8; // names
const NAMED = 4; // groups of one name
const LINGER_MS = 60_000;
const GRAVITY = { critical: 0, warning: 1, info: 2 };

const gravity = (alert) => GRAVITY[alert.severity] ?? 1;

/** The groups that it is about: almaty, or nothing for the total. */
export const whereOf = (alert) => Object.values(alert.dimensions ?? {}).join(" · ");

/** Open alerts of the same name together, the gravest first and in each the newest first. */
export function groupsOf(open) {
  const groups = new Map();
  for (const alert of open) {
    const key = `${alert.alert}|${alert.severity}`;
    groups.set(key, [...(groups.get(key) ?? []), alert]);
  }
  return [...groups.values()];
}

/** ok once it is over, bad if it is critical. */
export function levelOf(alert) {
  if (alert.state === "resolved") return "ok";
  return gravity(alert) === 0 ? "bad" : "warn";
}

export class Alerts {
  constructor() {
    this.alerts = new Map();
    this.panel = new Panel({
      title: "Alerts",
      span: 8,
      id: "alerts",
      note: "From the thresholds that the app declares.",
    });
    this.root = this.panel.root;
  }

  async load() {
    try {
      const answer = await get("alerts", { state: "open", limit: 100 });
      this.problem = null;
      const open = new Set(answer.items.map((alert) => alert.id));
      for (const [id, alert] of this.alerts)
        if (alert.state === "open" && !open.has(id)) this.alerts.delete(id);
      for (const alert of answer.items) this.keep(alert);
      this.loadedAt = serverNow();
    } catch (problem) {
      this.problem = problem;
    }
    redraw(this);
  }

  take(alert) {
    this.keep(alert);
    this.loadedAt = serverNow();
    redraw(this);
  }

  keep(alert) {
    const known = this.alerts.get(alert.id);
    if (known && known.updated_at > alert.updated_at) return;
    this.alerts.set(alert.id, { ...alert, seen: serverNow() });
    if (this.alerts.size > MOST) this.alerts.delete(this.alerts.keys().next().value);
  }

  get open() {
    const open = [...this.alerts.values()].filter((alert) => alert.state !== "resolved");
    return open.sort((a, b) => gravity(a) - gravity(b) || (a.opened_at < b.opened_at ? 1 : -1));
  }

  draw() {
    const now = serverNow();
    for (const [id, alert] of this.alerts) {
      if (alert.state === "resolved" && now - alert.seen > LINGER_MS) this.alerts.delete(id);
    }
    const open = this.open;
    const ended = [...this.alerts.values()].filter((alert) => alert.state === "resolved");
    if (!this.loadedAt) {
      if (this.problem) this.panel.failed(this.problem, () => this.load());
      return;
    }
    if (!open.length && !ended.length) {
      this.panel.empty(
        "No open alert",
        "What the app declares with app.alert(...) and app.pattern(...) appears here when it happens.",
      );
    } else {
      this.panel.ready();
      const groups = groupsOf(open);
      const shown = [...groups.slice(0, SHOWN), ...ended.slice(0, 3).map((alert) => [alert])];
      const more = groups.slice(SHOWN).flat().length;
      patch(
        this.panel.body,
        el(
          "ul",
          { class: "alerts" },
          shown.map((alerts) => this.group(alerts, now)),
        ),
        more ? el("p", { class: "quiet-text" }, `and ${plural(more, "more open alert")}`) : null,
      );
    }
    this.tick();
  }

  /** Alerts of one name: the newest in full, the others by their groups. */
  group(alerts, now) {
    const [alert, ...others] = alerts;
    const level = levelOf(alert);
    const word = alert.state === "resolved" ? alert.resolution || "resolved" : alert.severity;
    return el(
      "li",
      { class: level, "data-key": alert.alert },
      el("span", { class: `badge ${level}`, "aria-hidden": "true" }, MARKS[level]),
      el(
        "div",
        {},
        el(
          "p",
          { class: "headline" },
          el("b", {}, alert.alert),
          others.length ? ` ${count(alerts.length)} open` : ` ${whereOf(alert)}`,
          el("span", { class: `word ${level}` }, word),
        ),
        el("p", {}, alert.message ?? ""),
        others.length ? el("p", { class: "quiet-text" }, alsoIn(others)) : null,
        el(
          "p",
          { class: "quiet-text" },
          `${sinceWhen(alerts, now)} · `,
          runbookLink(alert.runbook) ?? runbookLink("incident-alerts"),
        ),
      ),
    );
  }

  tick() {
    if (!this.loadedAt) return;
    const text = plural(this.open.length, "open alert");
    const [worst] = this.open;
    const found = worst ? [{ level: levelOf(worst), text, runbook: "incident-alerts" }] : [];
    this.panel.stand({ at: this.loadedAt, problem: this.problem, found });
  }
}

function alsoIn(others) {
  const named = others.map(whereOf).filter(Boolean).slice(0, NAMED).join(", ");
  const more = others.length > NAMED ? ` and ${count(others.length - NAMED)} more` : "";
  return named ? `also ${named}${more}` : `and ${count(others.length)} more`;
}

function sinceWhen(alerts, now) {
  const newest = Date.parse(alerts[0].opened_at);
  const oldest = Math.min(...alerts.map((alert) => Date.parse(alert.opened_at)));
  const open = span(Math.max(0, Math.round((now - oldest) / 1000)));
  const last = alerts.length > 1 ? `, the newest ${moment(newest, now)}` : "";
  return `since ${moment(oldest, now)} (${open})${last}`;
}
