// The pipeline: what it is right now, which source is looked at, and how its panels stand.

import { redraw } from "./frame.js";
import { Flow } from "./flow.js";
import { Flows } from "./flows.js";
import { findings } from "./judge.js";
import { Partitions } from "./partitions.js";
import { Sources } from "./sources.js";
import { Timings } from "./timings.js";

const OLD_SECONDS = 30;
const ALL = "";

export class Pipeline {
  constructor(page) {
    this.page = page;
    this.now = null;
    this.found = [];
    this.chosen = ALL;
    this.flow = new Flow();
    this.timings = new Timings();
    this.sources = new Sources((name) => this.choose(name));
    this.partitions = new Partitions();
    this.flows = new Flows();
    this.parts = Object.entries({
      flow: this.flow,
      timings: this.timings,
      sources: this.sources,
      partitions: this.partitions,
      flows: this.flows,
    });
    this.roots = this.parts.map(([, part]) => part.panel.root);
  }

  choose(name) {
    this.chosen = this.chosen === name ? ALL : name;
    redraw(this);
  }

  take(now) {
    this.now = now;
    this.found = findings(now);
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

  /** What is wrong, as the panel of that name says it. */
  about(name) {
    return this.found.filter((one) => one.panels.includes(name));
  }

  draw() {
    if (!this.now) {
      if (!this.problem) return;
      for (const [, part] of this.parts) part.panel.failed(this.problem, () => this.page.loadPipeline());
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
    this.found = findings(this.now);
    const { problem } = this;
    const at = Date.parse(this.now.at);
    for (const [name, part] of this.parts)
      part.panel.stand({ at, problem, found: this.about(name), old: OLD_SECONDS });
  }
}
