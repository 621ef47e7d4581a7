// Every metric against its target, also those without a panel.

import { patch, runbookLink } from "./dom.js";
import { count, moment, plural, span } from "./format.js";
import { serverNow } from "./frame.js";
import { judged, Panel, scrolling, table } from "./panel.js";

const HEADS = [
  "Metric",
  { text: "Source", minor: true },
  { text: "Behind", number: true },
  { text: "Target", number: true, minor: true },
  "Verdict",
  { text: "Complete to", number: true, minor: true },
  { text: "Last change", number: true, minor: true },
  { text: "Late in 24 h", number: true, minor: true },
];

export class Freshness {
  constructor(page) {
    this.page = page;
    this.panel = new Panel({
      title: "Freshness of every metric",
      span: 12,
      note: "Behind: the age of the oldest record that is not counted yet.",
    });
    this.root = this.panel.root;
  }

  draw() {
    const { catalogue, catalogueProblem } = this.page;
    if (!catalogue) {
      if (catalogueProblem) this.panel.failed(catalogueProblem, () => this.page.loadCatalogue());
      return;
    }
    if (!catalogue.size) {
      this.panel.empty("The app declares no metric", "app.metric(...) declares one.");
      return;
    }
    this.panel.ready();
    const rows = [...catalogue.values()].map((metric) => this.row(metric));
    const caption = "Freshness of every metric";
    patch(this.panel.body, scrolling("Freshness", table(HEADS, rows, { caption, kind: "cards" })));
    this.tick();
  }

  row(metric) {
    const { behind, level, word } = this.page.standing.judge(metric.name);
    const now = serverNow();
    return [
      metric.name,
      metric.source,
      span(behind),
      metric.slo_seconds ? span(metric.slo_seconds) : "none",
      judged(word, level, level === "bad" ? runbookLink("stale-metric") : null),
      moment(this.page.standing.watermarkOf(metric.name), now),
      moment(metric.updated_at, now),
      count(metric.late_events ?? 0),
    ];
  }

  tick() {
    if (!this.page.catalogue) return;
    const stale = [...this.page.catalogue.keys()].filter(
      (name) => this.page.standing.judge(name).level === "bad",
    );
    const text = `${plural(stale.length, "metric")} behind the limit`;
    this.panel.stand({
      at: this.page.catalogueAt,
      problem: this.page.catalogueProblem,
      found: stale.length ? [{ level: "bad", text, runbook: "stale-metric" }] : [],
    });
  }
}
