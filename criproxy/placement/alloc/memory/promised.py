"""What the containers of a node are promised of its memory, by their zones, and what they may use of its huge pages.

Zones: one crowd after the other, cheap if few differ. The kernel gives huge pages only of the nodes that a container is
kept to. How many of them are free was read when the container was created; others that came just before may not have
used theirs yet.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import NamedTuple

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Grant
from criproxy.model.machine.hardware import HugePageRequest
from criproxy.model.machine.topology import LOCAL_DISTANCE, MemoryKind, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.memory.moving import Crowd
from criproxy.placement.alloc.memory.zones import Mask, Memory, MemoryRequest, Priority, Promises
from criproxy.placement.alloc.sums import Change, Sums

_Place = tuple[Mask, bool]
"""A zone, and whether it is the first one of the containers that have it."""


class _Part(NamedTuple):
    """What one container is promised."""

    place: _Place
    size_bytes: int


class _Share(NamedTuple):
    """What all those with the same zone are promised."""

    size_bytes: int
    keys: frozenset[str]


class Crowds:
    """The crowds of one machine.

    Those with memory from all nodes are in none, except where that makes a difference.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._shares = Sums(self._part, attrgetter("mems", "home_mems"), dict[_Place, _Share](), _changed)

    def of(self, node: Node, grants: Mapping[str, Grant], without: str = "") -> Crowd:
        """All containers in the layout *grants* of *node* but *without*."""
        promises, by_zone = Promises(self._memory), dict[Mask, frozenset[str]]()
        for (zone, at_home), share in sorted(self._shares.of(node, grants, without).items(), key=itemgetter(0)):
            promises.add(zone, share.size_bytes, at_home=at_home)
            by_zone[zone] = by_zone[zone] | share.keys if zone in by_zone else share.keys
        return Crowd(promises, by_zone, lambda key: _request_of(node, grants[key], key), grants)

    def _part(self, node: Node, key: str, grant: Grant) -> _Part | None:
        zone, at_home = self._memory.mask(grant.mems or _unknown(node, key)), not grant.home_mems
        if not zone or (zone == self._memory.all and at_home and not self._memory.pessimistic):
            return None
        container = node.containers.get(key)
        return _Part((zone, at_home), counted_bytes(container)) if container else None


def _changed(shares: Mapping[_Place, _Share], changes: Sequence[Change[_Part]]) -> dict[_Place, _Share]:
    found = dict(shares)
    for key, old, new in changes:
        if old:
            size_bytes, keys = found.pop(old.place)
            if left := keys - {key}:
                found[old.place] = _Share(size_bytes - old.size_bytes, left)
        if new:
            size_bytes, keys = found.get(new.place, _Share(0, frozenset()))
            found[new.place] = _Share(size_bytes + new.size_bytes, keys | {key})
    return found


def _request_of(node: Node, grant: Grant, key: str) -> MemoryRequest:
    """What a placed container asked for."""
    mems = (grant.mems or _unknown(node, key)) & node.topology.mems
    request = request_for(node.containers[key], grant.home_mems & mems or mems, frozenset())
    # A container on nodes that the policy may not use, or that were never set, does not move.
    return request if grant.mems == mems else replace(request, priority=Priority.RESERVATION)


def _unknown(node: Node, key: str) -> CpuSet:
    """The nodes of a container whose memory was never set: the applied ones, else all."""
    applied = node.applied.get(key)
    return (applied.mems & node.topology.mems if applied else frozenset()) or node.topology.mems


def counted_bytes(container: Container) -> int:
    """What a container is promised: its limit, else the most that its request may be; 0 where neither is known."""
    if container.memory_limit_bytes:
        return container.memory_limit_bytes
    request = container.memory_request_bytes
    return request.high if request else 0


def request_for(container: Container, nodes: CpuSet, kinds: frozenset[MemoryKind]) -> MemoryRequest:
    """A container's memory near *nodes*."""
    size_bytes, priority = counted_bytes(container), Priority[container.qos.name]
    return MemoryRequest(key=container.key, size_bytes=size_bytes, nodes=nodes, kinds=kinds, priority=priority)


Promised = Mapping[tuple[int, CpuSet], int]
"""By the size of a page and the NUMA nodes to which containers are kept, how many bytes these may use."""


def promised_bytes(node: Node, container: Container) -> Promised:
    """What other containers of *node* may use of huge pages; empty if *container* asks for none."""
    found: Counter[tuple[int, CpuSet]] = Counter()
    if container.huge_pages:
        containers = node.containers
        for key, grant in node.grants.items():
            if key != container.key and grant.mems and key in containers:
                for each in containers[key].huge_pages:
                    found[each.size_bytes, grant.mems] += each.limit_bytes
    return found


def are_missing(promised: Promised, container: Container, mems: CpuSet) -> bool:
    """Whether the NUMA nodes *mems* lack huge pages that *container* asks for, beside what is *promised*."""
    return any(_room_bytes(promised, each, mems) < each.limit_bytes for each in container.huge_pages)


def with_huge_pages(topology: Topology, promised: Promised, container: Container, mems: CpuSet) -> CpuSet:
    """Return *mems* and the nearest NUMA nodes that it takes for the huge pages of *container*.

    Where too few are free on all nodes together, every node that has some is added; where it is unknown how many there
    are, every node. Where no node has any, none is added.

    Args:
        topology: the machine.
        promised: what others may use.
        container: the one that asks.
        mems: where its other memory comes from.
    """
    for asked in container.huge_pages:
        mems = _reaching(topology, promised, asked, mems)
    return mems


def _reaching(topology: Topology, promised: Promised, asked: HugePageRequest, mems: CpuSet) -> CpuSet:
    open_nodes = topology.mems | mems
    have = {each.node: each.free for each in asked.there if each.total and each.node in open_nodes}

    def order(other: int) -> tuple[int, int, int]:
        near = (topology.distance(one, other) for one in mems)
        return min(near, default=LOCAL_DISTANCE), -have[other], other

    nearest = sorted((each for each in have.keys() - mems if have[each]), key=order)
    growing = (mems.union(nearest[:count]) for count in range(len(nearest) + 1))
    enough = (found for found in growing if _room_bytes(promised, asked, found) >= asked.limit_bytes)
    return next(enough, mems.union(have) if asked.there else open_nodes)


def _room_bytes(promised: Promised, asked: HugePageRequest, mems: CpuSet) -> int:
    """How much of its pages *mems* have: what is free, and not more than others, who need not use theirs yet, leave."""
    there = [each for each in asked.there if each.node in mems]
    free = sum(each.free for each in there)
    total = sum(each.total for each in there)
    taken = sum(limit for (size, kept), limit in promised.items() if size == asked.size_bytes and kept <= mems)
    return min(free * asked.size_bytes, total * asked.size_bytes - taken)
