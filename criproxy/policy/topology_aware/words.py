"""Sentences of the policy ``topology-aware``: why a pool, and why not."""

from collections.abc import Sequence

from criproxy.alloc.rank import Candidate, decider
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.policy.hints import near_words
from criproxy.policy.topology_aware.criteria import Choosing, available


def cpus_words(cpus: CpuSet) -> str:
    """``CPU 4``, ``CPUs 4-6``."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpuset(cpus)}"


def why_first(order: Sequence[Candidate], *, only: bool) -> str:
    """Why the first of *order* was chosen; *only* says that the machine has no other pool."""
    if len(order) == 1:
        return "that is the only pool" if only else "no other pool has that much left"
    best, second = order[:2]
    decided = decider(best, second)
    why = f"goes before {second.name} because {decided.name}" if decided else "comes first of several that are alike"
    return f"{best.name} {why}"


def refusal(choosing: Choosing, isolated: CpuSet) -> str:
    """Why a container that is to own CPUs has no place, with what it asked and what is free where.

    Args:
        choosing: the container.
        isolated: CPUs that it could have had, if it asked for such.
    """
    request, room = choosing.request, choosing.room
    also = f" and {request.shared_milli}m of shared ones" if request.shared_milli else ""
    count = f"{request.owned} exclusive CPU{'s' * (request.owned > 1)}{also}"
    asks = f"container {choosing.container.title} asks for {count}"
    if request.isolated_only and not choosing.owning_anywhere(isolated):
        there = f"free are {_by_node(choosing, isolated)}" if isolated else "none is free"
        return f"{asks}, but only isolated CPUs will do (require-isolated-cpus), and {there}"
    if request.strict and choosing.owning_anywhere(isolated):
        return f"{asks}, {_strictly(choosing, room.ownable(0))}"
    if not choosing.division.own_sharable():
        return f"{asks}, but none can be owned: all CPUs that pods may use are reserved or isolated"
    load, needed = room.loads[0], room.needed(0, request.shared_milli)
    granted = f", who were granted {load.granted_milli}m" if load.granted_milli else ""
    stay = f", and {needed} of them must stay with those who share{granted}" if needed else ""
    if room.watched:
        stay += f", and on CPUs {format_cpuset(room.watched)} run containers that criproxy does not move"
    where = _by_node(choosing, room.shared[0])
    count_free = available(room, request.shared_milli)
    return f"{asks}, but {count_free} {'is' if count_free == 1 else 'are'} available: free are {where}{stay}"


def sharing_refusal(choosing: Choosing) -> str:
    """Why a container that shares has no place: only because it must be close to something."""
    asks = f"container {choosing.container.title} asks for {choosing.request.shared_milli}m"
    return f"{asks}, {_strictly(choosing, choosing.room.shared[0])}"


def _strictly(choosing: Choosing, free: CpuSet) -> str:
    near, where = near_words(choosing.request.hints), _by_node(choosing, free)
    return f"strictly close to its devices on {near}, but places with room elsewhere fail strict hint: free are {where}"


def _by_node(choosing: Choosing, free: CpuSet) -> str:
    nodes = choosing.room.tree.topology.nodes
    where = ", ".join(f"{format_cpuset(n.cpus & free)} on NUMA node {n.id}" for n in nodes if n.cpus & free)
    return where or "none on any NUMA node"
