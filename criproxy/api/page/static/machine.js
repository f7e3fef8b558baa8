// The machine: sockets, NUMA nodes, level 3 caches, cores and their threads.

import { add, byId, el, fill, printable, say } from "./dom.js";
import { cpusOf, hueOf } from "./cpus.js";
import { titleOf } from "./words.js";

const WORDS = {
  exclusive: "exclusive to one container or pod",
  free: "free: shared now, can become exclusive",
  shared: "shared",
  reserved: "shared, reserved",
  isolated: "isolated by the kernel",
  kept: "kept for a pod",
  offline: "offline",
  forbidden: "not for pods",
};
const FEW = 128;
const cells = new Map();
/** CPUs in the order in which they are drawn. */
let order = [];
let drawn = "", few = false;
let told = null;

export function start(open) {
  const map = byId("machine");
  const cpuAt = (event) => event.target.closest?.(".cpu")?.dataset.cpu;
  map.addEventListener("pointerover", (event) => look(cpuAt(event)));
  map.addEventListener("pointerleave", () => look(undefined));
  map.addEventListener("focusin", (event) => { look(cpuAt(event)); stop(Number(cpuAt(event))); });
  map.addEventListener("focusout", () => look(undefined));
  map.addEventListener("click", (event) => { const cpu = cpuAt(event); if (cpu !== undefined) open(cpu, owner(Number(cpu))); });
  map.addEventListener("keydown", move);
}

const owner = (cpu) => { const found = told?.owners.get(cpu) ?? []; return found.length === 1 ? found[0] : undefined; };

/** Lays the CPUs out; only when the machine itself has changed. */
export function layOut(machine) {
  const layout = JSON.stringify(machine.blocks);
  if (layout === drawn) return;
  drawn = layout;
  cells.clear();
  order = [];
  few = machine.blocks.flatMap((block) => block.caches.flat(2)).length <= FEW;
  const sockets = new Map();
  for (const block of machine.blocks) {
    if (!sockets.has(block.package)) sockets.set(block.package, []);
    sockets.get(block.package).push(numaNode(block));
  }
  fill(byId("machine"), [...sockets].map(([id, nodes]) => {
    const title = id === null ? "Other CPUs" : `Socket ${id}`;
    return el("div", { class: "socket", role: "group", "aria-label": title }, el("h3", {}, title), el("div", { class: "nodes" }, nodes));
  }));
  byId("machine").classList.toggle("few", few);
  if (order.length) stop(order[0]);
}

function numaNode(block) {
  const title = block.numa_node === null ? "no NUMA node" : `NUMA node ${block.numa_node}`;
  const wide = block.caches.map(columnsOf), box = el("div", { class: "numa", role: "group", "aria-label": title },
    el("h4", {}, title, el("span", { class: "free", "data-node": block.numa_node ?? "" })),
    el("div", { class: "caches" }, block.caches.map(cache)));
  box.style.setProperty("--most", String(Math.max(...wide)));
  box.style.setProperty("--span", String(wide.reduce((sum, each) => sum + each, 0)));
  return box;
}

/** How many of the cores of a cache lie side by side. */
const columnsOf = (cores) => (cores.length <= 4 ? cores.length : cores.length <= 8 ? (few ? 8 : 4) : cores.length <= 32 ? 8 : 16);

const cache = (cores) => el("div", { class: "cache" }, cores.map((threads) => el("span", { class: "core" }, threads.map(cell))));

function cell(cpu) {
  const button = el("button", { class: "cpu", type: "button", tabindex: "-1", "data-cpu": cpu }, String(cpu));
  cells.set(cpu, button);
  order.push(cpu);
  return button;
}

/** Colours the CPUs by what *ownership* says. */
export function paint(status, rows, ownership) {
  told = { ...ownership, rows };
  for (const [cpu, button] of cells) {
    const kind = ownership.kind.get(cpu) ?? "forbidden", owners = ownership.owners.get(cpu) ?? [];
    const moving = ownership.moving.get(cpu) ?? [], signature = `${kind}|${owners}|${moving}`;
    if (button.dataset.signature === signature) continue;
    button.dataset.signature = signature;
    button.dataset.kind = kind;
    button.dataset.owners = owners.join(" ");
    button.classList.toggle("moving", moving.length > 0);
    if (owners.length) button.style.setProperty("--hue", String(hueOf(owners[0])));
    button.setAttribute("aria-label", printable(describe(cpu)));
  }
  for (const numa of status.numa_nodes) {
    const label = byId("machine").querySelector(`.free[data-node="${Number(numa.id)}"]`);
    if (label) say(label, `${numa.free} free`);
  }
}

function describe(cpu) {
  const kind = told.kind.get(cpu) ?? "forbidden", owners = told.owners.get(cpu) ?? [];
  const names = owners.map((life) => titleOf(told.rows.get(life))).join(", ");
  const who = names ? `exclusive to ${names}` : WORDS[kind];
  const moves = (told.moving.get(cpu) ?? []).map((life) => titleOf(told.rows.get(life)));
  const late = moves.length ? `; not applied yet: ${moves.slice(0, 3).join(", ")}${moves.length > 3 ? ` and ${moves.length - 3} more` : ""}` : "";
  return `CPU ${cpu}: ${who}${late}`;
}

function look(cpu) {
  if (!told) return;
  const line = byId("cpu-line");
  if (cpu === undefined) {
    say(line, "Point at a CPU, or move with the arrow keys, to see who may run there.");
    highlight(undefined);
    return;
  }
  say(line, describe(Number(cpu)));
  highlight(owner(Number(cpu)));
}

let pinned;
/** Marks the CPUs of a container, until another one is pointed at. */
export function pin(life) { pinned = life; highlight(undefined); }

export function highlight(life) {
  const shown = life ?? pinned, row = shown === undefined ? undefined : told?.rows.get(shown);
  const wanted = new Set(row ? cpusOf(row.cpus) : []);
  if (row) for (const cpu of cpusOf(row.exclusive_cpus)) wanted.add(cpu);
  byId("machine").classList.toggle("dimmed", wanted.size > 0);
  for (const [cpu, button] of cells) button.classList.toggle("lit", wanted.has(cpu));
}

function stop(cpu) {
  for (const [each, button] of cells) button.tabIndex = each === cpu ? 0 : -1;
}

function move(event) {
  const from = Number(event.target.dataset?.cpu), at = order.indexOf(from);
  if (at < 0) return;
  const to = { ArrowLeft: () => order[at - 1], ArrowRight: () => order[at + 1], Home: () => order[0], End: () => order.at(-1),
    ArrowUp: () => beside(from, -1), ArrowDown: () => beside(from, 1) }[event.key]?.();
  if (to === undefined) return;
  event.preventDefault();
  cells.get(to).focus();
}

/** The nearest CPU above (-1) or below (1). */
function beside(from, direction) {
  const here = cells.get(from).getBoundingClientRect();
  let best, least = Infinity;
  for (const [cpu, button] of cells) {
    const there = button.getBoundingClientRect(), down = (there.top - here.top) * direction;
    const apart = down + 3 * Math.abs(there.left - here.left);
    if (down > 2 && apart < least) { best = cpu; least = apart; }
  }
  return best;
}

export function legend(kinds, moving) {
  const items = Object.keys(WORDS).filter((kind) => kinds.has(kind)).map((kind) => {
    const swatch = el("span", { class: "cpu swatch", "data-kind": kind, "aria-hidden": "true" });
    return el("li", {}, swatch, kind === "exclusive" ? "exclusive, by container" : WORDS[kind]);
  });
  if (moving) items.push(el("li", {}, el("span", { class: "cpu swatch moving", "data-kind": "shared", "aria-hidden": "true" }), "not applied yet"));
  const list = byId("legend"), signature = `${[...kinds].sort()}${moving}`;
  if (list.dataset.signature === signature) return;
  list.dataset.signature = signature;
  list.replaceChildren();
  add(list, items);
}
