// The table of containers: filtered, sorted, and changed row by row.

import { byId, el, fill, keepingFocus, name, say } from "./dom.js";
import { cpusOf, hueOf, isAlive, place } from "./cpus.js";
import { nowMs } from "./node.js";
import { asked, bytes, counted, duration, since, storyOf, titleOf } from "./words.js";

// Until the page is on the screen; then so many, and all if somebody asks for them.
const AT_ONCE = 40, MOST = 500;
const CLASSES = ["Guaranteed", "Burstable", "BestEffort"];

const COLUMNS = [
  { key: "name", title: "Container", value: (row) => titleOf(row), cell: nameCell },
  { key: "state", title: "State", value: (row) => row.state, cell: stateCell },
  { key: "class", title: "Class", value: (row) => CLASSES.indexOf(classOf(row)), cell: (row) => classOf(row) },
  { key: "cpus", title: "CPUs", value: (row) => [-cpusOf(row.exclusive_cpus).length, cpusOf(row.exclusive_cpus)[0] ?? 1e9], cell: placeCell },
  { key: "asked", title: "CPU asked", value: (row) => -(row.cpu_request_milli?.[0] ?? 0), cell: (row) => asked(row), number: true },
  { key: "memory", title: "Memory", value: (row) => -(row.memory_limit_bytes ?? 0), cell: memoryCell, number: true },
  { key: "devices", title: "Devices", value: (row, more) => -more.devices.length, cell: (_, more) => more.devices.map((each) => name(each, { class: "chip" })) },
  { key: "age", title: "Age", value: (row) => row.since ?? "", cell: (row) => age(row), number: true, class: "age" },
  { key: "why", title: "Why there", value: (row) => row.why ?? "", cell: (row) => el("span", { class: "clip", title: row.why }, row.why ?? "") },
];

const table = { sort: "name", reverse: false, words: [], most: AT_ONCE, rows: new Map(), devices: new Map(), drawn: new Map(), order: "" };

export function start({ point }) {
  fill(byId("table").querySelector("thead tr"), COLUMNS.map(header));
  const search = byId("search");
  search.addEventListener("input", () => { table.words = search.value.toLowerCase().split(/\s+/).filter(Boolean); arrange(); });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea")) return;
    event.preventDefault();
    search.focus();
  });
  byId("more").addEventListener("click", () => { table.most = Infinity; arrange(); });
  const body = byId("table").tBodies[0], lifeAt = (event) => event.target.closest?.("tr")?.dataset.life;
  body.addEventListener("pointerover", (event) => point(lifeAt(event)));
  body.addEventListener("pointerleave", () => point(undefined));
  body.addEventListener("focusin", (event) => point(lifeAt(event)));
  body.addEventListener("focusout", () => point(undefined));
}

function header(column) {
  const button = el("button", { type: "button", class: "sort", onclick: () => sortBy(column.key) }, column.title);
  const sorted = column.key === table.sort ? "ascending" : undefined;
  return el("th", { scope: "col", "data-key": column.key, class: column.number && "number", "aria-sort": sorted }, button);
}

function sortBy(key) {
  table.reverse = key === table.sort && !table.reverse;
  table.sort = key;
  for (const head of byId("table").querySelectorAll("th")) {
    if (head.dataset.key === key) head.setAttribute("aria-sort", table.reverse ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  arrange();
}

/** Takes the containers of the node; *changed* are those whose row is another one. */
export function update(rows, devices, changed) {
  table.rows = rows;
  for (const life of new Set([...devices.keys(), ...table.devices.keys()])) {
    if (String(devices.get(life)) !== String(table.devices.get(life))) changed.add(life);
  }
  table.devices = devices;
  for (const life of table.drawn.keys()) if (!rows.has(life) || changed.has(life)) table.drawn.delete(life);
  arrange();
}

function arrange() {
  const alive = [...table.rows].filter(([, row]) => isAlive(row));
  const column = COLUMNS.find((each) => each.key === table.sort);
  const found = alive.filter(([life, row]) => matches(life, row)).map(([life, row]) => ({ life, row, by: column.value(row, more(life)), title: titleOf(row) }));
  found.sort((a, b) => compare(a.by, b.by) || compare(a.title, b.title));
  if (table.reverse) found.reverse();
  const shown = found.slice(0, table.most);
  const elements = shown.map(({ life, row }) => rowOf(life, row));
  const body = byId("table").tBodies[0];
  if (elements.length !== body.rows.length || elements.some((each, index) => each !== body.rows[index])) keepingFocus(body, () => body.replaceChildren(...elements));
  const none = byId("no-containers");
  none.hidden = elements.length > 0;
  say(none, alive.length ? "No container matches all words of the filter." : "There are no containers on this node.");
  say(byId("containers-count"), table.words.length ? `${found.length} of ${counted(alive.length, "container")}` : counted(alive.length, "container"));
  const rest = byId("more");
  rest.hidden = shown.length === found.length || table.most === AT_ONCE;
  say(rest, `Show all ${found.length}`);
}

/** Draws the rest: the first screen is there. */
export function drawRest() {
  table.most = Math.max(table.most, MOST);
  arrange();
}

const more = (life) => ({ devices: table.devices.get(life) ?? [] });

function compare(a, b) {
  if (Array.isArray(a)) return compare(a[0], b[0]) || compare(a[1], b[1]);
  return a < b ? -1 : a > b ? 1 : 0;
}

function matches(life, row) {
  if (!table.words.length) return true;
  const text = [titleOf(row), row.id, row.state, row.qos, place(row), row.pool, row.why, ...more(life).devices].join(" ").toLowerCase();
  return table.words.every((word) => text.includes(word));
}

function rowOf(life, row) {
  let drawn = table.drawn.get(life);
  if (!drawn) {
    drawn = el("tr", { "data-life": life },
      COLUMNS.map((column) => el(column.key === "name" ? "th" : "td", { scope: column.key === "name" && "row", "data-key": column.key, class: [column.number && "number", column.class].filter(Boolean).join(" ") || undefined }, column.cell(row, more(life)))));
    table.drawn.set(life, drawn);
  }
  return drawn;
}

function nameCell(row) {
  const own = [row.pod, row.container].filter(Boolean).join("/") || row.id;
  const link = el("a", { href: linkTo(row), title: titleOf(row) }, name(own, { class: "clip" }));
  return [link, row.namespace && name(row.namespace, { class: "parent clip" })];
}

export const linkTo = (row) => storyOf(row.id || titleOf(row));

function stateCell(row) {
  const late = row.placed && !row.in_place && "not in place";
  return [el("span", { class: "state", "data-state": row.error ? "failed" : row.state }, row.state), late && el("span", { class: "late", title: row.error || undefined }, late)];
}

export const classOf = (row) => ({ guaranteed: "Guaranteed", burstable: "Burstable", besteffort: "BestEffort" })[String(row.qos).toLowerCase().replace(/[^a-z]/g, "")] ?? row.qos;

function placeCell(row, { devices: _ }) {
  const swatch = el("span", { class: "cpu swatch", "data-kind": row.exclusive_cpus ? "exclusive" : "shared", "aria-hidden": "true" });
  if (row.exclusive_cpus) swatch.style.setProperty("--hue", String(hueOf(row.reservation || row.id)));
  return el("span", { class: "place" }, row.placed && swatch, el("span", { class: "clip", title: row.cpus }, place(row)));
}

function memoryCell(row) {
  return [bytes(row.memory_limit_bytes), row.mems && el("span", { class: "parent" }, `node ${row.mems}`)];
}

function age(row) {
  const seconds = since(row.since, nowMs());
  return Number.isNaN(seconds) ? "–" : duration(seconds);
}

/** Ages grow while nothing else happens. */
export function tick() {
  for (const [life, drawn] of table.drawn) {
    const row = table.rows.get(life), cell = drawn.querySelector(".age");
    if (row && cell) say(cell, age(row));
  }
}
