// How a metric stands: how far it is complete, how far behind, and whether that is too far.

import { age, span } from "./format.js";
import { serverNow } from "./frame.js";

export class Standing {
  constructor(page) {
    this.page = page;
  }

  /** The time up to which the metric's source is complete. */
  watermarkOf(name) {
    const metric = this.page.catalogue?.get(name);
    const at = Date.parse(this.sourceOf(name)?.watermark ?? metric?.watermark ?? "");
    return Number.isFinite(at) ? at : null;
  }

  judge(name) {
    const target = this.page.catalogue?.get(name)?.slo_seconds ?? null;
    const limit = this.sourceOf(name)?.limits.freshness_seconds ?? target;
    const behind = this.behind(name);
    if (behind === null) return { behind, level: "none", word: "nothing yet", target };
    if (limit !== null && behind > limit) return { behind, level: "bad", word: "stale", target };
    return { behind, level: "ok", word: target === null ? "no target" : "on time", target };
  }

  /** As the line at the bottom of a panel says it. */
  inWords(name, updatedAt) {
    const { behind, level, target } = this.judge(name);
    if (behind === null && !updatedAt) return { text: "no data yet", level: "none" };
    const parts = [];
    if (behind !== null) parts.push(`${span(behind)} behind${target ? ` (target ${span(target)})` : ""}`);
    if (updatedAt) parts.push(`changed ${age(serverNow() - Date.parse(updatedAt))}`);
    return { text: parts.join(" · "), level };
  }

  /** The age of the oldest unread record, where the server knows it; a quiet stream is not behind. */
  behind(name) {
    const watermark = this.watermarkOf(name);
    if (watermark === null) return null;
    return this.sourceOf(name)?.freshness_seconds ?? Math.max(0, (serverNow() - watermark) / 1000);
  }

  sourceOf(name) {
    const { catalogue, panels, pipeline } = this.page;
    const shown = panels.find((panel) => panel.shown.metric === name)?.shown;
    return pipeline.source(catalogue?.get(name)?.source ?? shown?.source);
  }
}
