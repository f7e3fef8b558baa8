"""The first lines of `criproxy status`: kubelet, runtime, policy file, exclusive CPUs."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from criproxy.cli.render import words
from criproxy.cli.render.console import TROUBLE
from criproxy.model.text.amounts import format_seconds

Values = dict[str, Any]
SILENT_S = 30.0
"""The kubelet asks its runtime something every ten seconds at the latest: after so long it does not ask here."""
MOST_NODES = 16
"""So many NUMA nodes with their free CPUs fit into a line that people read; the table below has all."""


def front_of(values: Values) -> Iterator[Text]:
    """What the answer says of these; nothing of what a daemon of an earlier version does not say."""
    if kubelet := values.get("kubelet"):
        yield _kubelet(kubelet, values["started"])
    if (runtime := values.get("runtime")) and runtime["name"]:
        yield Text(f"Runtime: {runtime['name']} {runtime['version']} on {runtime['socket'] or 'its socket'}")
    if (configuration := values.get("configuration")) and configuration["hash"]:
        since = words.ago(configuration["loaded"])
        text = f"Policy file: {configuration['file']}, hash {configuration['hash']}, loaded {since} ago"
        yield Text(text + _instead_of_file(configuration))
    if counts := values.get("cpu_counts"):
        of = "" if counts["capacity"] is None else f" of {counts['capacity']}"
        yield Text(f"Exclusive CPUs: {counts['exclusive']}{of}; free: {_free(values)}")


def _instead_of_file(configuration: Values) -> str:
    if configuration.get("kept"):
        return "; KEPT after a try, in place of the configured policy file"
    if not (trial := configuration.get("try")):
        return ""
    back = f"the former configuration comes back in {format_seconds(trial['left_s'])}"
    return f"; BEING TRIED: {back} unless this one is kept"


def _kubelet(kubelet: Values, started: str) -> Text:
    age_s = kubelet["last_call_s"]
    if age_s is None:
        silent_s = words.passed_s(started)
        text = f"Kubelet: no call since criproxy started {words.ago(started)} ago"
        return Text(f"{text}: it is not connected to criproxy", TROUBLE) if silent_s > SILENT_S else Text(text)
    classes = kubelet["classes"].items()
    parts = [f"{word} {_age(each['last_call_s'])} ago" for word, each in classes if each["last_call_s"] is not None]
    if age_s > SILENT_S:
        text = f"Kubelet: no call for {_age(age_s)}: it is not running, or is not connected to criproxy"
        return Text(f"{text} ({', '.join(parts)})", TROUBLE)
    return Text(f"Kubelet: connected to criproxy, last call {_age(age_s)} ago ({', '.join(parts)})")


def _age(age_s: float) -> str:
    return f"{age_s:.1f} s" if age_s < 10 else format_seconds(age_s)


def _free(values: Values) -> str:
    if values["cpu_counts"]["free"] is None:
        return "unknown"
    nodes = [node for node in values["numa_nodes"] if node["cpus"]]
    if len(nodes) == 1 or len(nodes) > MOST_NODES:
        return str(values["cpu_counts"]["free"])
    stay = sum(node["free"] for node in nodes) - values["cpu_counts"]["free"]
    kept = f"; {stay} of these must stay shared" if stay else ""
    return (", ".join(f"{node['free']} on NUMA node {node['id']}" for node in nodes) or "0") + kept
