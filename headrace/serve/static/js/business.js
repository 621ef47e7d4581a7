// The panels of the metrics, drawn by their shape. Names and order are the choice of the app.

import { ChartPanel } from "./chart-panel.js";
import { legendMark } from "./columns.js";
import { el } from "./dom.js";
import { ListPanel } from "./list-panel.js";

const STATES = {
  open: "still counting",
  preliminary: "published, may change",
  corrected: "changed after it was published",
  final: "never changes again",
};

export function legend() {
  return Object.entries(STATES).map(([state, text]) =>
    el(
      "li",
      {},
      legendMark(state),
      el("span", {}, el("b", {}, state), el("span", { class: "wide" }, ` ${text}`)),
    ),
  );
}

export function makePanel(shown, page, first) {
  if (shown.shape === "top" || shown.shape === "ranking") return new ListPanel(shown, page, 4);
  const low = window.matchMedia("(max-width: 700px)").matches;
  if (shown.shape === "groups")
    return new ChartPanel(shown, page, 12, { height: first && !low ? 132 : 96, tall: first });
  return new ChartPanel(shown, page, 4, { height: 112, tall: false });
}
