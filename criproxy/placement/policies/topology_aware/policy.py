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
from criproxy.model.node import Node, with_grants, without
from criproxy.model.remembered import remembered
from criproxy.model.text.amounts import counted, only_are
from criproxy.model.workload import Container
from criproxy.placement.alloc.capacity import shared_milli
from criproxy.placement.alloc.cpus import Taste
from criproxy.placement.alloc.memory.memory import place_memory, return_memory
from criproxy.placement.alloc.near import resize_cpus, take_beside, take_near
from criproxy.placement.alloc.pools import Pool
from criproxy.placement.alloc.rank import Candidate, Candidates, Row, compared, decider, ranked
from criproxy.placement.alloc.sharing import RESERVED, Division, divide
from criproxy.placement.options.annotations import Wishes
from criproxy.placement.options.pod_wishes import hiding_of, hints_of, memory_wish, near_words, nodes_of
from criproxy.placement.policies.api import NOTHING_FREE, Free
from criproxy.placement.policies.parts import by_node, lacks_beside_shared, left_alone, no_shared_cpu, unmoved
from criproxy.placement.policies.topology_aware.criteria import Choosing, available
from criproxy.placement.policies.topology_aware.options import TopologyAwareOptions
from criproxy.placement.policies.topology_aware.request import Request, is_left_alone, is_reserved, request_of

OF = "pools"
NO_ROOM = "no pool has that much left"


@remembered(4)
def _divided(options: TopologyAwareOptions, topology: Topology) -> Division:
    """The pools of a machine."""
    reserved, caches = options.reserved(topology), options.rules == "nri"
    return divide(topology, reserved, apart=options.pin_cpu, caches=caches)


class TopologyAwarePolicy:
    """Each container in the smallest part of the machine with room for it; whole CPUs exclusively, the rest shared."""

    def __init__(self, options: TopologyAwareOptions) -> None:
        self.options = options
        self._pessimistic = options.rules == "crirm"

    def place(self, node: Node, container: Container) -> Change:
        """Exclusive CPUs or the shared ones of a pool or both, and where safe the memory of the pool's NUMA nodes."""
        node = self.options.within(node)
        wishes = self._wishes(node, container)
        if is_left_alone(wishes):
            why = f"{container.title} is left alone: cpu.preserve is true"
            return left_alone(self, node, container, (why, *wishes.notes()))
        division, old = _divided(self.options, node.topology), node.grants.get(container.key)
        others = _others(node, container.key) if old else node
        grant, reason = self._decide(division, others, wishes, old)
        change = self._with_memory(division, node, replace(grant, cpus=interned(grant.cpus)), wishes)
        grants, reasons = change.grants, (reason, *change.reasons, *wishes.notes())
        owners_differ = grant.exclusive != node.own_cpus(container.key)
        return Change(self._with_sharers(division, node, grants) if owners_differ else grants, reasons)

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

    def _wishes(self, node: Node, container: Container) -> Wishes:
        return Wishes.by(self.options, node, container)

    def _with_sharers(self, division: Division, node: Node, grants: Mapping[str, Grant]) -> Mapping[str, Grant]:
        """*grants*, which are new, and those of shared containers that then have other CPUs."""
        after = node.replace(grants=with_grants(node.grants, grants))
        return {**grants, **division.moved(after, partial(self._hides, node))}

    def _hides(self, node: Node, key: str) -> bool:
        """Whether a container sees one thread of each core only."""
        container = node.containers.get(key)
        return container is not None and bool(hiding_of(self.options).says(node, container))

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """The pools by their criteria; None for a container that is left alone.

        Raises:
            BadAnnotation: its pod asks for something in a way that cannot be understood.
        """
        node = self.options.within(node)
        wishes = self._wishes(node, container)
        if is_left_alone(wishes):
            return None
        division, request = _divided(self.options, node.topology), request_of(container, self.options, wishes)
        others = _others(node, container.key)
        if is_reserved(self.options, wishes):
            if division.reserved_left(others):
                return reserved_compared(division, others, container)
            request = _without_own(request, container)
        return pools_compared(*self._choosing(division, others, container, request, node.grants.get(container.key)))

    def _decide(self, division: Division, others: Node, wishes: Wishes, old: Grant | None) -> tuple[Grant, str]:
        """A place beside *others*, all its memory open, and why."""
        container = wishes.container
        request = request_of(container, self.options, wishes)
        if is_reserved(self.options, wishes):
            if division.reserved_left(others):
                return _reserved(division, others, container, request)
            request = _without_own(request, container)
        choosing, isolated = self._choosing(division, others, container, request, old)
        if not request.owned:
            return _share(choosing)
        return _own(choosing, isolated, old.exclusive if old else NO_CPUS)

    def _choosing(
        self, division: Division, others: Node, container: Container, request: Request, old: Grant | None
    ) -> tuple[Choosing, CpuSet]:
        own = old.exclusive if old else NO_CPUS
        room = division.capacity(others, others.watched_cpus - own if request.owned else NO_CPUS)
        isolated = division.isolated - others.exclusive_cpus - room.watched if request.isolated else NO_CPUS
        if isolated - own and not others.shared_cpus - isolated:  # shared containers are on these: one stays
            isolated -= {max(isolated - own)}
        home = self._home(division, old)
        return Choosing(division, room, others, container, request, home, self.options.rules == "nri"), isolated

    @staticmethod
    def _home(division: Division, old: Grant | None) -> str:
        """The pool in which a container stays if it can: its own; if shared, the part of it around its memory."""
        if old is None:
            return ""
        tree = division.tree
        own = tree.by_name.get(old.pool)
        if old.exclusive:
            return (own or tree.home(old.exclusive)).name
        # A container of another policy may have any pool, or none; its memory stays where it is.
        around = tree.home(tree.topology.cpus_of(old.mems) & tree.topology.cpus)
        if own is None:
            return around.name if around.index else ""
        return around.name if own.index in around.path else own.name

    def _with_memory(self, division: Division, node: Node, grant: Grant, wishes: Wishes) -> Change:
        """The new *grant* of a container with memory: that of its own CPUs, or of its pool if it shares."""
        container, wish = wishes.container, memory_wish(wishes, pinned=self.options.pin_memory)
        pool = division.tree.by_name.get(grant.pool, division.tree.pools[0])
        near = division.tree.nodes[pool.index] if grant.shares else node.topology.nodes_of(grant.cpus)
        hints = nodes_of(hints_of(wishes)[0])
        if len(hints) > 1 and hints < near:  # of several cards, or of one that is next to several nodes
            near = hints
        return place_memory(node, {container.key: grant}, container, near, wish, pessimistic=self._pessimistic)


def _others(node: Node, key: str) -> Node:
    """The node without the place of *key*, granted and applied: else its CPUs would count as unmanaged ones."""
    return node.replace(grants=with_grants(node.grants, {}, (key,)), applied=without(node.applied, (key,)))


def _without_own(request: Request, container: Container) -> Request:
    """The request of a container for the reserved CPUs where none are left: all of it shared."""
    return replace(request, owned=0, shared_milli=shared_milli(container))


def _reserved(division: Division, others: Node, container: Container, request: Request) -> tuple[Grant, str]:
    """The reserved CPUs while they have room, else the shared ones of the whole machine."""
    pool, free = reserved_pool(division, others, container)
    cpus = division.seen(NO_CPUS, division.shared_by(pool, others.exclusive_cpus), hides=request.hides)
    why = "they are for such containers"
    if pool != RESERVED:
        why = f"{RESERVED}, which are for such containers, have {max(free, 0)}m left"
    return Grant(cpus, NO_CPUS, pool=pool), f"{container.title} shares {numbered('CPU', cpus)} of {pool}: {why}"


def _share(choosing: Choosing) -> tuple[Grant, str]:
    division, others, request = choosing.division, choosing.others, choosing.request
    order = ranked(choosing.sharing())
    if not order and request.strict:
        raise NotEnough(sharing_refusal(choosing))
    pools = division.tree.pools
    # Without candidates more was granted than there is, or nothing is left that is not reserved.
    pool, why = (pools[order[0].index], why_first(order, only=len(pools) == 1)) if order else (pools[0], NO_ROOM)
    if not (shared := division.shared_by(pool.name, others.exclusive_cpus)):
        raise no_shared_cpu(others.topology, choosing.container)
    cpus = division.seen(NO_CPUS, shared, hides=request.hides)
    asks = f"asks for {request.shared_milli}m" if request.shared_milli else "asks for nothing"
    reason = f"{choosing.container.title} shares {numbered('CPU', cpus)} of {pool.name}: it {asks}, and {why}"
    return Grant(cpus, NO_CPUS, pool=pool.name), reason


def _own(choosing: Choosing, isolated: CpuSet, had: CpuSet) -> tuple[Grant, str]:
    """Exclusive CPUs, *isolated* ones if there are enough, and as many as possible of those that it *had*."""
    division, others, room, request = choosing.division, choosing.others, choosing.room, choosing.request
    order = ranked(choosing.owning(isolated))
    if not order:
        raise NotEnough(refusal(choosing, isolated))
    pool, container = room.tree.pools[order[0].index], choosing.container
    own = _taken(choosing, pool, isolated & pool.cpus, had)
    shared = division.shared_by(pool.name, others.exclusive_cpus | own) if request.shared_milli else NO_CPUS
    cpus = division.seen(own, shared, hides=request.hides)
    also = f" and shares {numbered('CPU', shared)}" if shared else ""
    seen = f", of which it runs on {format_cpuset(cpus)}" if cpus != own | shared else ""
    asks = f"its pod is Guaranteed and it asks for {container.cpu_milli}m"
    why = why_first(order, only=len(room.tree.pools) == 1)
    reason = f"{container.title} gets exclusive {numbered('CPU', own)}{also} on {pool.name}{seen}: {asks}, and {why}"
    return Grant(cpus, NO_CPUS, own, pool.name), reason


def _taken(choosing: Choosing, pool: Pool, isolated: CpuSet, had: CpuSet) -> CpuSet:
    """Exclusive CPUs of *pool*: *isolated* ones if they suffice, and as many as possible of those that it *had*."""
    topology, room, request = choosing.room.tree.topology, choosing.room, choosing.request
    if len(isolated) >= request.owned:
        if request.by_hint and not had:
            return take_near(topology, isolated, request.owned, request.hints)
        return resize_cpus(topology, had & isolated, isolated, request.owned)
    if had or not request.hints or request.by_hint is False:
        return room.take(pool.index, request.owned, had, choosing.liked)
    spare = room.spare_cpus(pool.index, request.owned)
    if request.by_hint:
        return take_near(topology, spare, request.owned, request.hints)
    if len(room.tree.nodes[pool.index]) > 1:
        return take_beside(topology, spare, request.owned, request.hints, Taste(first=choosing.liked))
    return room.take(pool.index, request.owned, had, choosing.liked)


def pools_compared(choosing: Choosing, isolated: CpuSet) -> Candidates:
    """All pools, those with room by their criteria."""
    owns, pools = bool(choosing.request.owned), choosing.room.tree.pools
    order = ranked(choosing.owning(isolated) if owns else choosing.sharing())
    fitting = {candidate.index for candidate in order}
    lacking = [Row(pool.name, lacks=_lacks(choosing, pool, isolated)) for pool in pools if pool.index not in fitting]
    shared = choosing.division.shared_by(pools[0].name, choosing.others.exclusive_cpus)
    if order or owns or choosing.request.strict or not shared:
        return compared(OF, order, lacking)
    note = "no pool has that much left: shared containers ask for more than there is"
    return compared(OF, order, lacking, chosen=pools[0].name, note=note)


def reserved_compared(division: Division, others: Node, container: Container) -> Candidates:
    """The reserved CPUs, and the whole machine where these are too few."""
    pool, free_milli = reserved_pool(division, others, container)
    note = "containers of this namespace or with this annotation share the reserved CPUs"
    missing = shared_milli(container) - free_milli
    rows = [Row(RESERVED, lacks=f"{missing}m" if missing > 0 else "")]
    if pool != RESERVED:
        rows.insert(0, Row(pool))
    return Candidates(OF, (), tuple(rows), pool, note)


def _lacks(choosing: Choosing, pool: Pool, isolated: CpuSet) -> str:
    if not choosing.allows(pool):
        return "closeness to its devices" if choosing.is_around_home(pool) else "the NUMA nodes of its memory"
    return _lacks_exclusive(choosing, pool, isolated) if choosing.request.owned else _lacks_shared(choosing, pool)


def _lacks_shared(choosing: Choosing, pool: Pool) -> str:
    if not choosing.room.shared[pool.index]:
        return "CPUs to share"
    milli, free = choosing.request.shared_milli, choosing.room.free_milli(pool.index)
    return f"{(milli if free < milli else choosing.wanted_milli) - free}m"


def _lacks_exclusive(choosing: Choosing, pool: Pool, isolated: CpuSet) -> str:
    request = choosing.request
    if request.isolated_only:
        missing = request.owned - len(isolated & pool.cpus)
        return counted(missing, "isolated CPU") if missing > 0 else "CPUs to share"
    if not choosing.division.own_sharable():
        return "CPUs that can be exclusive"
    beside = request.owned - available(choosing.room, request.shared_milli)
    if (missing := choosing.missing_cpus(pool)) > 0:
        of_all = pool.index == 0  # of the whole machine, what shared containers need is missing as well
        return counted(max(missing, beside) if of_all else missing, "CPU")
    return lacks_beside_shared(beside)


def reserved_pool(division: Division, others: Node, container: Container) -> tuple[str, int]:
    """The pool of a container for the reserved CPUs: these while they have room, else the whole machine.

    Args:
        division: of the machine.
        others: the node without the container; some of its reserved CPUs are left.
        container: one for the reserved CPUs.

    Returns:
        The name of the pool, and what the reserved CPUs have left for it in milli-CPU, less than 0 where too much was
        granted.
    """
    there = [key for key, grant in others.grants.items() if grant.pool == RESERVED]
    granted = sum(shared_milli(others.containers[key]) for key in there if key in others.containers)
    free = len(division.reserved_left(others)) * 1000 - granted
    return RESERVED if shared_milli(container) <= free else division.tree.pools[0].name, free


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
