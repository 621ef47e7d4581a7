// A chart of windows as columns. The look of a column says how sure it is; see `looks` for the marks.

import { svg, setChildren } from "./dom.js";
import { clockTime } from "./format.js";

const FOOT = 16; // room for the times
const HEAD = 14; // room for the largest value and the diamonds
let charts = 0;

/** A column of the given look: also the legend draws with it. */
export function column(state, x, top, width, height) {
  const box = {
    x: x.toFixed(2),
    y: top.toFixed(2),
    width: width.toFixed(2),
    height: Math.max(1, height).toFixed(2),
  };
  if (state === "final") return [svg("rect", { class: "col final", ...box })];
  const inner = {
    x: (x + 0.6).toFixed(2),
    y: (top + 0.6).toFixed(2),
    width: Math.max(0.5, width - 1.2).toFixed(2),
    height: Math.max(0.5, height - 1.2).toFixed(2),
  };
  if (state === "open") return [svg("rect", { class: "col open", ...inner })];
  if (state === "preliminary") return [svg("rect", { class: "col preliminary", ...inner })];
  return [
    svg("rect", { class: "col corrected", ...inner }),
    diamond(x + width / 2, top - 5, Math.min(4, width)),
  ];
}

/** Says that a column goes on above the scale. */
function cutMark(x, step, top) {
  const d = `M${x.toFixed(2)} ${top + 8}l${step.toFixed(2)} -4M${x.toFixed(2)} ${top + 12}l${step.toFixed(2)} -4`;
  return svg("path", { class: "cut", d });
}

function diamond(x, y, r) {
  const points = [
    [x, y - r],
    [x + r, y],
    [x, y + r],
    [x - r, y],
  ];
  return svg("path", {
    class: "diamond",
    d: `M${points.map((p) => p.map((n) => n.toFixed(2)).join(" ")).join("L")}Z`,
  });
}

export class Columns {
  /** `say(slot)` is a window in words; `picked(slot)` hears which one is pointed at. */
  constructor({ label, height, say, picked }) {
    this.height = height;
    this.say = say;
    this.picked = picked;
    this.slots = [];
    this.at = null;
    this.width = 0;
    this.id = `chart-${(charts += 1)}`;
    this.root = svg("svg", {
      class: "columns",
      height,
      role: "slider",
      tabindex: 0,
      "data-key": this.id,
      "aria-label": label,
      "aria-orientation": "horizontal",
      "aria-valuemin": 1,
      "aria-valuemax": 1,
      "aria-valuenow": 1,
      on: {
        pointermove: (event) => this.point(event),
        pointerdown: (event) => this.point(event),
        pointerleave: () => this.pick(null),
        focus: () => this.pick(this.lastFilled()),
        blur: () => this.pick(null),
        keydown: (event) => this.key(event),
      },
    });
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.root);
  }

  /** A slot has start, end, state, high, and may have low, marks (values inside the column) and fresh. */
  update(slots, { max, top, middle, size }) {
    Object.assign(this, { slots, max, top, middle, size });
    if (this.at !== null && this.at >= slots.length) this.at = null;
    this.draw();
  }

  draw() {
    if (!this.width || !this.slots.length) return;
    const step = this.width / this.slots.length;
    const floor = this.height - FOOT;
    const room = floor - HEAD;
    const y = (value) => floor - (this.max > 0 ? Math.min(1, Math.max(0, value / this.max)) * room : 0);
    const parts = [];
    if (this.at !== null) {
      parts.push(
        svg("rect", {
          class: "picked",
          x: (this.at * step).toFixed(2),
          y: 0,
          width: step.toFixed(2),
          height: floor,
        }),
      );
    }
    parts.push(svg("line", { class: "floor", x1: 0, x2: this.width, y1: floor + 0.5, y2: floor + 0.5 }));
    if (this.middle !== null && this.max > 0) {
      const line = y(this.middle).toFixed(2);
      parts.push(svg("line", { class: "middle", x1: 0, x2: this.width, y1: line, y2: line }));
    }
    this.slots.forEach((slot, n) => parts.push(...this.one(slot, n * step, step, y, floor)));
    parts.push(svg("text", { class: "axis", x: 0, y: 9 }, this.top));
    const seconds = this.size % 60 !== 0;
    parts.push(
      svg("text", { class: "axis", x: 0, y: this.height - 3 }, clockTime(this.slots[0].start, seconds)),
    );
    const last = this.slots[this.slots.length - 1];
    parts.push(
      svg("text", { class: "axis end", x: this.width, y: this.height - 3 }, clockTime(last.end, seconds)),
    );
    this.root.replaceChildren(...parts);
    this.speak();
  }

  one(slot, x, step, y, floor) {
    if (slot.high === null)
      return [
        svg("rect", { class: "gap", x: (x + step / 2 - 0.5).toFixed(2), y: floor - 2, width: 1, height: 2 }),
      ];
    const inset = Math.min(3, step * 0.14);
    const width = step - 2 * inset;
    const top = y(slot.high);
    const bottom = slot.low === undefined || slot.low === null ? floor : y(slot.low);
    const drawn = column(slot.state, x + inset, top, width, Math.max(2, bottom - top));
    if (slot.fresh) {
      drawn.unshift(
        svg("rect", {
          class: "halo",
          x: (x - 1).toFixed(2),
          y: (top - 11).toFixed(2),
          width: (step + 2).toFixed(2),
          height: (bottom - top + 12).toFixed(2),
          rx: 3,
        }),
      );
    }
    if (slot.high > this.max) drawn.push(cutMark(x, step, top));
    for (const mark of slot.marks ?? []) {
      drawn.push(
        svg("line", {
          class: `tick ${slot.state}`,
          x1: x + inset,
          x2: x + step - inset,
          y1: y(mark),
          y2: y(mark),
        }),
      );
    }
    return drawn;
  }

  lastFilled() {
    for (let n = this.slots.length - 1; n >= 0; n -= 1) if (this.slots[n].high !== null) return n;
    return this.slots.length ? this.slots.length - 1 : null;
  }

  point(event) {
    const box = this.root.getBoundingClientRect();
    const n = Math.floor(((event.clientX - box.left) / box.width) * this.slots.length);
    this.pick(Math.min(this.slots.length - 1, Math.max(0, n)));
  }

  key(event) {
    const last = this.slots.length - 1;
    const from = this.at ?? last;
    const to = {
      ArrowLeft: from - 1,
      ArrowDown: from - 1,
      ArrowRight: from + 1,
      ArrowUp: from + 1,
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === "Escape") this.pick(null);
    if (to === undefined) return;
    event.preventDefault();
    this.pick(Math.min(last, Math.max(0, to)));
  }

  pick(n) {
    if (n === this.at) return;
    this.at = n;
    this.draw();
    this.picked(n === null ? null : this.slots[n]);
  }

  speak() {
    const n = this.at ?? this.lastFilled() ?? 0;
    this.root.setAttribute("aria-valuemax", this.slots.length);
    this.root.setAttribute("aria-valuenow", n + 1);
    this.root.setAttribute("aria-valuetext", this.say(this.slots[n]));
  }
}

/** The hatching of corrected columns: once in the page, for all charts. */
export function hatching() {
  return svg(
    "svg",
    { class: "defs", width: 0, height: 0, "aria-hidden": "true" },
    svg(
      "defs",
      {},
      svg(
        "pattern",
        { id: "hatch", width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { class: "hatch-ground", width: 4, height: 4 }),
        svg("rect", { class: "hatch-line", width: 1.8, height: 4 }),
      ),
    ),
  );
}

export function legendMark(state) {
  const mark = svg("svg", {
    class: "columns mark",
    width: 14,
    height: 18,
    viewBox: "0 0 14 18",
    "aria-hidden": "true",
  });
  setChildren(mark, column(state, 3, state === "corrected" ? 9 : 4, 8, state === "corrected" ? 8 : 13));
  return mark;
}
