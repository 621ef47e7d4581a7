// A metric as charts of columns: one for the total, or one for each group.

import { el } from "./dom.js";
import { count, withUnit } from "./format.js";
import { serverNow } from "./frame.js";
import { MetricPanel, shortName } from "./metric-panel.js";
import { median, scaleTop, valueOf } from "./model.js";
import { table } from "./panel.js";
import { FRESH_MS, Tile } from "./tile.js";

export class ChartPanel extends MetricPanel {
  constructor(shown, page, columns, { height, tall }) {
    super(shown, page, columns, tall);
    this.height = height;
    this.tiles = new Map();
    this.holder = el("div", { class: shown.grouping.length ? "tiles" : "tiles one" });
    this.panel.body.append(this.holder);
    this.panel.withTable(() => this.table());
  }

  drawBody() {
    const newest = this.series.newestStart(this.page.standing.watermarkOf(this.shown.metric) ?? serverNow());
    if (!Number.isFinite(newest)) return;
    this.newest = newest;
    const all = [...this.series.groups.keys()].map((group) => [group, this.slots(group, newest)]);
    const highs = (slots) => slots.map((slot) => slot.high);
    const shared = scaleTop(all.flatMap(([, slots]) => highs(slots)));
    for (const [group, slots] of all) {
      const max = nice(this.shown.shared_scale ? shared : scaleTop(highs(slots)));
      const settled = slots.filter((slot) => slot.state === "final").map((slot) => slot.middle);
      this.tile(group).draw(slots, {
        max,
        top: max ? scaleText(max, this.shown.unit) : "",
        middle: median(settled),
        size: this.shown.window.size_seconds,
      });
    }
  }

  slots(group, newest) {
    const now = serverNow();
    return this.series.slots(group, newest).map((slot) => {
      const values = this.shown.values.map((name) => valueOf(slot.row, name)).filter((v) => v !== null);
      const several = values.length > 1;
      return {
        ...slot,
        state: slot.row?.state ?? "",
        high: values.length ? Math.max(...values) : null,
        low: several ? Math.min(...values) : null,
        middle: several ? median(values) : (values[0] ?? null),
        marks: several
          ? values
              .slice()
              .sort((a, b) => a - b)
              .slice(1, -1)
          : [],
        fresh: Boolean(slot.row?.correction && now - slot.row.correction.at < FRESH_MS),
      };
    });
  }

  tile(group) {
    if (!this.tiles.has(group)) {
      const tile = new Tile(this, group);
      this.tiles.set(group, tile);
      this.holder.append(tile.root);
    }
    return this.tiles.get(group);
  }

  tick() {
    super.tick();
    for (const tile of this.tiles.values()) tile.tick();
  }

  table() {
    const heads = [
      "Window",
      ...(this.shown.grouping.length ? ["Group"] : []),
      ...this.shown.values.map((name) => ({ text: shortName(name), number: true })),
      "State",
      { text: "Revision", number: true },
      { text: "Events", number: true },
      { text: "Too late", number: true },
    ];
    const rows = [];
    for (const [group] of this.series.groups) {
      for (const slot of this.series.slots(group, this.newest).slice(-10).reverse()) {
        if (!slot.row) continue;
        rows.push({
          start: slot.start,
          cells: [
            this.windowOf(slot),
            ...(this.shown.grouping.length ? [group] : []),
            ...this.shown.values.map((name) => withUnit(slot.row.values?.[name], this.shown.unit)),
            slot.row.state,
            count(slot.row.revision),
            count(slot.row.events),
            count(slot.row.late_events),
          ],
        });
      }
    }
    rows.sort((a, b) => b.start - a.start);
    return table(heads, rows, { caption: `${this.shown.title}, the newest windows first` });
  }
}

function scaleText(max, unit) {
  if (unit === "percent") return `${Number((max * 100).toPrecision(3))} %`;
  return withUnit(max, unit === "ms" ? unit : "");
}

/** The next round number, so that the scale stays where it is while values wobble. */
function nice(max) {
  if (!max) return 0;
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= max * 1.02) ?? 15 * power;
}
