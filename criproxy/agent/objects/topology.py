"""NodeResourceTopology (v1alpha2), as the scheduler plugin NodeResourceTopologyMatch reads it.

The plugin reads zones of the type Node with the name node-N, and of these what is available and the costs. Zones of
other types are for people.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from criproxy.agent import View
from criproxy.agent.objects.fingerprint import METHOD, fingerprint
from criproxy.agent.objects.node_policy import Object
from criproxy.agent.objects.placement import brief

MOST_NODES = 64
"""The plugin ignores NUMA nodes with higher numbers."""
MOST_POOLS = 32
_LONGEST_LIST = 500
"""Characters of a list of CPUs."""


def topology_of(view: View, policy: str, scope: str) -> Object | None:
    """The object without metadata; None while it is unknown what is available.

    Args:
        view: the last answer of the daemon.
        policy: whether pods have to fit into one NUMA node, as topologyManagerPolicy of the kubelet; with
            single-numa-node, the plugin keeps pods away from the node that do not fit.
        scope: what has to fit: container or pod.
    """
    numa_nodes = [each for each in view["numa_nodes"] if each["id"] < MOST_NODES]
    if not view["known"] or any(each["cpus"]["available_milli"] is None for each in numa_nodes):
        return None
    pods = ((each["namespace"], each["name"]) for each in view["pods"] if not each.get("stopped"))
    attributes = {
        "topologyManagerPolicy": policy,
        "topologyManagerScope": scope,
        "nodeTopologyPodsFingerprint": fingerprint(pods),
        "nodeTopologyPodsFingerprintMethod": METHOD,
    }
    devices = _devices(view.get("devices") or ())
    zones = [_node_zone(each, devices.get(each["id"], {})) for each in numa_nodes]
    return {"attributes": _pairs(attributes), "zones": [*zones, *_socket_zones(numa_nodes), *_pool_zones(view)]}


def _node_zone(numa: View, devices: Mapping[str, tuple[int, int, int]]) -> Object:
    cpus, memory = numa["cpus"], numa["memory"]
    resources = {
        "cpu": (1000 * cpus["count"], cpus["allocatable_milli"], cpus["available_milli"]),
        "memory": _bytes(memory),
        **{f"hugepages-{size}": _bytes(pages) for size, pages in sorted((numa.get("hugepages") or {}).items())},
        **devices,
    }
    zone: Object = {"name": f"node-{numa['id']}", "type": "Node"}
    if numa.get("socket") is not None:
        zone["parent"] = f"socket-{numa['socket']}"
    others = sorted((int(other), distance) for other, distance in numa["distances"].items())
    zone["costs"] = [{"name": f"node-{other}", "value": distance} for other, distance in others if other < MOST_NODES]
    zone["resources"] = [_resource(name, amounts) for name, amounts in resources.items() if amounts[0]]
    return zone


def _bytes(memory: View) -> tuple[int, int, int]:
    return memory["capacity_bytes"], memory["allocatable_bytes"], memory["available_bytes"]


def _resource(name: str, amounts: tuple[int, int, int]) -> Object:
    """Quantities of one resource, of CPU in thousandths: what is available is part of what is allocatable."""
    capacity, allocatable, available = amounts
    allocatable = min(max(allocatable, 0), capacity)
    available = min(max(available, 0), allocatable)
    shown = _cpu if name == "cpu" else str
    return {"name": name, "capacity": shown(capacity), "allocatable": shown(allocatable), "available": shown(available)}


def _cpu(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else f"{milli // 1000}"


def _devices(devices: Sequence[View]) -> Mapping[int, Mapping[str, tuple[int, int, int]]]:
    """NUMA node → resource → capacity, allocatable and available; devices on an unknown node are left out."""
    found: dict[int, dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for each in sorted(devices, key=lambda each: str(each["resource"])):
        if each["numa_node"] is not None:
            capacity, allocatable, available = found[each["numa_node"]].get(each["resource"], (0, 0, 0))
            found[each["numa_node"]][each["resource"]] = (
                capacity + each["total"],
                allocatable + min(each["total"], each["allocated"] + each["free"]),
                available + each["free"],
            )
    return found


def _socket_zones(numa_nodes: Sequence[View]) -> Iterator[Object]:
    """The parents of the NUMA nodes."""
    for socket in sorted({each["socket"] for each in numa_nodes if each.get("socket") is not None}):
        names = [f"node-{each['id']}" for each in numa_nodes if each.get("socket") == socket]
        yield {"name": f"socket-{socket}", "type": "Socket", "attributes": _pairs({"nodes": ",".join(names)})}


def _pool_zones(view: View) -> Iterator[Object]:
    """The pools or balloons in which containers are."""
    for each in view.get("pools", ())[:MOST_POOLS]:
        shown = {"cpuset": each["cpus"], "mems": each["mems"], "exclusive": each["exclusive"]}
        attributes = {name: brief(text, _LONGEST_LIST) for name, text in shown.items() if text}
        kind = str(each["kind"])
        yield {
            "name": f"{kind}:{brief(each['name'], 200)}",
            "type": kind.capitalize(),
            "attributes": _pairs(attributes),
        }


def _pairs(attributes: Mapping[str, Any]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in attributes.items()]
