// The flow picture: what was received, and what became of it, as bands whose width is their share.

import { el, patch, svg } from "./dom.js";
import { count, exactly, plural, share } from "./format.js";
import { Panel } from "./panel.js";

export const FATES = [
  { name: "accepted", where: "validated topic, metrics" },
  { name: "rejected", where: "invalid topic, with reasons" },
  { name: "late", where: "late topic" },
  { name: "duplicate", where: "counted" },
];
const THINNEST = 3;
const TALLEST = 120;
const ROW = 36; // room for two lines of text

export class Flow {
  constructor() {
    this.panel = new Panel({
      title: "Flow",
      detail: "received = accepted + rejected + late + duplicate",
      span: 7,
      id: "flow",
      note: "Since the ledger began. Bands are at least 3 pixels wide.",
    });
    this.picture = svg("svg", { class: "flow", height: 176, role: "img", "aria-label": "Flow of records" });
    this.sum = el("p", { class: "sum" });
    this.panel.body.append(this.picture, this.sum);
    this.counts = null;
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.drawPicture();
    }).observe(this.picture);
  }

  update(sources, name) {
    const fields = ["received", "unaccounted", ...FATES.map((fate) => fate.name)];
    this.counts = Object.fromEntries(
      fields.map((f) => [f, sources.reduce((sum, one) => sum + (one[f] ?? 0), 0)]),
    );
    const rates = sources.map((one) => one.rate_per_second).filter((rate) => rate !== null);
    this.rate = rates.length ? `${count(Math.round(rates.reduce((a, b) => a + b, 0)))} a second` : "";
    this.scope = name;
    this.panel.detail.textContent = name;
    if (!this.counts.received) {
      this.panel.empty(
        "Nothing received yet",
        "Send events to the raw topics, for example with: headrace traffic",
      );
      return;
    }
    this.panel.ready();
    this.drawPicture();
    this.drawSum();
  }

  drawSum() {
    const { received, unaccounted, ...fates } = this.counts;
    const balanced = unaccounted === 0;
    const words = FATES.map((fate) => `${count(fates[fate.name])} ${fate.name}`).join(", ");
    this.picture.setAttribute(
      "aria-label",
      `${this.scope}: ${count(received)} received: ${words}; ${count(unaccounted)} unaccounted`,
    );
    patch(
      this.sum,
      el("span", { class: `badge ${balanced ? "ok" : "bad"}`, "aria-hidden": "true" }, balanced ? "✓" : "✕"),
      el(
        "span",
        {},
        el("b", {}, `${count(unaccounted)} unaccounted`),
        balanced
          ? `: ${exactly(received)} = ${FATES.map((fate) => exactly(fates[fate.name])).join(" + ")}`
          : `: ${plural(unaccounted, "record")} without a fate; run headrace audit --recount`,
      ),
    );
  }

  drawPicture() {
    if (!this.counts?.received || !this.width) return;
    const narrow = this.width < 480;
    const labels = FATES.map((fate) => `${count(this.counts[fate.name])} ${fate.name}`);
    const before = [widthOf(count(this.counts.received), 20), widthOf(this.rate, 12)];
    const left = Math.max(narrow ? 84 : 128, ...before.map((width) => width + 14));
    const right = Math.max(narrow ? 0 : 220, ...labels.map((label) => widthOf(label, 14) + 12));
    const end = this.width - right;
    const scale = (n) => (n ? Math.max(THINNEST, (TALLEST * n) / this.counts.received) : 0);
    const parts = [];
    let from = 20;
    let to = 8;
    for (const fate of FATES) {
      const n = this.counts[fate.name];
      const thick = scale(n);
      const room = Math.max(thick, ROW);
      if (n) parts.push(band(left, from, end, to + (room - thick) / 2, thick, fate.name));
      parts.push(...this.label(fate, n, end + 10, to + room / 2));
      from += thick;
      to += room;
    }
    parts.push(svg("rect", { class: "dam", x: left - 5, y: 16, width: 5, height: Math.max(8, from - 12) }));
    parts.push(text("flow-number", 0, 20 + (from - 20) / 2 - 4, count(this.counts.received)));
    parts.push(text("flow-label", 0, 20 + (from - 20) / 2 + 12, "received"));
    parts.push(text("flow-label", 0, 20 + (from - 20) / 2 + 28, this.rate));
    this.picture.setAttribute("height", Math.ceil(Math.max(to, from) + 4));
    this.picture.replaceChildren(...parts);
  }

  label(fate, n, x, y) {
    const wide = this.width > 560 ? ` · ${fate.where}` : "";
    return [
      text("flow-number small", x, y - 2, `${count(n)} ${fate.name}`),
      text("flow-label", x, y + 13, `${share(n, this.counts.received) || "0 %"}${wide}`),
    ];
  }
}

const brush = document.createElement("canvas").getContext("2d");

function widthOf(label, size) {
  brush.font = `650 ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return Math.ceil(brush.measureText(label).width);
}

function band(x1, y1, x2, y2, thick, kind) {
  const bend = (x1 + x2) / 2;
  const upper = `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`;
  const lower = `V${y2 + thick}C${bend} ${y2 + thick} ${bend} ${y1 + thick} ${x1} ${y1 + thick}Z`;
  return svg("path", { class: `band ${kind}`, d: upper + lower });
}

function text(kind, x, y, content) {
  return svg("text", { class: kind, x, y }, content);
}
