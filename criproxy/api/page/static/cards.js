// The cards of the machine, who has them, and how much of them is used.

import { byId, el, fill, keepingFocus, name, say } from "./dom.js";
import { counted, mib, storyOf, titleOf } from "./words.js";

/** Containers and their cards, by name: the answers name containers, and instances of one name follow each other. */
export function devicesByLife(devices, rows) {
  const byTitle = new Map();
  for (const [life, row] of rows) if (row.state !== "exited") byTitle.set(row.id || titleOf(row), life);
  const found = new Map();
  for (const kind of devices?.classes ?? []) {
    for (const card of kind.cards) {
      for (const holder of card.containers ?? []) {
        const life = byTitle.get(holder.id) ?? byTitle.get(titleOf(holder));
        if (life !== undefined) found.set(life, [...(found.get(life) ?? []), `${kind.name} ${card.index}`]);
      }
    }
  }
  return found;
}

export function draw(devices, usage) {
  const cards = (devices?.classes ?? []).flatMap((kind) => kind.cards.map((card) => ({ kind: kind.name, card })));
  byId("cards-section").hidden = cards.length === 0;
  if (!cards.length) return;
  const watcher = usage?.watcher?.state ?? "none";
  say(byId("cards-note"), { reporting: "", silent: "the watcher is silent: use is not known", none: "no watcher: use is not known" }[watcher] ?? "");
  keepingFocus(byId("cards"), () => fill(byId("cards"), el("ul", { class: "cards" }, cards.map(({ kind, card }) => item(kind, card, usage)))));
}

function item(kind, card, usage) {
  const use = (usage?.cards ?? []).find((each) => each.class === kind && each.id === card.id);
  const quotas = (usage?.containers ?? []).filter((each) => each.class === kind && each.card === card.id);
  const known = new Set(quotas.map(titleOf));
  const holders = (card.containers ?? []).filter((each) => !known.has(titleOf(each)));
  const health = card.healthy === false ? el("span", { class: "bad" }, card.reason || "unhealthy") : undefined;
  return el("li", {},
    el("div", { class: "top" }, name(`${kind} ${card.index}`, { class: "what" }), name(card.id || card.pci_address || "", { class: "muted clip" }), health,
      el("span", { class: "amount" }, card.numa_node === null ? "" : `NUMA node ${card.numa_node}`)),
    use && meter("Memory", use.memory_mib, use.total_mib, mib),
    use && use.cores_percent !== null && meter("Compute", use.cores_percent, 100, percent),
    el("ul", { class: "holders" }, quotas.map(share), holders.map((each) => el("li", {}, holder(each))),
      card.containers === null && el("li", { class: "muted" }, "it is not known who has it"),
      card.containers?.length === 0 && !quotas.length && el("li", { class: "muted" }, "free")));
}

function share(each) {
  const over = Object.keys(each.over_since ?? {}).length > 0;
  return el("li", { class: over && "over" }, holder(each), over && el("span", { class: "bad" }, "over its quota"),
    meter("Memory", each.memory_mib, each.memory_granted_mib, mib),
    each.cores_granted_percent !== null && meter("Compute", each.cores_percent, each.cores_granted_percent, percent));
}

const holder = (each) => el("a", { href: storyOf(each.id || titleOf(each)) }, name(titleOf(each), { class: "clip" }));
const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);

function meter(title, used, total, shown) {
  if (total === null || total === undefined) return el("div", { class: "meter" }, el("span", {}, title), el("span", { class: "amount" }, shown(used)));
  const part = total ? Math.min(100, (100 * (used ?? 0)) / total) : 0;
  const filled = el("span", { class: "filled", "data-level": used > total ? "full" : part > 90 ? "high" : "ok" });
  filled.style.setProperty("--part", `${part.toFixed(1)}%`);
  return el("div", { class: "meter" }, el("span", {}, title), el("span", { class: "track", "aria-hidden": "true" }, filled), el("span", { class: "amount" }, `${shown(used)} of ${shown(total)}`));
}

export const cardCount = (devices) => counted((devices?.classes ?? []).reduce((sum, kind) => sum + kind.cards.length, 0), "card");
