"""Requests for memory and the nodes that they have, as crowds in which `alloc.memory.moving` moves them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.placement.alloc.memory.moving import Crowd
from criproxy.placement.alloc.memory.moving import allocate as allocate_in
from criproxy.placement.alloc.memory.zones import Mask, Memory, MemoryRequest, Promises


@dataclass(frozen=True, slots=True)
class Placed:
    """A request and the nodes that it has."""

    request: MemoryRequest
    zone: CpuSet


def crowd_of(memory: Memory, placed: Iterable[Placed]) -> Crowd:
    """Those who are *placed*, oldest first."""
    promises, keys = Promises(memory), dict[Mask, list[str]]()
    requests = {one.request.key: one.request for one in placed}
    for one in placed:
        mask = memory.mask(one.zone)
        keys.setdefault(mask, []).append(one.request.key)
        promises.add(mask, one.request.size_bytes, at_home=one.request.nodes == one.zone)
    return Crowd(promises, keys, requests.__getitem__, requests)


def allocate(memory: Memory, placed: Sequence[Placed], request: MemoryRequest) -> tuple[CpuSet, Mapping[str, CpuSet]]:
    """Find nodes for *request* beside those that are *placed*, oldest first."""
    return allocate_in(crowd_of(memory, placed), request)


def over_capacity(memory: Memory, placed: Iterable[Placed]) -> list[tuple[CpuSet, int]]:
    """Sets of nodes of which more is promised than they have, and by how many bytes."""
    over = crowd_of(memory, placed).promises.over(memory.all)
    return [(memory.nodes(zone), size) for zone, size in over]
