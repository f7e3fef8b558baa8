"""A topology answers which nodes CPUs belong to, and how much memory nodes have."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.topology import Box, Level, NumaNode, home, nearest_cpus, nest
from criproxy.simulate.hosts import GIB, machine

TWO_NODES = machine(nodes=2, cores=2, threads=2, memory_bytes=8 * GIB)


def test_node_ids_with_gaps() -> None:
    """Node ids need not be dense."""
    sparse = replace(TWO_NODES, nodes=(NumaNode(4, parse_cpuset("0"), GIB), NumaNode(250, parse_cpuset(""), 2 * GIB)))

    assert sparse.nodes_of({0}) == {4}
    assert sparse.memory_bytes({250}) == 2 * GIB


def test_kinds_of_cpus() -> None:
    """Forbidden is what runs and pods may not use; a core with two threads makes SMT."""
    topology = machine(cores=2, threads=2, allowed=parse_cpuset("1"))

    assert (topology.forbidden_cpus, topology.core_of[2].id) == (parse_cpuset("0,2-3"), 0)
    assert (topology.smt, machine(cores=2, threads=1).smt) == (True, False)
    assert NumaNode(1, frozenset(), GIB).memory_only


# ---------------------------------------------------------------- how machines nest


def sets(*texts: str) -> tuple[CpuSet, ...]:
    """Return sets in kernel notation."""
    return tuple(parse_cpuset(text) for text in texts)


FOUR = machine(nodes=2, cores=2, threads=1, packages=1)


@given(
    st.lists(st.frozensets(st.integers(0, 7)), max_size=4),
    st.lists(st.frozensets(st.integers(0, 7)), max_size=4),
)
def test_no_cpu_is_lost_or_doubled(nodes: list[CpuSet], caches: list[CpuSet]) -> None:
    """Whatever overlaps, boxes lie within their parent and beside each other."""
    odd = replace(
        machine(1, 8, 1),
        nodes=tuple(NumaNode(number, cpus, GIB) for number, cpus in enumerate(nodes)),
        l3_groups=tuple(cpus for cpus in caches if cpus),
    )

    def check(box: Box) -> None:
        seen: set[int] = set()
        for inner in box.inside:
            assert inner.cpus
            assert inner.cpus <= box.cpus
            assert not inner.cpus & seen
            seen |= inner.cpus
            check(inner)

    check(nest(odd))


@pytest.mark.parametrize(
    ("cpus", "level", "number"),
    [
        pytest.param("0", Level.NODE, 0, id="a-node"),
        pytest.param("0,2", Level.PACKAGE, 0, id="two-nodes"),
        pytest.param("", Level.MACHINE, 0, id="nothing"),
    ],
)
def test_home(cpus: str, level: Level, number: int) -> None:
    """Things live in the smallest package, die or node around their CPUs, also where a cache lies between."""
    spanning = nest(replace(FOUR, l3_groups=sets("0-3")))
    found = home(spanning, parse_cpuset(cpus))

    assert (found.level, found.id) == (level, number)


@pytest.mark.parametrize(
    ("row", "near"),
    [
        pytest.param((17, 28, 10), "0-1", id="one-node"),
        pytest.param((28, 28, 10), "0-3", id="as-far-from-both"),
    ],
)
def test_nearest_cpus(row: tuple[int, int, int], near: str) -> None:
    """A memory-only node is close to the nodes at the least distance."""
    far = NumaNode(9, frozenset(), GIB)
    distances = ((10, 20, row[0]), (20, 10, row[1]), row)
    topology = replace(FOUR, nodes=(*FOUR.nodes, far), distances=distances)

    assert nearest_cpus(topology, far) == parse_cpuset(near)
    assert nearest_cpus(replace(topology, distances=()), far) == FOUR.online_cpus
    assert nearest_cpus(topology, FOUR.nodes[1]) == parse_cpuset("2-3")
