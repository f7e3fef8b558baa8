// What happened on the node, the newest first.

import { byId, el, fill, keepingFocus, name, say } from "./dom.js";
import { clock, day, storyOf, withoutName } from "./words.js";

export const BAD = new Set(["refused", "passed", "failed", "lost", "drift", "unknown", "unhealthy", "quota"]);
const drawn = new WeakMap();

export function start(redraw) {
  byId("only-bad").addEventListener("change", redraw);
}

export function draw(events, history) {
  const only = byId("only-bad").checked;
  const shown = events.filter((event) => !only || BAD.has(event.kind)).reverse();
  const note = byId("events-note");
  note.hidden = !history?.problem && shown.length > 0;
  say(note, history?.problem ? `The history cannot be read now: ${history.problem}` : only && events.length ? "No event is a problem." : "Nothing has happened yet.");
  const list = byId("events");
  keepingFocus(list, () => list.replaceChildren(...shown.map(itemOf)));
}

function itemOf(event) {
  let item = drawn.get(event);
  if (!item) {
    item = line(event);
    drawn.set(event, item);
  }
  return item;
}

function line(event) {
  const link = event.container && el("a", { href: storyOf(event.container) }, name(event.container));
  return el("li", { class: BAD.has(event.kind) && "bad-event" },
    el("time", { datetime: event.time, title: `${day(event.time)} ${clock(event.time)} UTC` }, clock(event.time)),
    el("span", { class: "kind" }, event.kind),
    el("span", { class: "said" }, link, " ", sentences(event)));
}

/** The sentences without the name with which the first one begins. */
export function sentences(event) {
  return withoutName(event.sentences.join("; "), event.container);
}

/** The history of one container, the newest first. */
export function listOf(events) {
  const items = [...events].reverse().map((event) => el("li", { class: BAD.has(event.kind) && "bad-event" },
    el("time", { datetime: event.time, title: event.time }, `${day(event.time)} ${clock(event.time)}`),
    el("span", { class: "kind" }, event.kind), el("span", { class: "said" }, event.sentences.join("; "))));
  const list = el("ol", { class: "events" });
  fill(list, items);
  return list;
}
