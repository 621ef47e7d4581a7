// The page: asks the API once, then follows the stream of changes.

import { Alerts } from "./alerts.js";
import { get } from "./api.js";
import { legend, makePanel } from "./business.js";
import { hatching } from "./columns.js";
import { setChildren, setText } from "./dom.js";
import { clockTime } from "./format.js";
import { everySecond, poll, redraw, serverNow, setServerTime, spaced } from "./frame.js";
import { Enrichment } from "./enrichment.js";
import { Freshness } from "./freshness.js";
import { Live } from "./live.js";
import { Pipeline } from "./pipeline.js";
import { Panel } from "./panel.js";
import { Sessions } from "./sessions.js";
import { askForToken } from "./sign-in.js";
import { Standing } from "./standing.js";
import { themeButton } from "./theme-button.js";
import { DeadLetters, LateEvents } from "./trouble.js";
import { Verdict } from "./verdict.js";

const byId = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.panels = [];
    this.connected = null;
    this.lostAt = 0;
    this.catalogue = null;
    this.standing = new Standing(this);
    this.alerts = new Alerts();
    this.reloadAlerts = spaced(2, () => this.alerts.load());
    this.pipeline = new Pipeline(this);
    this.enrichment = new Enrichment();
    this.sessions = new Sessions((roots) => this.alerts.root.after(...roots));
    this.letters = new DeadLetters();
    this.late = new LateEvents();
    this.freshness = new Freshness(this);
    this.verdict = new Verdict(byId("verdict"), this);
    this.lay();
  }

  lay() {
    document.body.append(hatching());
    setChildren(byId("legend"), legend());
    this.waiting = [12, 4, 4, 4].map((span) => new Panel({ title: "Loading", span, tall: span === 12 }).root);
    setChildren(byId("business-panels"), this.waiting, this.alerts.root);
    setChildren(byId("pipeline-panels"), this.pipeline.roots, this.enrichment.root);
    setChildren(byId("trouble-panels"), this.letters.root, this.late.root, this.freshness.root);
    this.verdict.draw();
  }

  async start() {
    await this.loadPanels();
    this.follow();
    poll(10, () => this.loadHealth());
    poll(10, () => this.loadCatalogue());
    poll(20, () => this.alerts.load());
    poll(15, () => this.letters.load());
    poll(15, () => this.late.load());
    poll(15, () => this.sessions.load());
    poll(15, () => this.enrichment.load());
    poll(15, () => this.refreshRankings());
    this.loadPipeline();
    this.tick();
    everySecond(() => this.tick());
  }

  /** The panels decide what is followed, so nothing else starts before they are known. */
  async loadPanels() {
    let pause = 500;
    let found = null;
    while (!found) {
      found = await get("panels").catch(async (problem) => {
        if (problem.status === 401) return askForToken();
        this.lost(problem.message);
        await new Promise((done) => setTimeout(done, pause));
        pause = Math.min(pause * 2, 10_000);
        return null;
      });
    }
    this.layPanels(found.app, found.items);
  }

  layPanels(app, items) {
    setText(byId("app-name"), app);
    document.title = `${app} · Headrace`;
    const firstGroups = items.findIndex((one) => one.shape === "groups");
    this.panels = items.map((shown, n) => makePanel(shown, this, n === firstGroups));
    const grid = byId("business-panels");
    if (items.length)
      setChildren(
        grid,
        this.panels.map((panel) => panel.root),
        this.alerts.root,
      );
    else {
      const none = new Panel({ title: "Metrics", span: 4 });
      none.empty("The app declares no metric", "app.metric(...) declares one, app.panel(...) shows it.");
      setChildren(grid, none.root, this.alerts.root);
    }
  }

  follow() {
    const feeds = this.panels.filter((panel) => panel.shown.shape !== "ranking").map((panel) => panel.feed);
    const topics = feeds.length ? "metrics,pipeline,alerts" : "pipeline,alerts";
    this.live = new Live(
      { metrics: [...new Set(feeds)].join(","), topics },
      {
        open: () => this.found(),
        closed: (reason, status) => this.closed(reason, status),
        event: (name, data) => this.event(name, data),
      },
    );
  }

  event(name, data) {
    if (name === "ready") {
      setServerTime(data.at);
      this.loadRows();
    } else if (name === "row") {
      for (const panel of this.panels) if (panel.shown.metric === data.metric) panel.row(data);
      redraw(this.verdict);
    } else if (name === "pipeline") {
      this.takePipeline(data);
    } else if (name === "alert") {
      this.alerts.take(data);
      redraw(this.verdict);
    } else if (name === "skipped") {
      this.skipped(data);
    } else if (name === "reset") {
      this.reload();
    }
  }

  /** Once the stream is open: nothing falls between the rows that are fetched and those that follow. */
  loadRows() {
    for (const panel of this.panels) if (!panel.loaded || panel.problem) panel.load();
  }

  skipped({ metric, grouping, alerts_of: alerts }) {
    if (alerts) this.reloadAlerts();
    for (const panel of this.panels) if (panel.shown.metric === metric) panel.skipped(grouping);
  }

  reload() {
    for (const panel of this.panels) panel.load();
    this.refresh();
  }

  refresh() {
    this.alerts.load();
    this.loadPipeline();
    this.loadHealth();
    this.loadCatalogue();
  }

  found() {
    const again = this.connected === false;
    this.connected = true;
    byId("banner").hidden = true;
    document.body.classList.remove("lost");
    this.connection("live", "Live");
    // Rows are resumed by the cursor; what is polled may be old.
    if (again) this.refresh();
    redraw(this.verdict);
  }

  closed(reason, status) {
    if (status === 401) {
      askForToken();
      return;
    }
    this.lost(reason);
    this.loadRows();
  }

  lost(reason) {
    if (this.connected !== false) this.lostAt = serverNow();
    this.connected = false;
    this.lostBecause = reason;
    document.body.classList.add("lost");
    this.connection("lost", "Disconnected");
    setText(
      byId("banner"),
      `Disconnected since ${clockTime(this.lostAt)}: ${reason}. The numbers below are from then;` +
        " the page tries again by itself.",
    );
    byId("banner").hidden = false;
    redraw(this.verdict);
  }

  connection(state, text) {
    byId("connection").dataset.state = state;
    setText(byId("connection-text"), text);
  }

  async loadHealth() {
    try {
      this.health = await get("health", { probe: false });
      this.healthProblem = null;
      setServerTime(this.health.at);
    } catch (problem) {
      this.healthProblem = problem;
    }
    redraw(this.verdict);
  }

  async loadCatalogue() {
    try {
      const { items } = await get("metrics");
      this.catalogue = new Map(items.map((metric) => [metric.name, metric]));
      this.catalogueProblem = null;
      this.catalogueAt = serverNow();
    } catch (problem) {
      this.catalogueProblem = problem;
    }
    redraw(this.freshness);
    redraw(this.verdict);
  }

  async loadPipeline() {
    try {
      this.takePipeline(await get("pipeline"));
    } catch (problem) {
      this.pipeline.failed(problem);
    }
  }

  takePipeline(now) {
    setServerTime(now.at);
    this.pipeline.take(now);
    redraw(this.freshness);
    redraw(this.verdict);
  }

  async refreshRankings() {
    for (const panel of this.panels) if (panel.shown.shape === "ranking") await panel.load();
  }

  tick() {
    setText(byId("clock"), clockTime(serverNow()));
    for (const panel of this.panels) panel.tick();
    const parts = [this.alerts, this.pipeline, this.letters, this.late, this.freshness];
    for (const part of [...parts, this.sessions, this.enrichment]) part.tick();
    redraw(this.freshness);
    redraw(this.verdict);
  }
}

themeButton(byId("theme"));
new Page().start();
