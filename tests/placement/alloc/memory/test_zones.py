"""Memory zones hold the published cases of nri-plugins, and come back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.topology import MemoryKind, NumaNode, Topology
from criproxy.placement.alloc.memory.zones import Memory, MemoryRequest, Priority, first_zone
from tests.placement.alloc.placed import Placed, allocate, over_capacity

DRAM, PMEM, HBM = MemoryKind.DRAM, MemoryKind.PMEM, MemoryKind.HBM
PRIORITIES = {None: Priority.BEST_EFFORT, "burstable": Priority.BURSTABLE, "guaranteed": Priority.GUARANTEED}


def machine(
    kinds: list[MemoryKind], distances: list[list[int]], memory_bytes: int = 4, movable: CpuSet = frozenset()
) -> Memory:
    """Nodes of equal size."""
    ids = range(len(kinds))
    nodes = tuple(
        NumaNode(id=i, cpus=frozenset(), memory_bytes=memory_bytes, normal_memory=i not in movable, kind=kinds[i])
        for i in ids
    )
    cpus = frozenset({0})
    plain = Topology(cpus=cpus, mems=frozenset(ids), nodes=nodes, cores=(), packages=(), online_cpus=cpus)
    return Memory(replace(plain, distances=tuple(map(tuple, distances))))


@pytest.fixture(scope="module")
def vectors(shared_dir: Path) -> dict[str, Any]:
    """The acceptance vectors by id."""
    document = yaml.safe_load((shared_dir / "scenarios" / "crirm-vectors.yaml").read_text())
    return {vector["id"]: vector for vector in document["vectors"]}


def test_zones_grow_by_the_nearest_nodes_of_each_kind(vectors: dict[str, Any]) -> None:
    """Every ring of vector V27."""
    vector = vectors["V27"]
    memory = machine([DRAM] * 4 + [PMEM] * 4 + [HBM] * 4, vector["distance"])
    for case in vector["cases"]:
        zone = memory.mask(parse_cpuset(case["from"]))
        for ring in case["out"]:
            more = memory.expand(zone, frozenset(map(MemoryKind, case["kinds"])))
            assert memory.nodes(more) == parse_cpuset(ring), case
            zone |= more
        assert not memory.expand(zone, frozenset(map(MemoryKind, case["kinds"]))), case


def test_requests_of_less_priority_give_way(vectors: dict[str, Any]) -> None:
    """Every step of vector V26 but those that nri-plugins refuses: criproxy refuses no container for its memory."""
    vector = vectors["V26"]
    memory = machine([DRAM] * 4 + [PMEM] * 4, vector["distance"])
    placed: dict[str, Placed] = {}
    for case in (case for case in vector["cases"] if case["out"] != "error"):
        request = MemoryRequest(
            key=str(case["id"]),
            size_bytes=case["size"],
            nodes=parse_cpuset(str(case["affinity"])),
            kinds=frozenset({DRAM}),
            priority=Priority.RESERVATION if case.get("preserve") else PRIORITIES[case.get("qos")],
        )
        found, others = allocate(memory, list(placed.values()), request)
        assert found == parse_cpuset(str(case["out"])), case
        moved = {str(key): parse_cpuset(str(zone)) for key, zone in case.get("moved", {}).items()}
        assert others == moved, case
        placed[request.key] = Placed(request, found)
        for key, zone in moved.items():
            placed[key] = Placed(placed[key].request, zone)
        if case.get("then_release") == "all":
            placed.clear()


NEAR = [[10, 11, 21, 17], [11, 10, 21, 28], [21, 21, 10, 28], [17, 28, 28, 10]]


def ask(key: str, size: int, nodes: str = "0", **more: Any) -> MemoryRequest:  # noqa: ANN401 - fields of a request
    """A request for *size* bytes."""
    return MemoryRequest(key=key, size_bytes=size, nodes=parse_cpuset(nodes), **more)


def test_a_kind_that_the_nodes_lack_is_taken_from_nearby_and_theirs_left_out() -> None:
    """Memory of one kind near a node of another is that kind alone."""
    memory = machine([DRAM, DRAM, DRAM, PMEM], NEAR)
    assert memory.nodes(first_zone(memory, ask("a", 1, kinds=frozenset({PMEM})))) == {3}
    assert memory.nodes(first_zone(memory, ask("a", 1, kinds=frozenset({PMEM, DRAM})))) == {0, 3}
    assert memory.nodes(first_zone(memory, ask("a", 1, kinds=frozenset({HBM})))) == {0}


def test_movable_memory_never_stands_alone() -> None:
    """The nearest node with normal memory comes with it."""
    memory = machine([DRAM, DRAM, DRAM, PMEM], NEAR, movable=frozenset({0, 3}))
    assert memory.nodes(first_zone(memory, ask("a", 1))) == {0, 1}
    assert memory.nodes(first_zone(memory, ask("a", 1, kinds=frozenset({PMEM})))) == {0, 1, 3}


def test_a_reservation_never_moves() -> None:
    """Then who comes has to go elsewhere, whatever its priority."""
    memory = machine([DRAM, DRAM, DRAM, PMEM], NEAR)
    kept = Placed(ask("kept", 4, priority=Priority.RESERVATION), frozenset({0}))
    assert allocate(memory, [kept], ask("new", 2, priority=Priority.GUARANTEED)) == (frozenset({0, 1}), {})


def test_those_within_a_zone_give_way_where_its_own_users_cannot() -> None:
    """A zone that is full for one who never moves has room again when those with fewer of its nodes get others, too."""
    memory = machine([DRAM] * 3, [[10, 11, 20], [11, 10, 20], [20, 20, 10]])
    kept = Placed(ask("kept", 5, "0,1", priority=Priority.RESERVATION), frozenset({0, 1}))

    assert allocate(memory, [kept], ask("new", 4)) == (frozenset({0, 1, 2}), {})


def test_zones_that_overlap_are_not_promised_twice() -> None:
    """Two zones that have room each, and together have not, count as full."""
    memory = machine([DRAM, DRAM, DRAM, PMEM], NEAR)
    placed = [Placed(ask("a", 6, "0,1"), frozenset({0, 1})), Placed(ask("b", 6, "1,2"), frozenset({1, 2}))]
    assert over_capacity(memory, placed) == []
    found, moved = allocate(memory, placed, ask("c", 1, "1", priority=Priority.GUARANTEED))
    after = {"c": found, "a": placed[0].zone, "b": placed[1].zone, **moved}
    requests = {one.request.key: one.request for one in placed} | {"c": ask("c", 1, "1")}
    assert over_capacity(memory, [Placed(requests[key], zone) for key, zone in after.items()]) == []
    assert after["c"] == {1}
