"""Memory zones hold the published cases of nri-plugins, and come back."""

from typing import Any

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.machine.topology import MemoryKind, NumaNode, Topology
from criproxy.placement.alloc.memory.zones import Memory, MemoryRequest, Priority
from tests.placement.alloc.placed import Placed, allocate, over_capacity

DRAM, PMEM = MemoryKind.DRAM, MemoryKind.PMEM


def machine(kinds: list[MemoryKind], distances: list[list[int]]) -> Memory:
    """Nodes of equal size."""
    ids = range(len(kinds))
    nodes = tuple(NumaNode(id=i, cpus=frozenset(), memory_bytes=4, kind=kinds[i]) for i in ids)
    return Memory(
        Topology(
            cpus=frozenset({0}),
            mems=frozenset(ids),
            nodes=nodes,
            cores=(),
            packages=(),
            online_cpus=frozenset({0}),
            distances=tuple(map(tuple, distances)),
        )
    )


NEAR = [[10, 11, 21, 17], [11, 10, 21, 28], [21, 21, 10, 28], [17, 28, 28, 10]]


def ask(key: str, size: int, nodes: str = "0", **more: Any) -> MemoryRequest:  # noqa: ANN401 - fields of a request
    """A request for *size* bytes."""
    return MemoryRequest(key=key, size_bytes=size, nodes=parse_cpuset(nodes), **more)


def test_a_reservation_never_moves() -> None:
    """Then who comes has to go elsewhere, whatever its priority."""
    memory = machine([DRAM, DRAM, DRAM, PMEM], NEAR)
    kept = Placed(ask("kept", 4, priority=Priority.RESERVATION), frozenset({0}))
    done = allocate(memory, [kept], ask("new", 2, priority=Priority.GUARANTEED))
    assert (done.zone, done.moved) == (frozenset({0, 1}), {})


def test_those_within_a_zone_give_way_where_its_own_users_cannot() -> None:
    """A zone that is full for one who never moves has room again when those with fewer of its nodes get others, too."""
    memory = machine([DRAM] * 3, [[10, 11, 20], [11, 10, 20], [20, 20, 10]])
    kept = Placed(ask("kept", 5, "0,1", priority=Priority.RESERVATION), frozenset({0, 1}))

    done = allocate(memory, [kept], ask("new", 4))

    assert (done.zone, done.moved) == (frozenset({0, 1, 2}), {})


def test_zones_that_overlap_are_not_promised_twice() -> None:
    """Two zones that have room each, and together have not, count as full."""
    memory = machine([DRAM, DRAM, DRAM, PMEM], NEAR)
    placed = [Placed(ask("a", 6, "0,1"), frozenset({0, 1})), Placed(ask("b", 6, "1,2"), frozenset({1, 2}))]
    assert over_capacity(memory, placed) == []
    done = allocate(memory, placed, ask("c", 1, "1", priority=Priority.GUARANTEED))
    after = {"c": done.zone, "a": placed[0].zone, "b": placed[1].zone} | dict(done.moved)
    requests = {one.request.key: one.request for one in placed} | {"c": ask("c", 1, "1")}
    assert over_capacity(memory, [Placed(requests[key], zone) for key, zone in after.items()]) == []
    assert after["c"] == {1}
