// CPU lists in kernel notation, and who owns which CPU.

const lists = new Map();

/** The CPUs of a list such as "0-3,8". */
export function cpusOf(text) {
  if (!text) return [];
  let found = lists.get(text);
  if (!found) {
    found = text.split(",").flatMap((part) => {
      const [first, last = first] = part.split("-").map(Number);
      return Array.from({ length: last - first + 1 }, (_, index) => first + index);
    });
    if (lists.size > 5000) lists.clear();
    lists.set(text, found);
  }
  return found;
}

export const isAlive = (row) => row.state !== "exited";

// Later ones cover earlier ones, as in `criproxy top`.
const KINDS = [["isolated", "isolated"], ["reserved", "reserved"], ["offline", "offline"]];

/** Kinds, owners and pending changes of all CPUs. */
export function ownership(status, rows) {
  const kind = new Map(), owners = new Map(), moving = new Map();
  for (const cpu of cpusOf(status.cpus.allowed)) kind.set(cpu, "shared");
  for (const cpu of cpusOf(status.cpus.free)) kind.set(cpu, "free");
  for (const [set, word] of KINDS) for (const cpu of cpusOf(status.cpus[set])) kind.set(cpu, word);
  for (const kept of status.kept) for (const cpu of cpusOf(kept.cpus)) kind.set(cpu, "kept");
  for (const [life, row] of rows) {
    if (!isAlive(row)) continue;
    for (const cpu of cpusOf(row.exclusive_cpus)) { kind.set(cpu, "exclusive"); push(owners, cpu, life); }
    if (row.placed && !row.in_place) for (const cpu of differing(row)) push(moving, cpu, life);
  }
  return { kind, owners, moving };
}

/** CPUs that only one of desired and applied state has; all desired ones where only memory differs. */
function differing(row) {
  const wanted = new Set(cpusOf(row.cpus)), has = new Set(cpusOf(row.applied_cpus));
  const found = [...wanted].filter((cpu) => !has.has(cpu)).concat([...has].filter((cpu) => !wanted.has(cpu)));
  return found.length ? found : wanted;
}

function push(map, key, value) {
  const there = map.get(key);
  if (there) there.push(value);
  else map.set(key, [value]);
}

const hues = new Map();
let nextHue = 0;

/** The hue of a container: neighbours differ most, and it stays the same while the page is open. */
export function hueOf(life) {
  if (!hues.has(life)) hues.set(life, Math.round((250 + 137.508 * nextHue++) % 360));
  return hues.get(life);
}

/** Gives hues in the order of CPUs, so that the colours of containers side by side differ. */
export function colour(rows) {
  const owning = [...rows].filter(([life, row]) => row.exclusive_cpus && isAlive(row) && !hues.has(life));
  owning.sort(([, a], [, b]) => cpusOf(a.exclusive_cpus)[0] - cpusOf(b.exclusive_cpus)[0]);
  for (const [life] of owning) hueOf(life);
  for (const life of hues.keys()) if (!rows.has(life)) hues.delete(life);
}

/** Where a container runs, for a column. */
export function place(row) {
  if (!row.placed) return "not placed";
  if (row.exclusive_cpus) {
    const owned = new Set(cpusOf(row.exclusive_cpus));
    return `${row.exclusive_cpus} exclusive${cpusOf(row.cpus).some((cpu) => !owned.has(cpu)) ? " + shared" : ""}`;
  }
  return "shared";
}
