"""How pools compare for a container: named criteria in the order in which they count, a total order.

The order is nri-plugins', or CRI-RM's where the policy file says so. Criproxy's own come first: CPUs that
shared containers need are taken last, and a container with a place stays there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.capacity import Capacity
from criproxy.placement.alloc.memory.place_memory import rooms_bytes, with_attached
from criproxy.placement.alloc.memory.promised import are_missing, promised_bytes
from criproxy.placement.alloc.near import cpus_of_priority
from criproxy.placement.alloc.pools import Pool, PoolTree
from criproxy.placement.alloc.rank import Candidate, Criterion, Unit, ranked
from criproxy.placement.alloc.sharing import Division
from criproxy.placement.options.pod_wishes import nodes_of
from criproxy.placement.policies.topology_aware.nearness import ByPool, affinity_criteria, hint_criteria, is_near_all
from criproxy.placement.policies.topology_aware.request import Request


@dataclass(frozen=True)
class Choosing:
    """The search of a container for a pool."""

    division: Division
    room: Capacity
    others: Node
    """The node without the container."""
    container: Container
    request: Request
    had: Grant | None
    """Its grant so far; None for a new container."""
    isolated: CpuSet
    """Isolated CPUs that it may get; empty where it wants none."""
    is_nri: bool
    """Whether nri-plugins' rules count where they are others than CRI-RM's."""

    @property
    def own(self) -> CpuSet:
        """Its exclusive CPUs so far."""
        return self.had.exclusive if self.had else NO_CPUS

    @cached_property
    def home(self) -> str:
        """The pool in which it stays if it can: its own; if shared, the part of it around its memory; empty: none."""
        if self.had is None:
            return ""
        tree = self.room.tree
        own = tree.by_name.get(self.had.pool)
        if self.own:
            return (own or tree.home(self.own)).name
        # A container of another policy may have any pool, or none; its memory stays where it is.
        around = tree.home(tree.topology.cpus_of(self.had.mems) & tree.topology.cpus)
        if own is None:
            return around.name if around.index else ""
        return around.name if own.index in around.path else own.name

    @cached_property
    def liked(self) -> CpuSet:
        """The exclusive CPUs that it prefers; none where it prefers none."""
        return cpus_of_priority(self.room.tree.topology, self.request.priority) if self.request.owned else NO_CPUS

    @cached_property
    def _memory_fits(self) -> ByPool:
        """Whether the memory that the container asks for can be promised there beside what others have."""
        tree, by_limit = self.room.tree, not self.is_nri
        if not (size := _asked_bytes(self.container, by_limit=by_limit)):
            return [()] * len(tree.pools)
        rooms = rooms_bytes(self.others, tree.nodes, pessimistic=by_limit)
        return _held("its memory fits", (room is None or size <= room for room in rooms))

    @cached_property
    def _near(self) -> ByPool:
        """By pool, what draws the container there: others, devices and memory."""
        tree, sizes_bytes = self.room.tree, self.division.memory_bytes
        pages = page_criteria(tree, self.others, self.container)
        affinities = affinity_criteria(tree, self.others, self.container, self.request)
        kinds, hints = kind_criteria(tree, self.request.memory_kinds), hint_criteria(tree, self.request)
        last = (hints, kinds, burst_criteria(sizes_bytes, self.container)) if self.is_nri else (kinds, hints)
        parts = [part for part in (pages, affinities, *last) if part]
        return [tuple(chain.from_iterable(of_pool)) for of_pool in zip(*parts, strict=True)] or [()] * len(tree.pools)

    def allows(self, pool: Pool) -> bool:
        """Whether a pool is near enough to what the container must be near, and to where it is already."""
        hints = self.request.hints if self.request.strict else ()
        near = not hints or is_near_all(self.room.tree.topology, pool.cpus, hints) or self._can_split(pool)
        return near and self.is_around_home(pool)

    def _can_split(self, pool: Pool) -> bool:
        """Whether all CPUs that the container is to own can be taken next to its devices, in a pool with others."""
        request, tree = self.request, self.room.tree
        several = len(set(request.hints)) > 1
        if not several or not request.owned or request.shared_milli or request.by_hint is False:
            return False
        near = nodes_of(request.hints)
        free = self.room.spare_cpus(pool.index, request.owned)
        sides = (tree.topology.nodes_of(free) & hint for hint in request.hints)
        return all(sides) and len([cpu for cpu in free if tree.topology.nodes_of((cpu,)) <= near]) >= request.owned

    def _allowed(self) -> Sequence[Pool]:
        pools = self.room.tree.pools
        return [pool for pool in pools if self.allows(pool)] if self.home or self.request.strict else pools

    def is_around_home(self, pool: Pool) -> bool:
        """Whether its memory is near there, if it runs: on the same NUMA nodes, or in a part of the machine around."""
        tree = self.room.tree
        home = tree.by_name.get(self.home)
        return home is None or pool.index in home.path or tree.nodes[pool.index] <= tree.nodes[home.index]

    def fitting(self) -> list[Pool]:
        """The pools with room for a container that shares."""
        room, milli = self.room, self.request.shared_milli
        there = [pool for pool in self._allowed() if room.shared[pool.index]]
        fitting = [pool for pool in there if room.free_milli[pool.index] >= self.wanted_milli]
        return fitting or [pool for pool in there if room.free_milli[pool.index] >= milli]

    def sharing(self, fitting: Sequence[Pool]) -> list[Candidate]:
        """The pools *fitting*, best first."""
        return ranked(Candidate(pool.index, pool.name, self._sharing_criteria(pool)) for pool in fitting)

    @property
    def wanted_milli(self) -> int:
        """What a pool has for a shared container, if it has that much: by CRI-RM's rules not all that is left."""
        return self.request.shared_milli + (not self.is_nri)

    def _sharing_criteria(self, pool: Pool) -> tuple[Criterion, ...]:
        return (
            Criterion("it is already there", int(pool.name != self.home)),
            *self._memory_fits[pool.index],
            *self._near[pool.index],
            *self._burst(pool),
            Criterion("its size", self.room.tree.heights[pool.index], Unit.FEWER),
            Criterion("it has fewer containers", self.room.loads[pool.index].containers, Unit.FEWER),
            Criterion("it has more free CPU", -self.room.free_milli[pool.index], Unit.MORE_MILLI),
        )

    def _burst(self, pool: Pool) -> tuple[Criterion, ...]:
        """Whether there is room for what a Burstable container may use beyond its request."""
        if self.request.limit_milli is not None:
            # Reserved CPUs count: a pool that lacks only these is as good as its neighbours.
            size = len(self.room.shared[pool.index]) + len(self.division.reserved & pool.cpus)
            free = 1000 * size - self.room.loads[pool.index].granted_milli
            return (Criterion("its limit fits", int(self.request.limit_milli > free)),)
        if self.request.burst is None:
            return ()
        steps = self.room.tree.steps_from[self.request.burst][pool.index]
        return (
            Criterion("it is nearer to the size that it asks for", steps, Unit.FEWER),
            Criterion("it comes first of those of its size", pool.index if steps else 0, Unit.FEWER),
        )

    def owning(self) -> list[Candidate]:
        """The pools with CPUs that can become exclusive, isolated ones or shared ones, best first."""
        can_take = not self.request.isolated_only and self.division.own_sharable()
        can_take = can_take and self.request.owned <= available(self.room, self.request.shared_milli)
        found = list[Candidate]()
        for pool in self._allowed():
            quiet = self._is_quiet(pool)
            if quiet or (can_take and self.missing_cpus(pool) <= 0):
                found.append(Candidate(pool.index, pool.name, self._owning_criteria(pool, quiet)))
        return ranked(found)

    def owning_anywhere(self) -> bool:
        """Whether there would be a pool if it had not to be close to its devices."""
        return bool(replace(self, request=replace(self.request, strict=False)).owning())

    def _is_quiet(self, pool: Pool) -> bool:
        """Whether isolated CPUs of *pool* suffice, beside some to share if it shares, too."""
        enough = bool(self.isolated) and len(self.isolated & pool.cpus) >= self.request.owned
        return enough and (not self.request.shared_milli or bool(self.room.shared[pool.index]))

    def missing_cpus(self, pool: Pool) -> int:
        """How many exclusive CPUs a pool lacks, whatever shared containers need; 0 or less where it has them."""
        left = len(self.room.shared[pool.index]) - bool(self.request.shared_milli)
        return self.request.owned - min(left, len(self.room.ownable(pool.index)))

    def _owning_criteria(self, pool: Pool, quiet: bool) -> tuple[Criterion, ...]:
        isolated = len(self.isolated & pool.cpus) if quiet else 0
        return (
            Criterion("it leaves more to shared containers", self._short(pool, quiet=quiet), Unit.FEWER),
            Criterion("it does not become empty", int(self._is_emptied(pool, quiet=quiet))),
            Criterion("it is already there", int(pool.name != self.home)),
            *self._memory_fits[pool.index],
            Criterion("it has isolated CPUs", int(not quiet)),
            *self._near[pool.index],
            *self._of_kind(pool, quiet=quiet),
            Criterion("its size", self.room.tree.heights[pool.index], Unit.FEWER),
            Criterion("it has more isolated CPUs", -isolated, Unit.MORE),
            Criterion("it has more free CPU", -self.room.free_milli[pool.index], Unit.MORE_MILLI),
            Criterion("it has fewer containers", self.room.loads[pool.index].containers, Unit.FEWER),
        )

    def _of_kind(self, pool: Pool, *, quiet: bool) -> tuple[Criterion, ...]:
        """How many of its exclusive CPUs there would be of the kind that it prefers."""
        if not self.liked:
            return ()
        there = 0 if quiet else min(self.request.owned, len(self.room.ownable(pool.index) & self.liked))
        return (Criterion("it has more CPUs of the kind that it prefers", -there, Unit.MORE),)

    def _short(self, pool: Pool, *, quiet: bool) -> int:
        """How many CPUs the shared containers in *pool* lack then, this container included."""
        request, room = self.request, self.room
        if quiet:  # it takes from shared containers only what it shares itself
            return -(-max(0, request.shared_milli - room.free_milli[pool.index]) // 1000)
        return max(0, request.owned - room.spare(pool.index, request.shared_milli))

    def _is_emptied(self, pool: Pool, *, quiet: bool) -> bool:
        """Whether nothing would be left to share, where the rules do not allow that."""
        request = self.request
        taken = request.shared_milli + (0 if quiet else 1000 * request.owned)
        return not self.is_nri and taken > 0 and self.room.free_milli[pool.index] <= taken


def available(room: Capacity, shared_milli: int) -> int:
    """How many CPUs of the machine can become exclusive, beside those that must stay shared."""
    return max(0, min(len(room.ownable(0)), len(room.shared[0]) - room.needed(0, shared_milli)))


def _held(name: str, by_pool: Iterable[bool]) -> ByPool:
    """By pool, one criterion: what its name says holds there, or not."""
    return [(Criterion(name, int(not holds)),) for holds in by_pool]


def _asked_bytes(container: Container, *, by_limit: bool) -> int:
    """The memory that counts: with *by_limit* the limit of a Burstable container (CRI-RM), else its request (nri)."""
    request = container.memory_request_bytes
    if container.qos is QosClass.BEST_EFFORT:
        return 0
    if container.qos is QosClass.GUARANTEED or (by_limit and container.memory_limit_bytes):
        return container.memory_limit_bytes or 0
    return request.low if request else 0


def burst_criteria(sizes_bytes: Sequence[int], container: Container) -> ByPool:
    """Whether the memory of a pool is as large as what a Burstable container may use beyond its request, or nothing.

    Without a limit that is all there is: the larger, the better.

    Args:
        sizes_bytes: by pool, see `Division.memory_bytes`.
        container: none is needed for one that is not Burstable, or asks for nothing.
    """
    request, limit = container.memory_request_bytes, container.memory_limit_bytes
    if container.qos is not QosClass.BURSTABLE or not (limit or (request and request.low)):
        return ()
    if limit:
        return _held("its memory limit fits", (limit <= size for size in sizes_bytes))
    return [(Criterion("it has more memory", -size, Unit.MORE_BYTES),) for size in sizes_bytes]


def kind_criteria(tree: PoolTree, kinds: frozenset[MemoryKind]) -> ByPool:
    """Whether a pool has the *kinds* of memory that are asked for; nothing if none are."""
    if not kinds:
        return ()
    return _held("it has the memory that it asks for", (kinds <= _kinds(tree.topology, near) for near in tree.nodes))


def page_criteria(tree: PoolTree, others: Node, container: Container) -> ByPool:
    """Whether a pool has the huge pages that are asked for; nothing if none are."""
    if not container.huge_pages:
        return ()
    promised = promised_bytes(others, container)
    missing = (are_missing(promised, container, with_attached(tree.topology, near)) for near in tree.nodes)
    return _held("it has the huge pages that it asks for", (not each for each in missing))


def _kinds(topology: Topology, near: CpuSet) -> frozenset[MemoryKind]:
    mems = with_attached(topology, near) & (topology.mems | topology.other_mems)
    return frozenset(topology.node_by_id[mem].kind for mem in mems)
