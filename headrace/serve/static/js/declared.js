// The declared panels: asked for until they are known. Nothing else waits for them, if they cannot be had.

import { get } from "./api.js";
import { Panel } from "./panel.js";
import { askForToken } from "./sign-in.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

export class Declared {
  /** `failed` hears of every answer that is none. */
  constructor(failed) {
    this.failed = failed;
    this.waiting = [12, 4, 4, 4].map((span) => new Panel({ title: "Metrics", span, tall: span === 12 }));
    this.roots = this.waiting.map((panel) => panel.root);
  }

  /** One question, after a token where one is needed; null where there is no answer. */
  async ask() {
    for (;;) {
      try {
        return await get("panels");
      } catch (problem) {
        if (problem.status !== 401) {
          this.one().failed(problem, () => this.now?.());
          this.failed(problem);
          return null;
        }
        await askForToken();
      }
    }
  }

  async atLast() {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      await new Promise((done) => {
        this.now = done;
        setTimeout(done, pause);
      });
      const found = await this.ask();
      if (found) return found;
    }
  }

  /** These take the place of what waited for them. */
  lay(roots) {
    const panel = this.one();
    if (roots.length) panel.root.replaceWith(...roots);
    else panel.empty("The app declares no metric", "app.metric(...) declares one, app.panel(...) shows it.");
  }

  /** The first of those that wait; the others leave. */
  one() {
    const [first, ...others] = this.waiting;
    for (const panel of others) panel.root.remove();
    return first;
  }
}
