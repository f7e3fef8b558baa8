// Connects the parts of the page: what has changed on the node is drawn, and nothing else.

import * as cards from "./cards.js";
import * as containers from "./containers.js";
import { colour, ownership } from "./cpus.js";
import { byId, say } from "./dom.js";
import * as events from "./events.js";
import * as health from "./health.js";
import * as machine from "./machine.js";
import * as memory from "./memory.js";
import { follow, node, nowMs } from "./node.js";
import * as story from "./story.js";
import { clock, duration, since } from "./words.js";

const LIVE = { connecting: "Connecting", live: "Live", lost: "Not connected" };
const THEMES = { "": "system", light: "light", dark: "dark" };

let longestMs = 0;

/** Draws what has changed, and notes for whoever measures how long that took at the most. */
function draw(names) {
  const begun = performance.now(), root = document.documentElement;
  drawAll(names);
  longestMs = Math.max(longestMs, performance.now() - begun);
  root.dataset.longestDrawMs = longestMs.toFixed(1);
  if (!names.has("whole") || root.dataset.drawn) return;
  requestAnimationFrame(() => setTimeout(() => { performance.mark("criproxy-drawn"); root.dataset.drawn = "yes"; setTimeout(containers.drawRest); }));
}

function drawAll(names) {
  const has = (...wanted) => wanted.some((name) => names.has(name));
  if (has("live")) drawLive();
  const { status, machine: layout } = node.parts;
  if (!status) return;
  if (has("machine", "whole")) { machine.layOut(layout); say(byId("host"), layout.host || "This node"); document.title = `criproxy · ${layout.host}`; }
  if (has("status", "clock")) { health.facts(status, nowMs()); health.draw(status); drawVersion(status); }
  if (has("status", "rows", "machine", "whole")) drawOwners(status);
  if (has("machine", "memory", "whole")) memory.draw(layout, node.parts.memory);
  if (has("devices", "usage", "whole")) cards.draw(node.parts.devices, node.parts.usage);
  if (has("rows", "devices", "whole")) drawContainers();
  if (has("events", "history", "whole")) events.draw(node.events, node.parts.history);
  if (has("clock")) containers.tick();
}

function drawOwners(status) {
  colour(node.rows);
  const found = ownership(status, node.rows);
  machine.paint(status, node.rows, found);
  machine.legend(new Set(found.kind.values()), found.moving.size > 0);
}

function drawContainers() {
  const changed = new Set(node.changed);
  node.changed.clear();
  containers.update(node.rows, cards.devicesByLife(node.parts.devices, node.rows), changed);
  if (story.concerns(changed, node.rows)) story.refresh();
}

function drawLive() {
  byId("live").dataset.state = node.live;
  const old = node.live === "lost" && node.heardMs ? `; last update at ${clock(node.heardMs + node.skewMs)} UTC` : "";
  say(byId("live-text"), node.why ? `${LIVE[node.live]}: ${node.why}${old}` : LIVE[node.live]);
}

let version = "";

/** After an upgrade, the page of the new version is loaded: this one may not understand what it is told. */
function drawVersion(status) {
  if (version && version !== status.version) location.reload();
  version = status.version;
  say(byId("version"), `criproxy ${status.version} · up ${duration(since(status.started, nowMs()))}`);
}

function startTheme() {
  const root = document.documentElement, button = byId("theme");
  const show = () => say(button, `Theme: ${THEMES[root.dataset.theme ?? ""]}`);
  button.addEventListener("click", () => {
    const order = Object.keys(THEMES), next = order[(order.indexOf(root.dataset.theme ?? "") + 1) % order.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    try { localStorage.setItem("criproxy-theme", next); } catch { /* it lasts as long as the page */ }
    show();
  });
  show();
}

startTheme();
containers.start({ point: machine.highlight });
events.start(() => events.draw(node.events, node.parts.history));
machine.start((cpu, life) => {
  const row = life === undefined ? undefined : node.rows.get(life);
  location.hash = row ? containers.linkTo(row) : `#cpu=${cpu}`;
});
story.start({ node, pin: machine.pin });
follow(draw);
