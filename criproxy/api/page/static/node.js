// The node as the daemon tells it: the stream of changes, and what is known from it.

const AGAIN_MS = 3000;
const SILENT_MS = 15000;
export const CLOSED = "the token is no longer valid; load the page again";

export const node = {
  parts: {},
  /** By container instance. */
  rows: new Map(),
  /** The oldest first. */
  events: [],
  live: "connecting",
  why: "",
  /** The clock of the node minus ours. */
  skewMs: 0,
  /** When the node was last heard, on our clock. */
  heardMs: 0,
  /** Containers whose row has changed, or is new, since the last drawing. */
  changed: new Set(),
};

const MAX_EVENTS = 200;

export const nowMs = () => Date.now() + node.skewMs;

/** Calls `draw` with the names of the parts that have changed, at most once a frame. */
export function follow(draw) {
  const pending = new Set();
  let waiting = false, openedMs = 0, source = null, timer = 0, displaced = false;

  function later(...names) {
    for (const each of names) pending.add(each);
    if (waiting) return;
    waiting = true;
    // a timer, too: a page in the background gets no frames
    const once = () => { if (!waiting) return; waiting = false; const now = new Set(pending); pending.clear(); draw(now); };
    requestAnimationFrame(once);
    setTimeout(once, 200);
  }

  function state(live, why = "") {
    if (node.live === live && node.why === why) return;
    node.live = live; node.why = why;
    later("live");
  }

  function open() {
    clearTimeout(timer);
    source?.close();
    displaced = false;
    openedMs = Date.now();
    source = new EventSource("api/stream");
    source.addEventListener("node", (event) => { node.heardMs = Date.now(); later(...take(JSON.parse(event.data))); state("live"); });
    // others need the place: not again before somebody looks at this page
    source.addEventListener("displaced", (event) => { displaced = true; source.close(); state("lost", JSON.parse(event.data).why); });
    source.onerror = () => {
      state("lost", source.readyState === EventSource.CLOSED ? "criproxy refuses the stream" : "no answer from criproxy");
      source.close();
      refusal().then((text) => { if (text) state("lost", text); });
      timer = setTimeout(open, AGAIN_MS);
    };
  }

  setInterval(() => {
    if (!displaced && Date.now() - Math.max(openedMs, node.heardMs) > SILENT_MS) { state("lost", "nothing heard from criproxy"); open(); }
    later("clock");
  }, 5000);
  for (const looked of ["focus", "pointerdown", "keydown"]) addEventListener(looked, () => { if (displaced) open(); });
  document.addEventListener("visibilitychange", () => { if (displaced && !document.hidden) open(); });
  open();
}

/** Why the stream is refused, as the daemon says it. */
async function refusal() {
  const stop = new AbortController();
  try {
    const answer = await fetch("page/icon.svg", { cache: "no-store", signal: stop.signal });
    return answer.status === 403 ? CLOSED : "";
  } catch { return ""; } finally { stop.abort(); }
}

/** Takes a message; returns the names of what has changed. */
function take(message) {
  const names = new Set(Object.keys(message.parts));
  if (message.whole) {
    node.rows = new Map(); node.events = []; node.parts = {};
    for (const each of ["rows", "events", "whole"]) names.add(each);
  }
  Object.assign(node.parts, message.parts);
  if (message.parts.status) node.skewMs = Date.parse(message.parts.status.time) - Date.now();
  for (const life of message.gone) { node.rows.delete(life); names.add("rows"); }
  for (const [life, row] of Object.entries(message.rows)) { node.rows.set(life, row); node.changed.add(life); names.add("rows"); }
  if (message.events.length) { node.events = [...node.events, ...message.events].slice(-MAX_EVENTS); names.add("events"); }
  return names;
}
