"""A topology answers which nodes CPUs belong to, and how much memory nodes have."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Box, Die, Level, NumaNode, Package, Topology, home, nearest_cpus, nest
from criproxy.simulate.hosts import GIB, machine

TWO_NODES = machine(nodes=2, cores=2, threads=2, memory_bytes=8 * GIB)


def test_cpus_of_nodes() -> None:
    """Back from nodes to their CPUs; a node that there is not adds none."""
    one = TWO_NODES.cpus_of({0})
    assert TWO_NODES.nodes_of(one) == {0}
    assert TWO_NODES.cpus_of({0, 1, 99}) > one
    assert TWO_NODES.cpus_of(()) == frozenset()


def test_nodes_of_cpus() -> None:
    """CPUs belong to the nodes that list them; a CPU in no node adds none."""
    assert TWO_NODES.nodes_of(parse_cpuset("0,4")) == {0}
    assert TWO_NODES.nodes_of(parse_cpuset("1,2,99")) == {0, 1}
    assert TWO_NODES.nodes_of(()) == frozenset()


def test_memory_of_nodes() -> None:
    """Memory adds up, and unknown nodes have none."""
    assert TWO_NODES.memory_bytes({0, 1, 7}) == 16 * GIB


def test_node_ids_with_gaps() -> None:
    """Node ids need not be dense."""
    sparse = replace(TWO_NODES, nodes=(NumaNode(4, parse_cpuset("0"), GIB), NumaNode(250, parse_cpuset(""), 2 * GIB)))

    assert sparse.nodes_of({0}) == {4}
    assert sparse.memory_bytes({250}) == 2 * GIB


def test_distances() -> None:
    """They are looked up by id; where nothing is known they are what the kernel takes."""
    sparse = replace(
        TWO_NODES,
        nodes=(NumaNode(4, parse_cpuset("0"), GIB), NumaNode(250, parse_cpuset(""), 2 * GIB)),
        distances=((10, 17), (17, 10)),
    )
    unknown = replace(sparse, distances=())

    assert (sparse.distance(4, 250), sparse.distance(4, 4), sparse.distance(4, 5)) == (17, 10, 20)
    assert (unknown.distance(4, 250), unknown.distance(4, 4)) == (20, 10)


def test_kinds_of_cpus() -> None:
    """Forbidden is what runs and pods may not use; a core with two threads makes SMT."""
    topology = machine(cores=2, threads=2, allowed=parse_cpuset("1"))

    assert (topology.forbidden_cpus, topology.core_of[2].id) == (parse_cpuset("0,2-3"), 0)
    assert (topology.smt, machine(cores=2, threads=1).smt) == (True, False)
    assert NumaNode(1, frozenset(), GIB).memory_only


# ---------------------------------------------------------------- how machines nest


def drawn(box: Box) -> str:
    """Return the levels and CPUs of the boxes in *box*, as text."""
    texts = []
    for inner in box.inside:
        part = "" if inner.whole else "*"
        more = f"({drawn(inner)})" if inner.inside else ""
        texts.append(f"{inner.level} {format_cpuset(inner.cpus)}{part}{more}")
    return " ".join(texts)


def sets(*texts: str) -> tuple[CpuSet, ...]:
    """Return sets in kernel notation."""
    return tuple(parse_cpuset(text) for text in texts)


FOUR = machine(nodes=2, cores=2, threads=1, packages=1)
BARE = replace(FOUR, packages=(), nodes=(), l2_groups=(), l3_groups=())


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        pytest.param(
            replace(FOUR, l3_groups=sets("0-3")), "package 0-3(l3 0-3(node 0-1 node 2-3))", id="one-cache-two-nodes"
        ),
        pytest.param(
            replace(machine(1, 4, 1), l3_groups=sets("0-1", "2-3")),
            "package 0-3(node 0-3(l3 0-1 l3 2-3))",
            id="two-caches-one-node",
        ),
        pytest.param(
            replace(machine(1, 4, 1), packages=(Package(0, parse_cpuset("0-1")), Package(1, parse_cpuset("2-3")))),
            "node 0-3(l3 0-3(package 0-1 package 2-3))",
            id="a-node-of-two-packages",
        ),
        pytest.param(
            replace(FOUR, dies=(Die(0, 0, parse_cpuset("0-1")), Die(0, 1, parse_cpuset("2-3"))), l3_groups=()),
            "package 0-3(die 0-1(node 0-1) die 2-3(node 2-3))",
            id="dies",
        ),
        pytest.param(
            replace(FOUR, l2_groups=sets("0-1", "2", "3"), l3_groups=()),
            "package 0-3(node 0-1(l2 0-1) node 2-3)",
            id="only-shared-l2",
        ),
        pytest.param(replace(BARE, l3_groups=sets("1-2")), "l3 1-2", id="some-in-none"),
        pytest.param(BARE, "", id="nothing-known"),
        pytest.param(
            replace(BARE, l3_groups=sets("0-2", "3"), nodes=(NumaNode(0, parse_cpuset("2-3"), GIB),)),
            "l3 0-1* node 2-3(l3 2* l3 3)",
            id="overlap",
        ),
    ],
)
def test_nesting(topology: Topology, expected: str) -> None:
    """Larger groups are outside; what overlaps is cut and marked as a part."""
    assert drawn(nest(topology)) == expected


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
