"""Placing containers: each in the smallest part of the machine that has room for it.

A container of a Guaranteed pod that asks for whole CPUs gets them exclusively; all others share the other CPUs of their
pool: a level 3 cache, a NUMA node, a die, a socket or the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, interned, numbered
from criproxy.model.grant import NO_CPUS, Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, with_changes, without
from criproxy.model.remembered import remembered
from criproxy.model.text.amounts import counted, only_are
from criproxy.model.workload import Container
from criproxy.placement.alloc.capacity import RESERVED, shared_milli
from criproxy.placement.alloc.cpus import Taste
from criproxy.placement.alloc.memory.place_memory import place_memory, return_memory
from criproxy.placement.alloc.near import resize_cpus, take_beside, take_near
from criproxy.placement.alloc.pools import Pool
from criproxy.placement.alloc.rank import Candidate, Candidates, Row, compared
from criproxy.placement.alloc.sharing import Division, divide
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.pod_wishes import hiding_of, memory_wish, near_words, nodes_of
from criproxy.placement.policies.api import NOTHING_FREE, Free
from criproxy.placement.policies.parts import by_node, lacks_beside_shared, left_alone, no_shared_cpu, unmoved
from criproxy.placement.policies.topology_aware.criteria import Choosing, available
from criproxy.placement.policies.topology_aware.options import TopologyAwareOptions
from criproxy.placement.policies.topology_aware.request import is_reserved, request_of

OF = "pools"
NO_ROOM = "no pool has that much left"


@remembered(4)
def _divided(options: TopologyAwareOptions, topology: Topology) -> Division:
    """The pools of a machine."""
    return divide(topology, options.reserved(topology), apart=options.pin_cpu, caches=options.rules == "nri")


class TopologyAwarePolicy:
    """Each container in the smallest part of the machine with room for it; whole CPUs exclusively, the rest shared."""

    def __init__(self, options: TopologyAwareOptions) -> None:
        self.options = options
        self._pessimistic = options.rules == "crirm"

    def place(self, node: Node, container: Container) -> Change:
        """Exclusive CPUs or the shared ones of a pool or both, and where safe the memory of the pool's NUMA nodes."""
        node = self.options.within(node)
        wishes = Wishes(node, container, self.options)
        if wishes.boolean("cpu.preserve"):
            why = f"{container.title} is left alone: cpu.preserve is true"
            return left_alone(self, node, container, (why, *wishes.notes()))
        choosing = self._choosing(node, wishes)
        find = _reserved if choosing.request.reserved else _own if choosing.request.owned else _share
        grant, reason = find(choosing)
        change = self._with_memory(choosing, node, grant, wishes)
        grants, reasons = change.grants, (reason, *change.reasons, *wishes.notes())
        owners_differ = grant.exclusive != node.own_cpus(container.key)
        return Change(self._with_sharers(choosing.division, node, grants) if owners_differ else grants, reasons)

    def release(self, node: Node, left: Grant) -> Change:
        """Its exclusive CPUs become shared again."""
        node = self.options.within(node)
        change = return_memory(node, {}, pessimistic=self._pessimistic)
        if not left.exclusive:
            return change
        division = _divided(self.options, node.topology)
        return Change(self._with_sharers(division, node, change.grants), change.reasons)

    def free(self, node: Node) -> Free:
        """The CPUs that can become exclusive, without isolated ones, and as many as shared containers do not need."""
        node = self.options.within(node)
        division = _divided(self.options, node.topology)
        room = division.capacity(node, node.watched_cpus)
        count = available(room, 0) if self.options.pin_cpu and division.own_sharable() else 0
        return Free(room.ownable(0), count) if count else NOTHING_FREE

    def _with_sharers(self, division: Division, node: Node, grants: Mapping[str, Grant]) -> Mapping[str, Grant]:
        """*grants*, which are new, and those of shared containers that then have other CPUs."""
        after = node.replace(grants=with_changes(node.grants, grants))
        return {**grants, **division.moved(after, partial(self._hides, node))}

    def _hides(self, node: Node, key: str) -> bool:
        """Whether a container sees one thread of each core only."""
        container = node.containers.get(key)
        return container is not None and bool(hiding_of(self.options).hides(node, container))

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """The pools by their criteria; None for a container that is left alone.

        Raises:
            BadAnnotation: its pod asks for something in a way that cannot be understood.
        """
        node = self.options.within(node)
        wishes = Wishes(node, container, self.options)
        if wishes.boolean("cpu.preserve"):
            return None
        choosing = self._choosing(node, wishes)
        return reserved_compared(choosing) if choosing.request.reserved else pools_compared(choosing)

    def _choosing(self, node: Node, wishes: Wishes) -> Choosing:
        """The search of a container for a place beside all others."""
        container, division = wishes.container, _divided(self.options, node.topology)
        key, had, others = container.key, node.grants.get(container.key), node
        if had:  # the applied place goes as well: else its CPUs would count as unmanaged ones
            others = node.replace(grants=with_changes(node.grants, {}, (key,)), applied=without(node.applied, (key,)))
        request, own = request_of(container, self.options, wishes), had.exclusive if had else NO_CPUS
        if is_reserved(self.options, wishes):  # where no reserved CPU is left, it shares others
            reserved = bool(division.reserved_left(others))
            request = replace(request, owned=0, shared_milli=shared_milli(container), reserved=reserved)
        room = division.capacity(others, others.watched_cpus - own if request.owned else NO_CPUS)
        isolated = division.isolated - others.exclusive_cpus - room.watched if request.isolated else NO_CPUS
        if isolated - own and not others.shared_cpus - isolated:  # shared containers are on these: one stays
            isolated -= {max(isolated - own)}
        return Choosing(division, room, others, container, request, had, isolated, self.options.rules == "nri")

    def _with_memory(self, choosing: Choosing, node: Node, grant: Grant, wishes: Wishes) -> Change:
        """The new *grant* of a container with memory: that of its own CPUs, or of its pool if it shares."""
        container, wish = wishes.container, memory_wish(wishes, pinned=self.options.pin_memory)
        division, hints = choosing.division, nodes_of(choosing.request.hints)
        pool = division.tree.by_name.get(grant.pool, division.tree.pools[0])
        near = division.tree.nodes[pool.index] if grant.shares else node.topology.nodes_of(grant.cpus)
        if len(hints) > 1 and hints < near:  # of several cards, or of one that is next to several nodes
            near = hints
        return place_memory(node, {container.key: grant}, container, near, wish, pessimistic=self._pessimistic)


def _reserved(choosing: Choosing) -> tuple[Grant, str]:
    """A place on the reserved CPUs while they have room, else on the shared ones of the whole machine; and why."""
    division, (pool, free) = choosing.division, reserved_pool(choosing)
    cpus = division.seen(
        NO_CPUS, division.shared_by(pool, choosing.others.exclusive_cpus), hides=choosing.request.hides
    )
    why = "they are for such containers"
    if pool != RESERVED:
        why = f"{RESERVED}, which are for such containers, have {max(free, 0)}m left"
    title = choosing.container.title
    return Grant(interned(cpus), NO_CPUS, pool=pool), f"{title} shares {numbered('CPU', cpus)} of {pool}: {why}"


def _share(choosing: Choosing) -> tuple[Grant, str]:
    division, others, request = choosing.division, choosing.others, choosing.request
    fitting = choosing.fitting()
    # What only one pool has room for is not compared.
    order = choosing.sharing(fitting) if len(fitting) > 1 else [Candidate(one.index, one.name, ()) for one in fitting]
    if not order and request.strict:
        asks = f"container {choosing.container.title} asks for {request.shared_milli}m"
        raise NotEnough(f"{asks}, {_strictly(choosing, choosing.room.shared[0])}")
    pools = division.tree.pools
    # Without candidates more was granted than there is, or nothing is left that is not reserved.
    pool, why = (pools[order[0].index], why_first(order, only=len(pools) == 1)) if order else (pools[0], NO_ROOM)
    if not (shared := division.shared_by(pool.name, others.exclusive_cpus)):
        raise no_shared_cpu(others.topology, choosing.container)
    cpus = division.seen(NO_CPUS, shared, hides=request.hides)
    asks = f"asks for {request.shared_milli}m" if request.shared_milli else "asks for nothing"
    reason = f"{choosing.container.title} shares {numbered('CPU', cpus)} of {pool.name}: it {asks}, and {why}"
    return Grant(interned(cpus), NO_CPUS, pool=pool.name), reason


def _own(choosing: Choosing) -> tuple[Grant, str]:
    """Exclusive CPUs, isolated ones if there are enough, and as many as possible of those that it had."""
    division, pools, request = choosing.division, choosing.room.tree.pools, choosing.request
    order = choosing.owning()
    if not order:
        raise NotEnough(refusal(choosing))
    pool, container = pools[order[0].index], choosing.container
    own = _taken(choosing, pool)
    owned = choosing.others.exclusive_cpus | own
    shared = division.shared_by(pool.name, owned) if request.shared_milli else NO_CPUS
    cpus = division.seen(own, shared, hides=request.hides)
    also = f" and shares {numbered('CPU', shared)}" if shared else ""
    seen = f", of which it runs on {format_cpuset(cpus)}" if cpus != own | shared else ""
    asks = f"its pod is Guaranteed and it asks for {container.cpu_milli}m"
    why = why_first(order, only=len(pools) == 1)
    reason = f"{container.title} gets exclusive {numbered('CPU', own)}{also} on {pool.name}{seen}: {asks}, and {why}"
    return Grant(interned(cpus), NO_CPUS, own, pool.name), reason


def _taken(choosing: Choosing, pool: Pool) -> CpuSet:
    """Exclusive CPUs of *pool*: isolated ones if they suffice, and as many as possible of those that it had."""
    topology, room, request, had = choosing.room.tree.topology, choosing.room, choosing.request, choosing.own
    isolated, divides = choosing.isolated & pool.cpus, request.by_hint and not had
    if len(isolated) >= request.owned:
        if divides:
            return take_near(topology, isolated, request.owned, request.hints)
        return resize_cpus(topology, had & isolated, isolated, request.owned)
    if not had and request.hints and request.by_hint is not False:
        spare = room.spare_cpus(pool.index, request.owned)
        if divides:
            return take_near(topology, spare, request.owned, request.hints)
        if len(room.tree.nodes[pool.index]) > 1:
            return take_beside(topology, spare, request.owned, request.hints, Taste(first=choosing.liked))
    return room.take(pool.index, request.owned, had, choosing.liked)


def pools_compared(choosing: Choosing) -> Candidates:
    """All pools, those with room by their criteria."""
    owns, pools = bool(choosing.request.owned), choosing.room.tree.pools
    order = choosing.owning() if owns else choosing.sharing(choosing.fitting())
    fitting = {candidate.index for candidate in order}
    lacking = [Row(pool.name, lacks=_lacks(choosing, pool)) for pool in pools if pool.index not in fitting]
    shared = choosing.division.shared_by(pools[0].name, choosing.others.exclusive_cpus)
    if order or owns or choosing.request.strict or not shared:
        return compared(OF, order, lacking)
    note = f"{NO_ROOM}: shared containers ask for more than there is"
    return compared(OF, order, lacking, chosen=pools[0].name, note=note)


def reserved_compared(choosing: Choosing) -> Candidates:
    """The reserved CPUs, and the whole machine where these are too few."""
    pool, free_milli = reserved_pool(choosing)
    note = "containers of this namespace or with this annotation share the reserved CPUs"
    missing = choosing.request.shared_milli - free_milli
    rows = [Row(pool)] if pool != RESERVED else []
    return Candidates(OF, (), (*rows, Row(RESERVED, lacks=f"{missing}m" if missing > 0 else "")), pool, note)


def _lacks(choosing: Choosing, pool: Pool) -> str:
    if not choosing.allows(pool):
        return "closeness to its devices" if choosing.is_around_home(pool) else "the NUMA nodes of its memory"
    if choosing.request.owned:
        return _lacks_exclusive(choosing, pool)
    if not choosing.room.shared[pool.index]:
        return "CPUs to share"
    milli, free = choosing.request.shared_milli, choosing.room.free_milli[pool.index]
    return f"{(milli if free < milli else choosing.wanted_milli) - free}m"


def _lacks_exclusive(choosing: Choosing, pool: Pool) -> str:
    request = choosing.request
    if request.isolated_only:
        missing = request.owned - len(choosing.isolated & pool.cpus)
        return counted(missing, "isolated CPU") if missing > 0 else "CPUs to share"
    if not choosing.division.own_sharable():
        return "CPUs that can be exclusive"
    beside = request.owned - available(choosing.room, request.shared_milli)
    if (missing := choosing.missing_cpus(pool)) > 0:
        of_all = pool.index == 0  # of the whole machine, what shared containers need is missing as well
        return counted(max(missing, beside) if of_all else missing, "CPU")
    return lacks_beside_shared(beside)


def reserved_pool(choosing: Choosing) -> tuple[str, int]:
    """The pool of a container for the reserved CPUs, some of which are left: these, or where they are full the machine.

    Returns:
        The name of the pool, and what the reserved CPUs have left for it in milli-CPU, less than 0 where too much was
        granted.
    """
    division, others = choosing.division, choosing.others
    there = [key for key, grant in others.grants.items() if grant.pool == RESERVED]
    granted = sum(shared_milli(others.containers[key]) for key in there if key in others.containers)
    free = len(division.reserved_left(others)) * 1000 - granted
    return RESERVED if choosing.request.shared_milli <= free else division.tree.pools[0].name, free


def why_first(order: Sequence[Candidate], *, only: bool) -> str:
    """Why the first of *order* was chosen; *only* says that the machine has no other pool."""
    if len(order) == 1:
        return "that is the only pool" if only else "no other pool has that much left"
    best, second = order[:2]
    pairs = zip(best.criteria, second.criteria, strict=True)
    decided = next((one for one, other in pairs if one.value != other.value), None)
    why = f"is preferred to {second.name} because {decided.name}" if decided else "is the first of several equal pools"
    return f"{best.name} {why}"


def refusal(choosing: Choosing) -> str:
    """Why a container gets no exclusive CPUs, with what it asked for and the free CPUs of each NUMA node."""
    request, room, isolated = choosing.request, choosing.room, choosing.isolated
    also = f" and {request.shared_milli}m of shared ones" if request.shared_milli else ""
    asks = f"container {choosing.container.title} asks for {counted(request.owned, 'exclusive CPU')}{also}"
    if request.isolated_only and not choosing.owning_anywhere():
        there = f"the free ones are {by_node(room.tree.topology, isolated)}" if isolated else "none is free"
        return f"{asks}, isolated CPUs only (require-isolated-cpus), but {there}"
    if request.strict and choosing.owning_anywhere():
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


def _strictly(choosing: Choosing, free: CpuSet) -> str:
    near, where = near_words(choosing.request.hints), by_node(choosing.room.tree.topology, free)
    strict = f"strictly close to its devices on {near}, but the places with room are elsewhere (fail strict hint)"
    return f"{strict}; free: {where}"
