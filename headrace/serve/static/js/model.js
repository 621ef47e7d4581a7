// The newest windows of what the panels show. Everything is bounded: the page stays open for weeks.

import { toNumber } from "./format.js";

export const SLOTS = 30;
const FEWEST_SLOTS = 12; // a young metric has wide columns, not a wide gap
const MOST_GROUPS = 24;
const CORRECTION_SHOWN_MS = 60_000;
const FEWEST_TO_CLIP = 8;
const CLIP = 3;

export const groupName = (row, grouping) =>
  grouping.map((name) => row.dimensions?.[name] ?? "(none)").join(" · ");

/** The rows of one grouping of one metric, by group and start of the window. */
export class Series {
  constructor(panel) {
    this.panel = panel;
    this.grouping = panel.grouping;
    this.hop = panel.window.hop_seconds * 1000;
    this.size = panel.window.size_seconds * 1000;
    this.keep = SLOTS + Math.ceil(this.size / this.hop) + 2;
    this.groups = new Map((panel.groups ?? (panel.grouping.length ? [] : [""])).map((g) => [g, new Map()]));
    this.updatedAt = null;
  }

  /** Take a row if it is newer than what is known; a change after its window's end is kept as a correction. */
  merge(row, now) {
    const group = this.grouping.length ? groupName(row, this.grouping) : "";
    const start = Date.parse(row.window_start);
    if (!this.groups.has(group)) {
      if (this.groups.size >= MOST_GROUPS) return;
      this.groups.set(group, new Map());
    }
    const windows = this.groups.get(group);
    const known = windows.get(start);
    if (known && known.updated_at > row.updated_at) return;
    const kept = { ...row, start, end: Date.parse(row.window_end) };
    kept.correction = known?.correction ?? null;
    if (known && known.state !== "open" && row.revision > known.revision) {
      kept.correction = {
        was: known.values,
        wasRevision: known.revision,
        is: row.values,
        revision: row.revision,
        at: now,
      };
    }
    windows.set(start, kept);
    if (windows.size > this.keep) windows.delete(Math.min(...windows.keys()));
    if (!this.updatedAt || row.updated_at > this.updatedAt) this.updatedAt = row.updated_at;
  }

  get isEmpty() {
    return ![...this.groups.values()].some((windows) => windows.size);
  }

  /** The start of the newest window that is drawn; sliding windows that have hardly begun are not. */
  newestStart(reached) {
    let newest = -Infinity;
    for (const windows of this.groups.values()) {
      for (const row of windows.values()) {
        const begun = row.state !== "open" || row.end <= reached + this.hop;
        if (row.start > newest && (begun || this.size === this.hop)) newest = row.start;
      }
    }
    return newest;
  }

  /** How many windows are drawn: as far back as there are rows, within bounds. */
  length(newest) {
    const starts = [...this.groups.values()].flatMap((windows) => [...windows.keys()]);
    const back = Math.round((newest - Math.min(newest, ...starts)) / this.hop) + 1;
    return Math.min(SLOTS, Math.max(FEWEST_SLOTS, back));
  }

  /** The windows of a group that are drawn, oldest first; null where there is no row. */
  slots(group, newest) {
    const windows = this.groups.get(group) ?? new Map();
    const length = this.length(newest);
    return Array.from({ length }, (_, n) => {
      const start = newest - (length - 1 - n) * this.hop;
      return { start, end: start + this.size, row: windows.get(start) ?? null };
    });
  }

  /** The newest published window of a group; an open one if none is, or if it runs all day. */
  headline(group, newest) {
    const rows = [...(this.groups.get(group)?.values() ?? [])].filter((row) => row.start <= newest);
    rows.sort((a, b) => b.start - a.start);
    const published = this.panel.window.kind === "running" ? null : rows.find((row) => row.state !== "open");
    return published ?? rows[0] ?? null;
  }

  correction(group, now) {
    let newest = null;
    for (const row of this.groups.get(group)?.values() ?? []) {
      const change = row.correction;
      if (change && now - change.at < CORRECTION_SHOWN_MS && (!newest || change.at >= newest.correction.at)) {
        newest = row;
      }
    }
    return newest;
  }

  /** Up to where every group is final. */
  finalTo() {
    let final = -Infinity;
    let pending = Infinity;
    for (const windows of this.groups.values()) {
      for (const row of windows.values()) {
        if (row.state === "final") final = Math.max(final, row.end);
        else pending = Math.min(pending, row.end);
      }
    }
    return Number.isFinite(final) ? Math.min(final, pending) : null;
  }
}

export function median(numbers) {
  const sorted = numbers.filter((n) => n !== null).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The top of a scale: the largest value, unless a few tower above all others and would flatten them. */
export function scaleTop(numbers) {
  const sorted = numbers.filter((n) => n !== null).sort((a, b) => a - b);
  const most = Math.max(0, sorted.at(-1) ?? 0);
  const usual = sorted[Math.floor(0.85 * (sorted.length - 1))] ?? 0;
  return sorted.length >= FEWEST_TO_CLIP && usual > 0 ? Math.min(most, CLIP * usual) : most;
}

export const valueOf = (row, name) => (row ? toNumber(row.values?.[name]) : null);

/** A list that forgets its oldest. */
export class Ring {
  constructor(length) {
    this.length = length;
    this.items = [];
  }

  push(item) {
    this.items.push(item);
    if (this.items.length > this.length) this.items.shift();
  }
}
