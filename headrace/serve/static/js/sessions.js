// Sessions: how many run, how long they are, and what they led to. A panel for each declaration.

import { get } from "./api.js";
import { el, patch } from "./dom.js";
import { count, plain, span, toNumber, withUnit } from "./format.js";
import { isLagging } from "./judge.js";
import { shortName } from "./metric-panel.js";
import { Panel, scrolling, table } from "./panel.js";
import { Polled } from "./polled.js";

export class Sessions {
  /** `added` gets the panels when they are known; until then there is one only if it has to say why not. */
  constructor(page, added) {
    this.page = page;
    this.added = added;
    this.shown = null;
    this.unknown = null;
  }

  async load() {
    if (!this.shown) {
      try {
        const { items } = await get("sessions");
        this.shown = items.map((one) => new SessionPanel(one, this.page));
      } catch (problem) {
        this.failed(problem);
        return;
      }
      this.unknown?.root.remove();
      this.added(this.shown.map((panel) => panel.root));
    }
    await Promise.all(this.shown.map((panel) => panel.load()));
  }

  failed(problem) {
    if (!this.unknown) {
      this.unknown = new Panel({ title: "Sessions", span: 12 });
      this.added([this.unknown.root]);
    }
    this.unknown.failed(problem, () => this.load());
  }

  tick() {
    for (const panel of this.shown ?? []) panel.tick();
  }
}

class SessionPanel extends Polled {
  constructor(declared, page) {
    super({
      title: `Sessions: ${declared.name}`,
      detail: `${declared.source}, a gap of ${declared.gap} ends one`,
      span: 12,
      note: "Sessions with an event in the last hour. Those that are open may still be running.",
    });
    this.declared = declared;
    this.page = page;
  }

  async fetch() {
    this.summary = await get(`sessions/${encodeURIComponent(this.declared.name)}/summary`);
  }

  judge() {
    const source = this.page.pipeline.source(this.declared.source);
    if (!source || !isLagging(source)) return [];
    return [{ level: "bad", text: `${span(source.lag.seconds)} behind`, runbook: "stale-metric" }];
  }

  drawBody() {
    const now = this.summary;
    if (!now.sessions && !now.open && !now.final_total) {
      this.panel.empty(
        "No session yet",
        "A session appears with the first event of its key, and is open until the gap has passed.",
      );
      return;
    }
    this.panel.ready();
    patch(this.panel.body, this.numbers(now), now.groups.length > 1 ? this.groups(now) : null);
  }

  numbers(now) {
    const shown = [
      [count(now.open), "open now"],
      [count(now.sessions), "in the last hour"],
      [span(now.median_seconds), "median duration"],
      ...Object.entries(now.shares).map(([name, part]) => [withUnit(part, "percent"), shortName(name)]),
      [count(now.final_total), "final, in all"],
      [count(now.late_total), "events too late"],
    ];
    return el(
      "div",
      { class: "numbers wrapped" },
      shown.map(([number, label]) =>
        el(
          "div",
          { class: "of-several" },
          el("p", { class: "big" }, number),
          el("p", { class: "label" }, label),
        ),
      ),
    );
  }

  groups(now) {
    const shares = Object.keys(now.shares);
    const sums = Object.keys(now.sums);
    const heads = [
      headed(now.by),
      { text: "Open", number: true },
      { text: "Sessions", number: true },
      { text: "Median", number: true },
      ...shares.map((name) => ({ text: headed(name), number: true })),
      ...sums.map((name) => ({ text: headed(name), number: true, minor: true })),
    ];
    const rows = now.groups.map((one) => [
      one.group ?? "none",
      count(one.open_sessions),
      count(one.sessions),
      span(one.median_seconds),
      ...shares.map((name) => withUnit(one.shares[name], "percent")),
      ...sums.map((name) => plain(toNumber(one.sums[name]) ?? 0)),
    ]);
    const caption = `Sessions by ${shortName(now.by)}`;
    return scrolling(caption, table(heads, rows, { caption, kind: "cards" }));
  }
}

/** The name of a column as the head of one. */
function headed(name) {
  const text = shortName(name);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
