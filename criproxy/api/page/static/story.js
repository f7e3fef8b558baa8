// One container's story, or one CPU's, in a panel beside the page. The address has it, so that it can be sent to others.

import { byId, el, fill, keepingFocus, name, printable, say, successor } from "./dom.js";
import { classOf, linkTo } from "./containers.js";
import { cpusOf, isAlive, place } from "./cpus.js";
import { listOf } from "./events.js";
import { CLOSED } from "./node.js";
import { asked, bytes, counted, milli, titleOf } from "./words.js";

let shown = "", back = null, asking = 0, drawnCpu = "", host = { node: null, pin: () => {} };

export function start(parts) {
  host = parts;
  window.addEventListener("hashchange", follow);
  byId("story-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && shown) close(); });
  follow();
}

function wanted() {
  const [kind, text = ""] = location.hash.slice(1).split("=");
  try { return { kind, text: decodeURIComponent(text) }; } catch { return { kind: "", text: "" }; }
}

function follow() {
  const { kind, text } = wanted();
  if (!["container", "cpu"].includes(kind) || !text) { hide(); return; }
  if (!shown) back = document.activeElement;
  shown = location.hash;
  byId("story").hidden = false;
  document.documentElement.classList.add("with-story");
  say(byId("story-title"), kind === "cpu" ? `CPU ${text}` : text);
  drawnCpu = "";
  fill(byId("story-body"), el("p", { class: "muted" }, "Asking…"));
  byId("story-title").focus();
  refresh();
}

function close() {
  history.pushState(null, "", location.pathname + location.search);
  hide();
}

function hide() {
  if (!shown) return;
  shown = "";
  byId("story").hidden = true;
  document.documentElement.classList.remove("with-story");
  host.pin(undefined);
  successor(back)?.focus({ preventScroll: true });
}

/** Asks again: the container that is shown has changed. */
export async function refresh() {
  if (!shown) return;
  const { kind, text } = wanted(), mine = ++asking;
  if (kind === "cpu") { drawCpu(Number(text)); return; }
  let answer, problem = "";
  try {
    const response = await fetch(`api/explain?container=${encodeURIComponent(text)}`);
    answer = response.status === 403 ? { error: CLOSED } : await response.json();
    if (!response.ok) problem = answer.error ?? "criproxy does not answer";
  } catch { problem = "no answer from criproxy"; }
  if (mine !== asking || !shown) return;
  if (problem) fill(byId("story-body"), el("p", { class: "bad" }, problem));
  else keepingFocus(byId("story-body"), () => drawContainer(answer));
}

/** Whether the story is about one of these containers. */
export function concerns(changed, rows) {
  if (!shown) return false;
  const { kind, text } = wanted();
  if (kind === "cpu") return true;
  return [...changed].some((life) => { const row = rows.get(life); return row && (row.id.startsWith(text) || titleOf(row) === text); });
}

function drawContainer(told) {
  const row = told.container;
  say(byId("story-title"), titleOf(row));
  host.pin(row.reservation || row.id);
  const title = byId("story-title");
  title.title = printable(titleOf(row));
  fill(byId("story-body"),
    el("dl", { class: "pairs" }, facts(row)),
    told.should_own && el("p", { class: "bad" }, `It should have ${told.should_own.should_own_cpus} exclusive CPUs and has ${told.should_own.owns_cpus}: ${told.should_own.why}`),
    part("Why it is there", told.why),
    part("Waits for", told.waits_for),
    part("What it asked for", told.asked?.read_as),
    part("What its classes set", told.controls && classes(told.controls)),
    part("Cards", told.devices.map(card)),
    part("Over its quota", told.over_quota.map((each) => `${each.quantity} of ${each.card}: ${each.used} of ${each.allowed} since ${each.since}`)),
    told.choices.map(choice),
    el("h3", {}, "History"), listOf(told.events),
    part("Earlier containers of this name", told.earlier.map((each) => `${each.time} ${each.state}: ${each.text}`)));
}

function facts(row) {
  const pairs = [["State", row.state], ["Id", row.id]];
  if (row.cpus !== undefined) {
    pairs.push(["Class", classOf(row)], ["CPUs", row.placed ? `${row.cpus} (${place(row)})` : "not placed"]);
    if (!row.in_place) pairs.push(["Applied", `${row.applied_cpus || "not known"}${row.error ? `: ${row.error}` : ""}`]);
    pairs.push(["CPU asked", asked(row)], ["Memory limit", bytes(row.memory_limit_bytes)], ["Memory of", row.mems && `NUMA node ${row.mems}`], ["Pool", row.pool]);
  }
  return pairs.filter(([, value]) => value).map(([key, value]) => [el("dt", {}, key), el("dd", {}, name(String(value)))]);
}

function part(title, items) {
  return items?.length ? [el("h3", {}, title), el("ul", { class: "plain" }, items.map((item) => el("li", {}, item)))] : undefined;
}

/** As `criproxy explain` says it. */
function classes(told) {
  const has = (each) => (each.applied === each.desired ? "" : `, but has ${each.applied || "an unknown value"}`);
  const kinds = Object.keys(told.service ?? {}).filter((kind) => kind !== "cgroup");
  return [
    ...Object.entries(told.classes).map(([kind, each]) => ["class ", name(each), ` for ${kind}`]),
    ...told.files.map((each) => `${each.file}: ${each.desired || "as requested"}${has(each)}`),
    ...kinds.map((kind) => `${kind.replaceAll("_", " ")}: by criproxy controls (${told.service_state})`),
    ...told.troubles.map((each) => el("span", { class: "bad" }, each)),
    ...(told.throttling ? throttled(told.throttling) : []),
  ];
}

function throttled(told) {
  const seconds = (value) => (value === null ? "an unknown time" : `${value} s`);
  const { limited, unlimited, pod } = told;
  return [
    `CPU limit: ${told.lifted ? "lifted" : "in force"}; throttled ${seconds(limited.throttled_s)} in ${limited.seconds} s in force, ${seconds(unlimited.throttled_s)} in ${unlimited.seconds} s lifted, since ${told.since.slice(0, 19)}Z`,
    ...(told.bursts ? [`bursts: ${told.bursts} periods, ${told.burst_s} s`] : []),
    ...(pod === null ? ["CPU limit of its pod: unknown"] : pod.quota_us === null ? [] : [`CPU limit of its pod: ${pod.quota_us} of ${pod.period_us} µs, always in force; throttled: ${seconds(pod.throttled_s)}`]),
  ];
}

function card(each) {
  const quota = each.quota && ` · vGPU ${each.quota.profile}: ${each.quota.memory_mib ?? "–"} MiB, ${each.quota.cores_percent ?? "–"} % of compute`;
  return [each.class, ": ", each.cards.join(", ") || "none", quota, el("span", { class: "muted" }, ` · evidence: ${each.evidence}`)];
}

function choice(each) {
  const told = each.candidates, when = each.time ? `when it was ${each.decision}, ${each.time}` : "now";
  return [
    told && [el("h3", {}, `How the ${told.of} compared ${when}`), el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `How the ${told.of} compared` }, candidates(told))],
    each.leavers && [el("h3", {}, "Who would have to leave"), el("p", {}, each.leavers.text), el("ul", { class: "plain" }, each.leavers.containers.map((one) => el("li", {}, name(one))))],
  ];
}

/** The criteria are numbered as `criproxy explain` does it, and those on which all are alike are left out. */
function candidates(told) {
  const rows = told.rows.slice(0, 20);
  const shownAt = told.criteria.map((_, at) => at).filter((at) => new Set(rows.map((row) => row.values[at])).size > 1);
  const numbers = new Map(shownAt.map((at, index) => [told.criteria[at].name, index + 1]));
  return [
    el("ol", { class: "criteria" }, shownAt.map((at) => el("li", {}, told.criteria[at].name, told.criteria[at].unit === "fewer" && el("span", { class: "muted" }, " (lower is better)")))),
    el("table", { class: "small" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, told.of), shownAt.map((_, index) => el("th", { scope: "col" }, String(index + 1))), el("th", { scope: "col" }, "Result"))),
      el("tbody", {}, rows.map((row, index) => el("tr", { class: index === 0 && told.chosen && "chosen" },
        el("th", { scope: "row" }, name(row.name)), shownAt.map((at) => el("td", {}, value(row.values[at], told.criteria[at].unit))), el("td", {}, result(row, index, told, numbers)))))),
  ];
}

function value(each, unit) {
  if (typeof each !== "number") return each === undefined ? "" : each ? "yes" : "no";
  return unit === "more-milli" ? milli(each) : unit === "more-bytes" ? bytes(each) : String(each);
}

function result(row, index, told, numbers) {
  const by = (criterion) => (numbers.has(criterion) ? `criterion ${numbers.get(criterion)}` : criterion);
  if (row.lacks) return `lacks ${row.lacks}`;
  if (row.loses_by) return `lost on ${by(row.loses_by)}`;
  return index === 0 && told.chosen ? `chosen${told.decided_by ? ` by ${by(told.decided_by)}` : ""}` : row.note;
}

function drawCpu(cpu) {
  if (!host.node.parts.status) return; // what is known comes with the first message
  const rows = [...host.node.rows.values()].filter(isAlive);
  const here = (text) => cpusOf(text).includes(cpu);
  const found = rows.filter((row) => here(row.cpus) || here(row.exclusive_cpus) || here(row.applied_cpus));
  const items = found.slice(0, 200).map((row) => el("li", {}, el("a", { href: linkTo(row) }, name(titleOf(row))), el("span", { class: "muted" },
    here(row.exclusive_cpus) ? " · exclusive" : " · shared", row.in_place ? "" : here(row.applied_cpus) ? here(row.cpus) ? "" : ", still here" : ", not here yet")));
  const signature = [cpu, ...items.map((item) => item.textContent)].join("\n");
  if (signature === drawnCpu) return;
  drawnCpu = signature;
  keepingFocus(byId("story-body"), () => fill(byId("story-body"), el("p", {}, found.length ? `${counted(found.length, "container")} may run here.` : "No container may run here."), el("ul", { class: "plain" }, items),
    found.length > 200 && el("p", { class: "muted" }, `and ${found.length - 200} more`)));
}
