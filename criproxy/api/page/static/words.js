// Numbers, times and names as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(amount) {
  if (amount === null || amount === undefined) return "–";
  let value = amount, unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${trimmed(value, value < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

export const mib = (amount) => (amount === null || amount === undefined ? "–" : bytes(amount * 1048576));

export const milli = (amount) => trimmed(amount / 1000, 3);

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${s % 3600 >= 60 ? ` ${Math.floor((s % 3600) / 60)} min` : ""}`;
  return `${Math.floor(s / 86400)} d${s % 86400 >= 3600 ? ` ${Math.floor((s % 86400) / 3600)} h` : ""}`;
}

/** Seconds since a time of an answer, on the clock of the node. */
export const since = (time, nowMs) => (time ? (nowMs - Date.parse(time)) / 1000 : NaN);

export function clock(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(11, 19);
}

export const day = (time) => String(time).slice(0, 10);

export const titleOf = (row) => [row.namespace, row.pod, row.container].filter(Boolean).join("/") || row.id;

export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** CPU asked as request/limit; one number where they are equal. */
export function asked(row) {
  const request = row.cpu_request_milli, limit = row.cpu_limit_milli;
  const low = request && request[1] > 2 ? milli(request[0]) : "";
  const high = limit === null || limit === undefined ? "" : milli(limit);
  if (!low && !high) return row.pod_cpu_milli ? `${milli(row.pod_cpu_milli)} by pod` : "–";
  return low === high ? low : `${low || "–"} / ${high || "–"}`;
}

/** The address of a container's story; what is no valid text in a name is replaced. */
export const storyOf = (text) => `#container=${encodeURIComponent(text.toWellFormed?.() ?? text)}`;

/** A sentence about a container whose name stands before it already. */
export function withoutName(text, title) {
  if (!title) return text;
  for (const [beginning, instead] of [[`container ${title} `, "it "], [title, ""]]) {
    if (text.startsWith(beginning)) return `${instead}${text.slice(beginning.length).replace(/^[\s:]+/, "")}`;
  }
  return text;
}
