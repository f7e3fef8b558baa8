"""The node for the agent, which tells the cluster of it: what is free where, and whether all is well.

Pure functions. Values that change although the node does not, such as times, are not here: each change of these values
is told to the cluster. docs/agent.md documents the keys.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from criproxy.api.views.devices import ANNOTATION, Inventory, node_annotations
from criproxy.api.views.situation import Situation
from criproxy.api.views.status import totals
from criproxy.api.views.status_check import find
from criproxy.devices.classes.cards import Stock
from criproxy.devices.classes.offers import card_of
from criproxy.devices.holdings import Facts, allocated_of
from criproxy.devices.plugin.published import Published
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.hardware import HugePages
from criproxy.model.machine.topology import NumaNode, Topology
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.text.notices import Values
from criproxy.placement.alloc.booked_cpus import BookedCpus, booked_cpus
from criproxy.placement.answers.booked import BookedMemory, booked_memory, booked_pages

LEFT_OUT = frozenset({"agent", "node-policy", "try"})
"""Notices that the agent does not need: what it has said itself, and a text that changes every second."""
MAX_NOTES = 16
_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
"""Of the names of huge pages, as in ``hugepages-2Mi``."""


def to_values(situation: Situation, devices: Inventory, pages: Sequence[HugePages], *, known: bool) -> Values:
    """Return the answer of the command ``agent`` about the node, as far as it follows from these.

    Args:
        situation: the node and the controller.
        devices: the cards; without a report of a device plugin that does not run.
        pages: the huge pages of the machine, as they are now.
        known: whether criproxy knows all containers of the node; else it is unknown how much is available.
    """
    node = situation.node
    found = find(replace(situation, notices=[each for each in situation.notices if each.kind not in LEFT_OUT]))
    notes = [each.text for each in found.notices if not each.wrong]
    return {
        "policy": situation.policy,
        "released": node.released,
        "ready": found.not_ready or "",
        **found.to_json(),
        "notes": [*bounded_texts(notes, MAX_NOTES)],
        "known": known,
        "numa_nodes": [*_numa_nodes(situation, pages, known=known)],
        "pools": _pools(situation),
        "devices": None if devices.report is None else _devices(devices.report, devices, node),
        "vgpus": _vgpus(devices, node),
        "labels": devices.report.labels if devices.report else {} if devices.ended else None,
        "refused": len(situation.refusals) + situation.refusals_omitted,
        "pods": _pods(node),
        "containers": totals(node),
    }


def _numa_nodes(situation: Situation, pages: Sequence[HugePages], *, known: bool) -> Iterator[Values]:
    node, topology = situation.node, situation.node.topology
    cpus, memory = booked_cpus(node, situation.reserved), booked_memory(node)
    huge, sockets, free = booked_pages(node, pages), _sockets(topology), situation.free
    for numa in topology.nodes:
        yield {
            "id": numa.id,
            "socket": sockets[numa.id],
            "kind": numa.kind.value,
            "distances": {str(other.id): topology.distance(numa.id, other.id) for other in topology.nodes},
            "cpus": _cpus(numa, cpus[numa.id], free or frozenset(), known=known),
            "memory": _memory(memory[numa.id], known=known),
            "hugepages": {_size(size): _memory(each, known=known) for size, each in huge.get(numa.id, {}).items()},
        }


def _cpus(numa: NumaNode, booked: BookedCpus, free: CpuSet, *, known: bool) -> Values:
    return {
        "list": format_cpuset(numa.cpus),
        "count": len(numa.cpus),
        "reserved": format_cpuset(booked.reserved),
        "exclusive": format_cpuset(booked.exclusive),
        "exclusive_free": format_cpuset(free & numa.cpus) if known else "",
        "shared_request_milli": booked.shared_milli,
        "allocatable_milli": booked.allocatable_milli,
        "available_milli": booked.available_milli if known else None,
    }


def _memory(booked: BookedMemory, *, known: bool) -> Values:
    return {
        "capacity_bytes": booked.capacity_bytes,
        "allocatable_bytes": booked.allocatable_bytes,
        "requested_bytes": booked.requested_bytes,
        "available_bytes": booked.available_bytes if known else None,
    }


def _size(size_bytes: int) -> str:
    """Return the size of a huge page as in ``hugepages-2Mi``."""
    return next((f"{size_bytes // unit}{name}" for unit, name in _UNITS if size_bytes % unit == 0), f"{size_bytes}")


def _sockets(topology: Topology) -> Mapping[int, int | None]:
    """Return the socket of each NUMA node; None if it is unknown, as for memory without CPUs."""
    return {
        numa.id: next((each.id for each in topology.packages if each.id >= 0 and numa.cpus & each.cpus), None)
        for numa in topology.nodes
    }


def _pools(situation: Situation) -> list[Values]:
    """Return the pools or balloons in which containers are, and the CPUs and memory that these may use together."""
    node, kind = situation.node, "balloon" if situation.policy == "balloons" else "pool"
    cpus, mems, exclusive = (defaultdict[str, set[int]](set) for _ in range(3))
    counts: Counter[str] = Counter()
    for grant in node.grants.values():
        if grant.pool:
            cpus[grant.pool] |= grant.home or grant.cpus
            mems[grant.pool] |= grant.mems
            exclusive[grant.pool] |= grant.exclusive
            counts[grant.pool] += 1
    return [
        {
            "name": name,
            "kind": kind,
            "cpus": format_cpuset(frozenset(cpus[name])),
            "mems": format_cpuset(frozenset(mems[name])),
            "exclusive": format_cpuset(frozenset(exclusive[name])),
            "containers": count,
        }
        for name, count in sorted(counts.items())
    ]


def _devices(report: Published, devices: Inventory, node: Node) -> list[Values]:
    """Return the ids that our device plugin offers by resource and NUMA node, and how many of them containers have."""
    kinds = {kind.name: kind for kind in devices.classes}
    found = defaultdict[tuple[str, int | None], Counter[str]](Counter)
    nodes_of: dict[tuple[str, str], int | None] = {}
    for card in report.cards:
        kind = kinds.get(card.device_class)
        there = devices.stocks.get(card.device_class, Stock()).card(kind, card.parent or card.id) if kind else None
        numa = there.numa_node if there and there.numa_node >= 0 else None
        nodes_of[card.device_class, card.id] = numa
        for resource, replicas in card.replicas.items():
            found[resource, numa] += Counter(total=replicas or 1, healthy=(replicas or 1) * card.healthy)
    for resource, device_class, device_id in _allocated_ids(report, devices.holdings.allocated(node)):
        found[resource, nodes_of.get((device_class, card_of(device_id)))]["allocated"] += 1
    return [*_values_of(report, found)]


def _values_of(report: Published, found: Mapping[tuple[str, int | None], Counter[str]]) -> Iterator[Values]:
    """Yield the values of each resource on each NUMA node; ids of cards that are not listed are on an unknown one."""
    for resource in sorted(report.resources, key=lambda each: each.name):
        by_numa = {numa: ids for (name, numa), ids in found.items() if name == resource.name}
        listed = sum(by_numa.values(), Counter())
        if resource.ids > listed["total"]:
            rest = Counter(total=resource.ids - listed["total"], healthy=max(0, resource.healthy - listed["healthy"]))
            by_numa[None] = by_numa.get(None, Counter()) + rest
        for numa, ids in sorted(by_numa.items(), key=lambda item: (item[0] is None, item[0] or 0)):
            yield {
                "resource": resource.name,
                "class": resource.device_class,
                "profile": resource.profile,
                "numa_node": numa,
                **{key: ids[key] for key in ("total", "healthy", "allocated")},
                "free": max(0, ids["healthy"] - ids["allocated"]),
            }


def _allocated_ids(report: Published, allocated: Iterable[Facts]) -> set[tuple[str, str, str]]:
    """Return the resource, class and id of what containers have; containers of one pod may have the same."""
    classes = {each.device_class for each in report.resources}
    return {
        (share["resource"], name, device_id)
        for facts in allocated
        for name in classes
        for share in allocated_of(facts, name)
        for device_id in share["ids"]
    }


def _vgpus(devices: Inventory, node: Node) -> str | None:
    """Return the text of the annotation `ANNOTATION`; empty if no vGPU is offered, None if that is unknown."""
    if devices.report is None:
        return "" if devices.ended else None
    return node_annotations(devices.report, devices.holdings.allocated(node)).get(ANNOTATION, "")


def _pods(node: Node) -> list[Values]:
    """Return the pods, once each: a pod has several sandboxes after its sandbox was made anew."""
    pods = {pod.uid or pod.key: pod for pod in sorted(node.pods.values(), key=lambda each: not each.stopped)}
    listed = [
        {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "stopped": pod.stopped} for pod in pods.values()
    ]
    return sorted(listed, key=lambda each: (each["namespace"], each["name"], each["uid"]))
