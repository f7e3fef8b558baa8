// The memory of each NUMA node, and how much of it containers may use at the most.

import { byId, el, fill } from "./dom.js";
import { cpusOf } from "./cpus.js";
import { bytes, counted } from "./words.js";

const KINDS = { dram: "", hbm: "HBM", pmem: "PMEM or CXL" };

export function draw(machine, promised) {
  const alone = new Map(), wide = [];
  for (const each of promised) {
    const nodes = cpusOf(each.mems);
    if (nodes.length === 1) alone.set(nodes[0], each);
    else wide.push(each);
  }
  const bars = machine.memory.map((node) => bar(node, alone.get(node.numa_node)));
  const more = wide.map((each) => el("li", {}, el("span", { class: "what" }, `NUMA nodes ${each.mems} together`), el("span", { class: "amount" }, amount(each))));
  fill(byId("memory"),
    bars.length ? el("ul", { class: "bars" }, bars) : el("p", { class: "muted" }, "The machine does not tell how much memory it has."),
    more.length ? el("ul", { class: "wide" }, more) : undefined,
    el("p", { class: "note muted" }, "The sum of the memory limits of the containers that may use a NUMA node."));
}

function bar(node, promise) {
  const used = promise?.bytes ?? 0, ratio = node.memory_bytes ? used / node.memory_bytes : 0;
  const title = `NUMA node ${node.numa_node}${KINDS[node.kind] ? ` (${KINDS[node.kind]})` : ""}${node.usable ? "" : ", not for pods"}`;
  const level = ratio > 0.95 ? "full" : ratio > 0.8 ? "high" : "ok";
  const fillBar = el("span", { class: "filled", "data-level": level });
  fillBar.style.setProperty("--part", `${Math.min(100, ratio * 100).toFixed(1)}%`);
  return el("li", {},
    el("span", { class: "what" }, title),
    el("span", { class: "amount" }, `${bytes(used)} of ${bytes(node.memory_bytes)}`, promise && el("span", { class: "muted" }, ` · ${people(promise)}`)),
    el("span", { class: "track", "aria-hidden": "true" }, fillBar));
}

const people = (each) => `${counted(each.containers, "container")}${each.unlimited ? `, ${each.unlimited} without a limit` : ""}`;
const amount = (each) => each.unlimited === each.containers ? el("span", { class: "muted" }, `${counted(each.containers, "container")} without a limit`) : [bytes(each.bytes), el("span", { class: "muted" }, ` · ${people(each)}`)];
