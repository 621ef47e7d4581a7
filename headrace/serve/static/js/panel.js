// The frame that every panel has: a title, a body with its states, and a line that says how fresh it is.

import { el, patch, runbookLink, setChildren, setText } from "./dom.js";
import { age } from "./format.js";
import { serverNow } from "./frame.js";
import { worst } from "./judge.js";

export const MARKS = { ok: "✓", warn: "!", bad: "✕", none: "·" };
const WORDS = { ok: "well", warn: "attention", bad: "trouble", none: "" };
const OLD_SECONDS = 60;
const NO_ANSWER = "restart-storms"; // the runbook for a part that does not answer
let panels = 0;

export class Panel {
  constructor({ title, detail = "", span = 12, note = "", id = null, tall = false }) {
    const name = `panel-${(panels += 1)}`;
    this.title = el("h3", { id: name }, title);
    this.detail = el("span", { class: "detail" }, detail);
    this.tools = el("div", { class: "panel-tools" });
    this.body = el("div", { class: "body" });
    this.message = el("div", { class: "message" });
    this.fresh = el("p", { class: "freshness" });
    this.note = el("p", { class: "note" }, note);
    this.root = el(
      "article",
      {
        class: `panel span-${span}${tall ? " tall" : ""}`,
        id,
        "aria-labelledby": name,
        "data-view": "loading",
      },
      el("header", {}, this.title, this.detail, this.tools),
      this.body,
      this.message,
      el("footer", {}, this.note, this.fresh),
    );
    this.freshKey = "";
    this.loading();
  }

  ready() {
    if (this.root.dataset.view === "ready") return;
    this.root.dataset.view = "ready";
    this.root.removeAttribute("aria-busy");
    setChildren(this.message);
  }

  loading() {
    this.show(
      "loading",
      el("div", { class: "skeleton", "aria-hidden": "true" }),
      el("p", { class: "hidden" }, "Loading"),
      el("p", { class: "slow" }, "The server is slow to answer."),
    );
    this.root.setAttribute("aria-busy", "true");
  }

  empty(text, hint = "") {
    this.show("empty", el("p", { class: "headline" }, text), hint ? el("p", {}, hint) : null);
  }

  /** There is nothing to show yet. The page asks again by itself; who does not want to wait presses a button. */
  failed(problem, again) {
    if (problem.status === 403) {
      this.show("error", el("p", { class: "headline" }, "Not visible to you"), el("p", {}, problem.message));
      return;
    }
    const offline = problem.status === 0;
    this.show(
      offline ? "disconnected" : "error",
      el("p", { class: "headline" }, offline ? "No connection" : "Could not load this"),
      el("p", {}, offline ? "Shown as soon as the server answers." : sentence(problem.message)),
      el("button", { type: "button", "data-key": "again", on: { click: again } }, "Try again"),
    );
    this.freshness("nothing to show yet", offline ? "none" : "warn", NO_ANSWER);
  }

  show(view, ...content) {
    this.root.dataset.view = view;
    this.root.removeAttribute("aria-busy");
    patch(this.message, ...content);
  }

  /** The gravest finding, whether the last answer failed, and from when all of it is. */
  stand({ at, found = [], problem = null, old = OLD_SECONDS }) {
    const ms = serverNow() - at;
    const silent = problem ? `not refreshed: ${problem.message}` : ms > old * 1000 ? "not refreshed" : "";
    const first = worst(found.length || !silent ? found : [{ level: "warn", text: "", runbook: NO_ANSWER }]);
    const text = [first.text, silent, `as of ${age(ms)}`].filter(Boolean).join(" · ");
    this.freshness(text, first.level, first.runbook);
  }

  /** `level` is ok, warn, bad or none; a red panel says what to do. */
  freshness(text, level = "none", runbook = null) {
    this.root.dataset.level = level;
    const key = `${level}|${runbook}`;
    if (key !== this.freshKey) {
      this.freshKey = key;
      this.freshText = el("span", {});
      setChildren(
        this.fresh,
        el("span", { class: `badge ${level}`, "aria-hidden": "true" }, MARKS[level]),
        WORDS[level] ? el("span", { class: "hidden" }, `${WORDS[level]}: `) : null,
        this.freshText,
        level === "ok" || level === "none" ? null : runbookLink(runbook),
      );
    }
    setText(this.freshText, text);
  }

  /** A button that opens the numbers as a table; `make` is called with every drawing while it is open. */
  withTable(make) {
    const wrap = el("div", {
      class: "table-wrap",
      id: `${this.title.id}-table`,
      role: "region",
      tabindex: 0,
      "aria-labelledby": this.title.id,
      hidden: true,
    });
    const button = el(
      "button",
      {
        class: "quiet",
        type: "button",
        "aria-expanded": "false",
        "aria-controls": wrap.id,
        on: {
          click: () => {
            wrap.hidden = !wrap.hidden;
            button.setAttribute("aria-expanded", String(!wrap.hidden));
            this.drawTable();
          },
        },
      },
      "Table",
    );
    button.setAttribute("aria-label", `Table: ${this.title.textContent}`);
    this.tools.append(button);
    this.root.insertBefore(wrap, this.root.lastElementChild);
    this.drawTable = () => {
      if (!wrap.hidden) patch(wrap, make());
    };
  }
}

/** What a server says, as a sentence. */
function sentence(text) {
  const said = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(said) ? said : `${said}.`;
}

const LOOKS = ["number", "minor", "wide"];
const look = (head) => LOOKS.filter((name) => head[name]).join(" ") || null;

/** A head is a text, or has text and number (set right), minor (left out on a phone), wide (a line there). */
export function table(heads, rows, { caption = "", kind = "" } = {}) {
  const cell = (content, n, tag) => {
    const attributes = { "data-label": heads[n].text ?? heads[n], class: look(heads[n]) };
    if (tag === "th") attributes.scope = "row";
    return el(tag, { ...attributes, role: tag === "th" ? "rowheader" : "cell" }, content);
  };
  return el(
    "table",
    { class: kind, role: "table" },
    caption ? el("caption", { class: "hidden" }, caption) : null,
    el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        heads.map((head) =>
          el("th", { scope: "col", role: "columnheader", class: look(head) }, head.text ?? head),
        ),
      ),
    ),
    el(
      "tbody",
      { role: "rowgroup" },
      rows.map((row) =>
        el(
          "tr",
          { role: "row", class: row.kind ?? null },
          (row.cells ?? row).map((content, n) => cell(content, n, n === 0 ? "th" : "td")),
        ),
      ),
    ),
  );
}

export function bar(part, whole, kind = "") {
  const width = whole > 0 ? Math.min(100, Math.max(part > 0 ? 1 : 0, (100 * part) / whole)) : 0;
  return el(
    "span",
    { class: `bar ${kind}`, "aria-hidden": "true" },
    el("span", { styles: { width: `${width}%` } }),
  );
}

/** A list of bars: each has an item, a size, and the size as text. */
export function ranked(entries, { kind = "", code = false } = {}) {
  const most = Math.max(0, ...entries.map((entry) => entry.size));
  const items = entries.map(({ item, size, text, kind: own }) =>
    el(
      "li",
      {},
      el("span", { class: code ? "item code" : "item" }, item),
      bar(size, most, own ?? kind),
      el("span", { class: "value" }, text),
    ),
  );
  return el("ol", { class: "ranked" }, items);
}

/** What is wider than its panel scrolls by itself, also with the keyboard. */
export function scrolling(label, content) {
  const attributes = { class: "table-wrap", role: "region", tabindex: 0, "data-key": label };
  return el("div", { ...attributes, "aria-label": label }, content);
}

/** A text with the mark of its level. */
export function judged(text, level, ...more) {
  if (level === "none") return el("span", {}, text, ...more);
  const mark = el("span", { class: `badge ${level}`, "aria-hidden": "true" }, MARKS[level]);
  return el("span", { class: `judged ${level}` }, mark, text, ...more);
}
