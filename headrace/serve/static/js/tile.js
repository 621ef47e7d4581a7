// One group of a metric: its newest published number, its chart, and what was corrected last.

import { Columns } from "./columns.js";
import { el, patch, setText } from "./dom.js";
import { age, clockTime, withUnit } from "./format.js";
import { serverNow } from "./frame.js";
import { shortName } from "./metric-panel.js";

export const FRESH_MS = 10_000;

export class Tile {
  constructor(owner, group) {
    this.owner = owner;
    this.group = group;
    this.head = el("div", { class: "tile-head" });
    this.correction = el("p", { class: "correction" });
    this.chart = new Columns({
      label: `${owner.shown.title}${group ? `, ${group}` : ""}: windows`,
      height: owner.height,
      say: (slot) => owner.say(slot, group),
      picked: (slot) => setText(owner.panel.note, slot ? owner.say(slot, group) : owner.shown.note),
    });
    this.root = el(
      "div",
      { class: "tile", "data-group": group },
      group ? el("h4", {}, group) : null,
      this.head,
      this.chart.root,
      this.correction,
    );
  }

  draw(slots, scale) {
    const { owner } = this;
    const row = owner.series.headline(this.group, owner.newest);
    const numbers =
      owner.shown.values.length > 1
        ? owner.shown.values.map((name) =>
            el(
              "div",
              { class: "of-several" },
              owner.big(row, name),
              el("p", { class: "label" }, shortName(name)),
            ),
          )
        : [owner.big(row, owner.shown.values[0])];
    patch(
      this.head,
      el("div", { class: "numbers" }, numbers),
      row
        ? el("p", { class: "when" }, owner.state(row), el("span", {}, owner.windowOf(row)))
        : el("p", { class: "when" }, "no events yet"),
    );
    this.chart.update(slots, scale);
    this.tick();
  }

  tick() {
    const { owner } = this;
    const now = serverNow();
    const row = owner.series.correction(this.group, now);
    const [name] = owner.shown.values;
    this.correction.classList.toggle("now", Boolean(row && now - row.correction.at < FRESH_MS));
    if (!row) {
      setText(this.correction, "");
      return;
    }
    const { was, is, revision, at } = row.correction;
    const unit = owner.shown.unit === "percent" ? "percent" : "";
    const [before, after] = [was, is].map((values) => withUnit(values?.[name], unit));
    setText(this.correction, `${clockTime(row.start, false)}: ${before} → ${after}, revision ${revision}`);
    this.correction.title = `${owner.windowOf(row)} was corrected ${age(now - at)}`;
  }
}
