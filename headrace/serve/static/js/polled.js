// A panel that asks again and again; what it shows stays when an answer fails.

import { redraw, serverNow } from "./frame.js";
import { Panel } from "./panel.js";

export class Polled {
  constructor(options) {
    this.panel = new Panel(options);
    this.root = this.panel.root;
    this.at = null;
  }

  async load() {
    try {
      await this.fetch();
      this.problem = null;
      this.at = serverNow();
    } catch (problem) {
      this.problem = problem;
    }
    redraw(this);
  }

  draw() {
    if (this.at === null) {
      if (this.problem) this.panel.failed(this.problem, () => this.load());
      return;
    }
    this.drawBody();
    this.tick();
  }

  /** What is wrong with what is shown: findings, see judge.js. */
  judge() {
    return [];
  }

  tick() {
    if (this.at !== null) this.panel.stand({ at: this.at, problem: this.problem, found: this.judge() });
  }
}
