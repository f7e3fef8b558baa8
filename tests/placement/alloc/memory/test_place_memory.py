"""Memory near CPUs is promised once; who has to give way gets it from more nodes, and comes back."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import NO_CPUS, Applied, Change, Grant
from criproxy.model.machine.topology import MemoryKind, NumaNode, Topology
from criproxy.model.node import Node, without
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.memory.place_memory import ANY, MemoryWish, place_memory, return_memory
from criproxy.simulate.hosts import GIB, machine
from tests.laws import promised_beyond

DRAM, PMEM, HBM = MemoryKind.DRAM, MemoryKind.PMEM, MemoryKind.HBM
G, B = QosClass.GUARANTEED, QosClass.BURSTABLE
FOUR = machine(nodes=4, cores=2, threads=1, packages=2, memory_bytes=10 * GIB)
FAR = ((10, 12, 20, 20), (12, 10, 20, 20), (20, 20, 10, 12), (20, 20, 12, 10))
FOUR = replace(FOUR, distances=FAR)
"""Nodes 0 and 1, and 2 and 3, are close to each other."""


def tiers() -> Topology:
    """DRAM of 10 GiB in nodes 0 and 1, next to them HBM of 2 GiB in 2 and 3, and PMEM of 20 GiB in 4 and 5."""
    two = machine(nodes=2, cores=2, threads=1, memory_bytes=10 * GIB)
    lone = [NumaNode(i, NO_CPUS, 2 * GIB, kind=HBM) for i in (2, 3)]
    lone += [NumaNode(i, NO_CPUS, 20 * GIB, kind=PMEM) for i in (4, 5)]
    distances = tuple(tuple(10 if a == b else (14 if a % 2 == b % 2 else 30) for b in range(6)) for a in range(6))
    return replace(two, nodes=(*two.nodes, *lone), mems=frozenset(range(6)), distances=distances)


class World:
    """A node on which containers come and go whose CPUs are near some NUMA nodes."""

    def __init__(self, topology: Topology = FOUR, *, pessimistic: bool = False) -> None:
        self.node = Node(topology)
        self.pessimistic = pessimistic
        self.reason = ""

    def come(
        self, key: str, near: str, gib: float | None, qos: QosClass = G, wish: MemoryWish = ANY, cpus: str = "0"
    ) -> "World":
        """One more container, or another size of one that is there."""
        size = None if gib is None else int(gib * GIB)
        container = Container(key=key, pod="s", name=key, qos=qos, memory_limit_bytes=size)
        self.node = self.node.replace(containers={**self.node.containers, key: container})
        had = self.node.grants.get(key, Grant(parse_cpuset(cpus), NO_CPUS))
        nodes = parse_cpuset(near)
        return self._set(place_memory(self.node, {key: had}, container, nodes, wish, pessimistic=self.pessimistic))

    def go(self, key: str) -> "World":
        """It leaves."""
        node = self.node
        self.node = node.replace(containers=without(node.containers, (key,)), grants=without(node.grants, (key,)))
        return self._set(return_memory(self.node, {}, pessimistic=self.pessimistic))

    def _set(self, change: Change) -> "World":
        self.node = self.node.replace(grants={**self.node.grants, **change.grants})
        self.reason = "; ".join(reason.text for reason in change.reasons_about(None))
        assert not promised_beyond(self.node)
        return self

    @property
    def mems(self) -> Mapping[str, str]:
        """Where memory comes from, by container."""
        return {key: format_cpuset(grant.mems) for key, grant in self.node.grants.items()}


def test_the_least_important_gives_way_and_comes_back() -> None:
    """A Burstable container gets memory from the nearest nodes, too, when a Guaranteed one needs its own."""
    world = World().come("a", "0", 6, B).come("b", "0", 5)
    assert world.mems == {"a": "0-1", "b": "0"}
    assert world.reason == (
        "memory from NUMA node 0, near its CPUs; 1 container gets memory from more NUMA nodes, to make room"
    )

    world.go("b")
    assert world.mems == {"a": "0"}
    assert world.reason == "1 container gets memory from fewer NUMA nodes: there is room again"


def test_limits_may_add_up_to_more_than_the_machine_has() -> None:
    """Nobody is refused: who does not fit anywhere gets memory from everywhere."""
    world = World()
    for number in range(8):
        world.come(f"c{number}", str(number % 4), 9, B)
    world.come("huge", "0", 1000)

    assert sorted(world.mems.values()).count("0-3") >= 4
    assert world.mems["huge"] == "0-3"


def test_what_nobody_set_stays_and_counts_where_it_was_seen() -> None:
    """A container that was taken in: its nodes are those that the kernel named, or all."""
    old = Container(key="old", pod="s", name="old", memory_limit_bytes=8 * GIB)
    world = World()
    grants = {"old": Grant(frozenset({0}), NO_CPUS)}
    world.node = world.node.replace(
        containers={"old": old}, grants=grants, applied={"old": Applied(frozenset({0}), frozenset({0}))}
    )

    assert world.come("a", "0", 3).mems == {"old": "", "a": "0-1"}
    assert world.come("b", "1", 3).mems == {"old": "", "a": "0-1", "b": "1"}


def test_adopted_ones_beyond_capacity_harm_nobody_elsewhere() -> None:
    """What is over capacity without us stays so; newcomers there get more nodes."""
    world = World()
    for key in ("x", "y"):
        old = Container(key=key, pod="s", name=key, memory_limit_bytes=8 * GIB, qos=G)
        world.node = world.node.replace(
            containers={**world.node.containers, key: old},
            grants={**world.node.grants, key: Grant(frozenset({0}), frozenset({0}))},
        )
    node = world.node.replace(
        containers={**world.node.containers, "n": Container(key="n", pod="s", name="n", memory_limit_bytes=GIB)}
    )
    change = place_memory(node, {"n": Grant(frozenset({0}), NO_CPUS)}, node.containers["n"], frozenset({1}))

    assert {key: format_cpuset(grant.mems) for key, grant in change.grants.items()} == {"n": "1"}


def test_pessimistic_counting_lifts_those_in_small_sets() -> None:
    """CRI-RM counts whoever may use all nodes in each of them, and lifts others until that fits."""
    pool = machine(nodes=2, cores=2, threads=1, memory_bytes=10 * GIB)
    small = World(pool, pessimistic=True).come("a", "0", 8).come("b", "0-1", 1)
    assert small.mems == {"a": "0", "b": "0-1"}

    large = World(pool, pessimistic=True).come("a", "0", 8).come("c", "1", 1).come("b", "0-1", 4)
    assert large.mems == {"a": "0-1", "c": "1", "b": "0-1"}
    assert large.go("b").mems == {"a": "0", "c": "1"}


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        pytest.param(MemoryWish(), "0,4", id="usual"),
        pytest.param(MemoryWish(usual=frozenset()), "0", id="kinds-of-the-nodes"),
        pytest.param(MemoryWish(frozenset({DRAM})), "0", id="dram"),
        pytest.param(MemoryWish(frozenset({HBM})), "2", id="hbm"),
        pytest.param(MemoryWish(frozenset({HBM, DRAM})), "0,2", id="two"),
        pytest.param(MemoryWish(frozenset(MemoryKind)), "0,2,4", id="all"),
        pytest.param(MemoryWish(cold=True), "4", id="cold"),
        pytest.param(MemoryWish(frozenset({DRAM}), cold=True), "4", id="cold-whatever-else"),
        pytest.param(MemoryWish(untouched="so"), "", id="untouched"),
    ],
)
def test_kinds_of_memory(wish: MemoryWish, expected: str) -> None:
    """Those that are asked for, next to the CPUs; HBM only if so."""
    assert World(tiers()).come("a", "0", 1, wish=wish).mems == {"a": expected}


def test_a_warm_container_does_not_come_back_to_its_cold_memory() -> None:
    """One that had to give way while it was cold comes back to all that a warm one gets."""
    cold = MemoryWish(cold=True)
    world = World(tiers()).come("a", "0", 10, B, wish=cold).come("b", "0", 15, wish=MemoryWish(frozenset({PMEM})))
    assert world.mems == {"a": "4-5", "b": "4"}

    assert world.come("a", "0", 10, B).mems == {"a": "0,4-5", "b": "4"}
    assert world.go("b").mems == {"a": "0,4"}


def test_it_comes_back_although_some_of_its_cpus_have_only_hbm_beside_them() -> None:
    """Its home is the memory that it began with, of the kinds that count for it."""
    two = machine(nodes=2, cores=2, threads=1, memory_bytes=10 * GIB)
    bare, fast = NumaNode(1, two.nodes[1].cpus, 0, normal_memory=False), NumaNode(2, NO_CPUS, 20 * GIB, kind=HBM)
    distances = ((10, 20, 30), (20, 10, 14), (30, 14, 10))
    topology = replace(two, nodes=(two.nodes[0], bare, fast), mems=frozenset({0, 2}), distances=distances)
    world = World(topology).come("a", "0-1", 6, B, cpus="0-3")
    assert world.mems == {"a": "0"}

    assert world.come("b", "0", 5, cpus="0-1").mems == {"a": "0,2", "b": "0"}
    assert world.go("b").mems == {"a": "0"}


@pytest.mark.parametrize(
    ("first", "near", "expected"),
    [
        pytest.param(NumaNode(0, parse_cpuset("0-1"), 10 * GIB, normal_memory=False), "0", "0-1", id="movable-only"),
        pytest.param(NumaNode(0, parse_cpuset("0-1"), 0, normal_memory=False), "0", "1-3", id="no-memory"),
        pytest.param(NumaNode(0, parse_cpuset("0-1"), 0, normal_memory=False), "0-1", "1", id="one-with"),
    ],
)
def test_the_kernel_needs_normal_memory(first: NumaNode, near: str, expected: str) -> None:
    """Movable-only nodes are never alone, and nodes without memory are none."""
    mems = frozenset(node.id for node in (first, *FOUR.nodes[1:]) if node.memory_bytes)
    topology = replace(FOUR, nodes=(first, *FOUR.nodes[1:]), mems=mems)

    assert World(topology).come("a", near, 1).mems == {"a": expected}
