"""Memory zones: which NUMA nodes each container's memory may come from, so that no set of nodes is promised twice.

A zone is a set of NUMA nodes that some requests share. A zone is over capacity when the requests whose zones lie within
it ask for more than its nodes have; then some have to move out of it (`moving`), by widening their own zone to
the nearest nodes. The rules are those of nri-plugins' memory allocator.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import MemoryKind, Topology

Mask = int
"""A set of NUMA nodes: bit *i* is the *i*-th node of `Memory.ids`."""

KINDS = (MemoryKind.DRAM, MemoryKind.PMEM, MemoryKind.HBM, MemoryKind.DEVICE)
"""In the order in which zones grow beyond the kinds that they have."""
_MAX_UNIONS = 256
"""Zones and unions of them that are looked at; more than that occurs on no machine."""


class Priority(IntEnum):
    """How unwilling a request is to move, by the names of `QosClass`; the numbers are nri-plugins'."""

    BEST_EFFORT = 0
    BURSTABLE = 1 << 10
    GUARANTEED = 1 << 14
    RESERVATION = (1 << 15) - 1
    """Never moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """A request for memory near some nodes."""

    key: str
    size_bytes: int
    nodes: CpuSet
    """NUMA nodes to begin with: those of its CPUs."""
    kinds: frozenset[MemoryKind] = frozenset()
    """Of memory; empty: the kinds of *nodes*."""
    priority: Priority = Priority.BEST_EFFORT


class Memory:
    """The memory of one machine, prepared for many questions. All nodes together may be promised more than they have.

    Args:
        topology: its nodes with their kinds, and the distances between them.
        percent: how much of a node's memory may be promised.
        pessimistic: a container that may use more than a zone may use all of it in that zone, as CRI-RM counts.
    """

    def __init__(self, topology: Topology, *, percent: int = 100, pessimistic: bool = False) -> None:
        nodes = [node for node in topology.nodes if node.id in topology.mems]
        self.pessimistic = pessimistic
        self.ids = tuple(node.id for node in nodes)
        self.all = (1 << len(self.ids)) - 1
        self._bit = {id_: 1 << place for place, id_ in enumerate(self.ids)}
        self._sizes = [(1 << place, node.memory_bytes * percent // 100) for place, node in enumerate(nodes)]
        self.of_kind = {kind: self.mask(node.id for node in nodes if node.kind is kind) for kind in KINDS}
        self.normal = self.mask(node.id for node in nodes if node.normal_memory)
        self._distances = [[topology.distance(one, other) for other in self.ids] for one in self.ids]
        self._expanded: dict[tuple[Mask, frozenset[MemoryKind]], Mask] = {}

    def mask(self, nodes: Iterable[int]) -> Mask:
        """The set of those of *nodes* that this machine has."""
        return sum([self._bit.get(node, 0) for node in nodes])

    def nodes(self, mask: Mask) -> CpuSet:
        """The ids in *mask*."""
        return frozenset([node for node, bit in self._bit.items() if bit & mask])

    def capacity_bytes(self, mask: Mask) -> int:
        """What the nodes of *mask* have together."""
        return sum([size for bit, size in self._sizes if bit & mask])

    def kinds(self, mask: Mask) -> frozenset[MemoryKind]:
        """The kinds of memory in *mask*."""
        return frozenset([kind for kind, nodes in self.of_kind.items() if nodes & mask])

    def with_kinds(self, kinds: frozenset[MemoryKind]) -> Mask:
        """All nodes of these kinds."""
        return sum([self.of_kind[kind] for kind in kinds])

    def expand(self, zone: Mask, kinds: frozenset[MemoryKind]) -> Mask:
        """The nodes that *zone* grows by: of each kind those nearest to any of its own; 0 if there are none."""
        if (zone, kinds) not in self._expanded:
            self._expanded[zone, kinds] = sum(self._nearest(zone, self.of_kind[kind] & ~zone) for kind in kinds)
        return self._expanded[zone, kinds]

    def grown(self, zone: Mask) -> Mask:
        """*zone* with the nodes that it grows by: of its own kinds or, if there are no more of them, of all."""
        return zone | (self.expand(zone, self.kinds(zone)) or self.expand(zone, frozenset(self.of_kind)))

    def _nearest(self, zone: Mask, wanted: Mask) -> Mask:
        rows = [self._distances[place] for place in _places(zone)]
        near = {place: min(row[place] for row in rows) for place in _places(wanted)} if rows else {}
        least = min(near.values(), default=0)
        return sum(1 << place for place, distance in near.items() if distance == least)


def _places(mask: Mask) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Promises:
    """How many bytes of which sets of nodes are promised."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.used: dict[Mask, int] = {}
        self._wide: dict[Mask, int] = {}
        """Of those who were never moved there; only a pessimistic machine needs it."""

    def add(self, zone: Mask, size_bytes: int, *, at_home: bool = True) -> None:
        """Promise *size_bytes* on *zone* to a container; *at_home*: this is its first zone."""
        self.used[zone] = self.used.get(zone, 0) + size_bytes
        if at_home and self.memory.pessimistic:
            self._wide[zone] = self._wide.get(zone, 0) + size_bytes

    def take(self, zone: Mask, size_bytes: int, *, last: bool) -> None:
        """Take back a promise; *last*: no other container has one on the very same zone."""
        self.used[zone] -= size_bytes
        if last:
            del self.used[zone]

    def copy(self) -> "Promises":
        """The same promises, to be changed."""
        same = Promises(self.memory)
        same.used, same._wide = dict(self.used), dict(self._wide)
        return same

    def fits(self, zone: Mask, size_bytes: int) -> bool:
        """Whether *size_bytes* more on *zone* would leave no set of nodes over capacity that is concerned by them."""
        trial = self.copy()
        trial.add(zone, size_bytes)
        within = zone if self.memory.pessimistic else 0
        return all(zone & ~part and part & ~within for part, _ in trial.over(zone))

    def over(self, nodes: Mask) -> Iterator[tuple[Mask, int]]:
        """Promised zones with any of *nodes*, and unions of zones, that are over capacity, and by how many bytes."""
        for zone in self._unions():
            if zone & nodes and (size := self._spill(zone)) > 0:
                yield zone, size

    def room_bytes(self, zone: Mask) -> int:
        """What can still be promised on *zone*; negative where that has gone too far."""
        return -self._spill(zone)

    def _spill(self, zone: Mask) -> int:
        memory = self.memory
        if zone == memory.all:
            return 0
        inside = sum(size for part, size in self.used.items() if not part & ~zone)
        around = sum(size for part, size in self._wide.items() if not zone & ~part and part != zone)
        return inside + around - memory.capacity_bytes(zone)

    def _unions(self) -> Iterable[Mask]:
        """All zones, and what those that overlap make together."""
        found = dict.fromkeys(self.used)
        queue = list(found)
        while queue and len(found) < _MAX_UNIONS:
            zone = queue.pop()
            for other in self.used:
                union = zone | other
                if zone & other and union not in found:
                    found[union] = None
                    queue.append(union)
        return found


def first_zone(memory: Memory, request: MemoryRequest) -> Mask:
    """Where *request* would be on an empty machine.

    Its nodes, and the nearest of those kinds that its nodes lack, without the kinds that it did not ask for. At least
    one node has memory that the kernel can use for itself.

    Raises:
        NotEnough: there is no such node or kind of memory.
    """
    unknown = request.nodes - set(memory.ids)
    if unknown or not request.nodes:
        which = f"NUMA node {format_cpuset(unknown)} does not exist" if unknown else "no NUMA node is near its CPUs"
        raise NotEnough(f"no memory for {request.key}: {which}")
    zone = memory.mask(request.nodes)
    kinds = request.kinds & memory.kinds(memory.all) or memory.kinds(zone)
    zone |= memory.expand(zone, kinds - memory.kinds(zone))
    return _with_normal(memory, request, zone & memory.with_kinds(kinds) or zone, kinds)


def _with_normal(memory: Memory, request: MemoryRequest, zone: Mask, kinds: frozenset[MemoryKind]) -> Mask:
    """*zone*, widened until the kernel finds memory for itself in it: movable-only nodes cannot stand alone."""
    normal = memory.kinds(memory.normal)
    usable = kinds & normal or frozenset([kind for kind in KINDS if kind in normal][:1])
    while not zone & memory.normal:
        more = memory.expand(zone, usable)
        if not more:
            raise NotEnough(f"no memory for {request.key}: no node has memory that the kernel can use for itself")
        zone |= more
    return zone
