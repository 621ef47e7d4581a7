// A metric as a list: that of a top measure, or the largest groups of the newest window.

import { el, patch } from "./dom.js";
import { withUnit } from "./format.js";
import { MetricPanel } from "./metric-panel.js";
import { groupName, Series, valueOf } from "./model.js";
import { ranked } from "./panel.js";

const LONGEST = 10;
const MOST_LISTS = 6;

export class ListPanel extends MetricPanel {
  query() {
    const ranking = this.shown.shape === "ranking";
    return ranking
      ? { grouping: this.shown.grouping.join(","), order: `-${this.shown.values[0]}`, limit: LONGEST }
      : { ...super.query(), limit: 2 * Math.max(1, this.shown.groups?.length ?? 1) };
  }

  get path() {
    return this.shown.shape === "ranking" ? "latest" : "rows";
  }

  /** A ranking is of one window: what was known before is forgotten. */
  take(answer) {
    if (this.shown.shape === "ranking") this.series = new Series(this.shown);
    super.take(answer);
    this.ranking = answer.items;
  }

  drawBody() {
    const lists = this.shown.shape === "ranking" ? [this.ranked()] : this.tops();
    patch(this.panel.body, lists.flat());
  }

  ranked() {
    const [name] = this.shown.values;
    const entries = this.ranking.map((row) => [groupName(row, this.shown.grouping), valueOf(row, name) ?? 0]);
    const [{ window_start: start, window_end: end, state }] = this.ranking;
    return this.list("", { start: Date.parse(start), end: Date.parse(end), state }, entries);
  }

  tops() {
    const [name] = this.shown.values;
    const rows = [...this.series.groups.keys()].map((group) => [
      group,
      this.series.headline(group, Infinity),
    ]);
    const known = rows.filter(([, row]) => row).slice(0, MOST_LISTS);
    return known.map(([group, row]) => {
      const entries = (row.values?.[name] ?? []).slice(0, LONGEST);
      return this.list(
        group,
        row,
        entries.map((entry) => [entry.item, entry.count]),
      );
    });
  }

  list(group, row, entries) {
    const bars = entries.map(([item, n]) => ({ item, size: n, text: withUnit(n, this.bareUnit) }));
    return [
      group ? el("h4", {}, group) : null,
      el("p", { class: "when" }, this.state(row), el("span", {}, this.windowOf(row))),
      ranked(bars),
    ];
  }

  /** A word beside every line says nothing new; a percent sign does. */
  get bareUnit() {
    return this.shown.unit === "percent" ? "percent" : "";
  }
}
