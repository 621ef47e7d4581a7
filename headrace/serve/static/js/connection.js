// Whether the server is there: the mark at the top, and the banner while it is not.

import { setText } from "./dom.js";
import { clockTime } from "./format.js";
import { serverNow } from "./frame.js";

const byId = (id) => document.getElementById(id);

export class Connection {
  constructor() {
    this.state = "connecting"; // then live or lost
    this.wasLive = false;
    this.lostAt = 0;
  }

  get isLost() {
    return this.state === "lost";
  }

  found() {
    this.wasLive = true;
    byId("banner").hidden = true;
    document.body.classList.remove("lost");
    this.show("live", "Live");
  }

  lost(reason) {
    if (!this.isLost) this.lostAt = serverNow();
    document.body.classList.add("lost");
    this.show("lost", "Disconnected");
    const below = this.wasLive ? " The numbers below are from then;" : "";
    const again = `${below ? " the" : " The"} page tries again by itself.`;
    setText(byId("banner"), `Disconnected since ${clockTime(this.lostAt)}: ${reason}.${below}${again}`);
    byId("banner").hidden = false;
  }

  show(state, text) {
    this.state = state;
    byId("connection").dataset.state = state;
    setText(byId("connection-text"), text);
  }
}
