// The pipeline: what it is right now, which source is looked at, and how its panels stand.

import { age } from "./format.js";
import { redraw, serverNow } from "./frame.js";
import { Flow } from "./flow.js";
import { Flows, hasRun } from "./flows.js";
import { Partitions } from "./partitions.js";
import { isLagging, Sources } from "./sources.js";
import { Timings } from "./timings.js";

const OLD_MS = 30_000;
const ALL = "";

export class Pipeline {
  constructor(page) {
    this.page = page;
    this.now = null;
    this.chosen = ALL;
    this.flow = new Flow();
    this.timings = new Timings();
    this.sources = new Sources((name) => this.choose(name));
    this.partitions = new Partitions();
    this.flows = new Flows();
    const parts = [this.flow, this.timings, this.sources, this.partitions, this.flows];
    this.panels = parts.map((part) => part.panel);
    this.roots = this.panels.map((panel) => panel.root);
  }

  choose(name) {
    this.chosen = this.chosen === name ? ALL : name;
    redraw(this);
  }

  take(now) {
    this.now = now;
    this.problem = null;
    this.sources.remember(now.sources);
    redraw(this);
  }

  failed(problem) {
    this.problem = problem;
    redraw(this);
  }

  source(name) {
    return this.now?.sources.find((one) => one.source === name) ?? null;
  }

  draw() {
    if (!this.now) {
      if (!this.problem) return;
      for (const panel of this.panels) panel.failed(this.problem, () => this.page.loadPipeline());
      return;
    }
    const all = this.now.sources;
    const chosen = all.filter((one) => one.source === this.chosen);
    const shown = chosen.length ? chosen : all;
    this.flow.update(shown, chosen.length ? this.chosen : "all sources");
    this.sources.draw(all, this.chosen);
    this.partitions.draw(shown);
    this.timings.draw(shown);
    this.flows.draw(this.now.flows ?? [], this.now.signals ?? {}, this.now.lanes ?? []);
    this.tick();
  }

  tick() {
    if (!this.now) return;
    const { sources } = this.now;
    const ms = serverNow() - Date.parse(this.now.at);
    const text = `as of ${age(ms)}`;
    const well = ms > OLD_MS ? "warn" : "ok";
    const is = (status) => sources.some((one) => one.status === status);
    const leak = sources.some((one) => one.unaccounted);
    const hot = sources.some((one) => one.partitions?.some((p) => p.hot));
    const unstable = is("stopped") || is("restarting");
    const level = is("stopped") || sources.some(isLagging) ? "bad" : unstable ? "warn" : well;
    this.flow.panel.freshness(text, leak ? "bad" : well, leak ? "unaccounted-records" : "growing-lag");
    this.sources.panel.freshness(text, level, unstable ? "restart-storms" : "growing-lag");
    this.partitions.panel.freshness(text, hot ? "warn" : well, hot ? "hot-partitions" : "growing-lag");
    this.timings.panel.freshness(text, well, "failing-checkpoints");
    const laneDown = (this.now.lanes ?? []).some((lane) => hasRun(lane) && lane.status !== "running");
    this.flows.panel.freshness(text, laneDown ? "bad" : well, laneDown ? "realtime-lane" : "growing-state");
  }
}
