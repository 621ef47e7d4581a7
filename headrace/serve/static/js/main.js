// The page: asks the API once, then follows the stream of changes.

import { Alerts } from "./alerts.js";
import { get } from "./api.js";
import { legend, makePanel } from "./business.js";
import { hatching } from "./columns.js";
import { Connection } from "./connection.js";
import { Declared } from "./declared.js";
import { setChildren, setText } from "./dom.js";
import { clockTime } from "./format.js";
import { everySecond, poll, redraw, serverNow, setServerTime, spaced } from "./frame.js";
import { Enrichment } from "./enrichment.js";
import { Freshness } from "./freshness.js";
import { worst } from "./judge.js";
import { Live } from "./live.js";
import { Pipeline } from "./pipeline.js";
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
    this.connection = new Connection();
    this.declared = new Declared((problem) => this.noPanels(problem));
    this.catalogue = null;
    this.standing = new Standing(this);
    this.alerts = new Alerts();
    this.reloadAlerts = spaced(2, () => this.alerts.load());
    this.pipeline = new Pipeline(this);
    this.enrichment = new Enrichment(this);
    this.sessions = new Sessions(this, (roots) => this.alerts.root.after(...roots));
    this.letters = new DeadLetters(this);
    this.late = new LateEvents(this);
    this.freshness = new Freshness(this);
    this.verdict = new Verdict(byId("verdict"), byId("spoken"), this);
    this.lay();
  }

  lay() {
    document.body.append(hatching());
    setChildren(byId("legend"), legend());
    setChildren(byId("business-panels"), this.declared.roots, this.alerts.root);
    setChildren(byId("pipeline-panels"), this.pipeline.roots, this.enrichment.root);
    setChildren(byId("trouble-panels"), this.letters.root, this.late.root, this.freshness.root);
    this.verdict.draw();
  }

  async start() {
    const first = await this.declared.ask();
    this.startPolls();
    const { app, items } = first ?? (await this.declared.atLast());
    this.layPanels(app, items);
    this.follow();
  }

  startPolls() {
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

  noPanels(problem) {
    if (problem.status === 0) this.lost(problem.message);
    redraw(this.verdict);
  }

  layPanels(app, items) {
    setText(byId("app-name"), app);
    document.title = `${app} · Headrace`;
    const firstGroups = items.findIndex((one) => one.shape === "groups");
    this.panels = items.map((shown, n) => makePanel(shown, this, n === firstGroups));
    this.declared.lay(this.panels.map((panel) => panel.root));
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

  /** What is not pushed, or may have been missed. */
  refresh() {
    const parts = [this.alerts, this.letters, this.late, this.sessions, this.enrichment];
    for (const part of parts) part.load();
    this.loadPipeline();
    this.loadHealth();
    this.loadCatalogue();
  }

  found() {
    const again = this.connection.isLost;
    this.connection.found();
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
    this.connection.lost(reason);
    redraw(this.verdict);
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
    const before = worst(this.pipeline.found).level;
    this.pipeline.take(now);
    if (worst(this.pipeline.found).level !== before) this.loadHealth(); // which is asked for now and then
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
