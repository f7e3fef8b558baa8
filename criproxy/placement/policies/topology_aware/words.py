"""Sentences of the policy ``topology-aware``: why a pool, and why not."""

from collections.abc import Sequence

from criproxy.model.cpuset import CpuSet
from criproxy.model.text.amounts import counted, only_are
from criproxy.placement.alloc.rank import Candidate, decider
from criproxy.placement.options.pod_wishes import near_words
from criproxy.placement.policies.parts import by_node, unmoved
from criproxy.placement.policies.topology_aware.criteria import Choosing, available


def why_first(order: Sequence[Candidate], *, only: bool) -> str:
    """Why the first of *order* was chosen; *only* says that the machine has no other pool."""
    if len(order) == 1:
        return "that is the only pool" if only else "no other pool has that much left"
    best, second = order[:2]
    decided = decider(best, second)
    why = f"is preferred to {second.name} because {decided.name}" if decided else "is the first of several equal pools"
    return f"{best.name} {why}"


def refusal(choosing: Choosing, isolated: CpuSet) -> str:
    """Why a container gets no exclusive CPUs, with what it asked for and the free CPUs of each NUMA node.

    Args:
        choosing: the container.
        isolated: CPUs that it could have had, if it asked for such.
    """
    request, room = choosing.request, choosing.room
    also = f" and {request.shared_milli}m of shared ones" if request.shared_milli else ""
    asks = f"container {choosing.container.title} asks for {counted(request.owned, 'exclusive CPU')}{also}"
    if request.isolated_only and not choosing.owning_anywhere(isolated):
        there = f"the free ones are {by_node(room.tree.topology, isolated)}" if isolated else "none is free"
        return f"{asks}, isolated CPUs only (require-isolated-cpus), but {there}"
    if request.strict and choosing.owning_anywhere(isolated):
        return f"{asks}, {_strictly(choosing, room.ownable(0))}"
    if not choosing.division.own_sharable():
        return f"{asks}, but no CPU can be exclusive: all CPUs that pods may use are reserved or isolated"
    load, needed = room.loads[0], room.needed(0, request.shared_milli)
    granted = f" for containers that were granted {load.granted_milli}m in total" if load.granted_milli else ""
    kept = "all" if needed > len(room.shared[0]) else needed  # shared containers may request more than there is
    stay = f"; of these, {kept} must stay shared{granted}" if needed else ""
    if room.watched:
        stay += f"{', and' if stay else ';'} {unmoved(choosing.others, room.watched)}"
    where, count = by_node(room.tree.topology, room.shared[0]), available(room, request.shared_milli)
    return f"{asks}, but {only_are(count)} available; free: {where}{stay}"


def sharing_refusal(choosing: Choosing) -> str:
    """Why a shared container has no place: only because it must be close to something."""
    asks = f"container {choosing.container.title} asks for {choosing.request.shared_milli}m"
    return f"{asks}, {_strictly(choosing, choosing.room.shared[0])}"


def _strictly(choosing: Choosing, free: CpuSet) -> str:
    near, where = near_words(choosing.request.hints), by_node(choosing.room.tree.topology, free)
    strict = f"strictly close to its devices on {near}, but the places with room are elsewhere (fail strict hint)"
    return f"{strict}; free: {where}"
