// What an engineer looks for first: does the kubelet come through here, and what is wrong?

import { byId, el, fill, keepingFocus, name, say } from "./dom.js";
import { counted, duration, since, storyOf, withoutName } from "./words.js";

const MOST = 12;

export function facts(status, nowMs) {
  const { kubelet, plugin, runtime, configuration, cpu_counts: counts, totals } = status;
  const free = status.numa_nodes.filter((node) => node.cpus);
  fill(byId("facts"),
    plugin ? fact("NRI", ...pluginSays(plugin, kubelet, nowMs)) : fact("Kubelet", ...kubeletSays(kubelet, status, nowMs)),
    fact("Exclusive CPUs", `${counts.exclusive} of ${counts.capacity}`, free.length > 1 && free.length <= 4 ? free.map((node) => `${node.free} free on node ${node.id}`).join(", ") : `${counts.free} free`),
    fact("Containers", totals.containers - totals.exited, `in ${counted(totals.pods, "pod")}; ${totals.exclusive} with exclusive CPUs`),
    fact("Policy", status.policy || "none", configuration?.hash ? `file ${configuration.hash}, loaded ${duration(since(configuration.loaded, nowMs))} ago` : "no policy file"),
    fact("Runtime", runtime?.name ? `${runtime.name} ${runtime.version}` : "–", runtime?.socket));
}

function fact(title, value, detail, level) {
  return el("div", { class: "fact", "data-level": level }, el("span", { class: "title" }, title), el("span", { class: "value" }, name(String(value))), detail && el("span", { class: "detail" }, name(detail)));
}

function kubeletSays(kubelet, status, nowMs) {
  if (!kubelet) return ["–", ""];
  const age = since(kubelet.last_call, nowMs), silent = status.found?.some((each) => each.kind === "kubelet");
  if (Number.isNaN(age)) return silent ? ["no call", "it does not go through criproxy", "bad"] : ["no call yet", "criproxy has just started"];
  const calls = Object.values(kubelet.classes).reduce((sum, each) => sum + each.calls, 0);
  return silent ? [`silent for ${duration(age)}`, "it is not running, or is not connected to criproxy", "bad"] : ["connected", `last call ${duration(age)} ago, ${counted(calls, "call")}`, "good"];
}

function pluginSays(plugin, events, nowMs) {
  if (plugin.problem) return ["not connected", plugin.problem, "bad"];
  const age = since(events.last_call, nowMs);
  return ["connected", Number.isNaN(age) ? "no event yet" : `last event ${duration(age)} ago`, "good"];
}

/** Everything that `criproxy status --check` would complain about, refusals, and remarks. */
export function draw(status) {
  const wrong = status.problems ?? status.notices.filter((notice) => notice.wrong).map((notice) => notice.text);
  const remarks = [...status.notices.filter((notice) => !notice.wrong).map((notice) => notice.text), ...(status.under_way ?? [])];
  const refused = status.refusals, known = new Set(wrong);
  byId("health").hidden = false;
  byId("health").dataset.level = wrong.length ? "bad" : "good";
  say(byId("health-title"), wrong.length ? "What is wrong" : refused.length ? "Nothing is wrong, but containers are refused" : "Nothing is wrong");
  const signature = JSON.stringify([wrong, refused, remarks]), body = byId("health-body");
  if (body.dataset.signature === signature) return;
  body.dataset.signature = signature;
  keepingFocus(body, () => fill(body,
    list("wrong", wrong.map((text) => text)),
    list("wrong", refused.filter((each) => !known.has(each.text)).map((each) => [el("a", { href: storyOf(each.container) }, name(each.container)), " is refused", each.times > 1 && ` (${each.times} times)`, ": ", withoutName(each.text, each.container)])),
    list("remark", remarks)));
}

function list(kind, items) {
  if (!items.length) return undefined;
  const more = items.length > MOST && el("li", { class: "muted" }, `and ${items.length - MOST} more; criproxy status --check lists all`);
  return el("ul", { class: kind }, items.slice(0, MOST).map((item) => el("li", {}, item)), more);
}
