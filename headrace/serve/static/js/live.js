// The stream of changes, read with fetch: unlike EventSource it can send a token, and every failure is seen.

import { address, headers } from "./api.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
const SILENCE_MS = 40_000; // the server says something every 15 s
const LONGEST_EVENT = 1_000_000;

export class Live {
  /** `on` has open(), closed(reason, status) and event(name, data). */
  constructor(parameters, on) {
    this.parameters = parameters;
    this.on = on;
    this.cursor = "";
    this.stopped = false;
    this.wake = null;
    window.addEventListener("online", () => this.wake?.());
    this.run();
  }

  async run() {
    let pause = FIRST_PAUSE_MS;
    while (!this.stopped) {
      const started = Date.now();
      const { reason, status } = await this.read();
      if (this.stopped) return;
      this.on.closed(reason, status);
      if (Date.now() - started > 5000) pause = FIRST_PAUSE_MS;
      await this.sleep(pause * (0.75 + Math.random() / 2));
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    }
  }

  stop() {
    this.stopped = true;
    this.abort?.abort();
  }

  sleep(ms) {
    return new Promise((done) => {
      const timer = setTimeout(done, ms);
      this.wake = () => {
        clearTimeout(timer);
        done();
      };
    });
  }

  async read() {
    this.abort = new AbortController();
    let watchdog = 0;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => this.abort.abort(), SILENCE_MS);
    };
    try {
      alive();
      const more = this.cursor ? { "Last-Event-ID": this.cursor } : {};
      const answer = await fetch(address("live", this.parameters), {
        headers: headers({ Accept: "text/event-stream", ...more }),
        signal: this.abort.signal,
        cache: "no-store",
      });
      if (!answer.ok || !answer.body) {
        await answer.body?.cancel();
        return { reason: `the server answered ${answer.status}`, status: answer.status };
      }
      this.on.open();
      await this.follow(answer.body, alive);
      return { reason: "the server closed the connection", status: 0 };
    } catch {
      return { reason: "no connection", status: 0 };
    } finally {
      clearTimeout(watchdog);
    }
  }

  async follow(body, alive) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop();
      if (rest.length > LONGEST_EVENT) throw new Error("an event without an end");
      for (const block of blocks) this.take(block);
    }
  }

  take(block) {
    let name = "message";
    const data = [];
    for (const line of block.split(/\r?\n/)) {
      const [, field, text] = /^([a-z]*): ?(.*)$/.exec(line) ?? [];
      if (field === "event") name = text;
      else if (field === "data") data.push(text);
      else if (field === "id") this.cursor = text;
    }
    if (!data.length && name !== "reset") return;
    let value = null;
    try {
      value = data.length ? JSON.parse(data.join("\n")) : null;
    } catch {
      return;
    }
    this.on.event(name, value);
  }
}
