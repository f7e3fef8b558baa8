"""Memory is pinned only where limits promise that it suffices."""

from dataclasses import replace

import pytest

from criproxy.alloc.memory import memory_nodes
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.topology import NumaNode
from criproxy.model.workload import Container
from criproxy.sim.machines import GIB, machine

TWO_NODES = machine(nodes=2, cores=4, threads=1, memory_bytes=10 * GIB)
THREE_NODES = machine(nodes=3, cores=2, threads=1, memory_bytes=10 * GIB)
ALL = frozenset({0, 1})


def container(limit_bytes: int | None, key: str = "new") -> Container:
    """A container with a memory limit."""
    return Container(key=key, pod="s", name=key, memory_limit_bytes=limit_bytes)


def node_with(*others: tuple[int, str]) -> Node:
    """Two NUMA nodes of 10 GiB, and containers (limit in GiB, memory nodes) on them."""
    containers = {f"c{i}": container(limit * GIB, f"c{i}") for i, (limit, _) in enumerate(others)}
    grants = {f"c{i}": Grant(parse_cpuset("0"), parse_cpuset(mems)) for i, (_, mems) in enumerate(others)}
    return Node(TWO_NODES, containers=containers, grants=grants)


@pytest.mark.parametrize(
    ("others", "limit_bytes", "expected"),
    [
        pytest.param([], 9 * GIB, {0}, id="exactly-90-percent"),
        pytest.param([], 9 * GIB + 1, ALL, id="beyond-90-percent"),
        pytest.param([], None, ALL, id="no-limit"),
        pytest.param([(5, "0")], 4 * GIB, {0}, id="together-90-percent"),
        pytest.param([(5, "0")], 5 * GIB, ALL, id="together-beyond"),
        pytest.param([(9, "1")], 9 * GIB, {0}, id="others-on-another-node-do-not-count"),
        pytest.param([(100, "0-1")], 9 * GIB, {0}, id="unpinned-ones-do-not-count"),
    ],
)
def test_limits(others: list[tuple[int, str]], limit_bytes: int | None, expected: CpuSet) -> None:
    """The nodes of the CPUs are pinned while limits on them stay within 90 % of their memory."""
    mems, reason = memory_nodes(node_with(*others), container(limit_bytes), parse_cpuset("0-1"))

    assert mems == expected
    assert reason


def test_overlapping_sets_count_in_full() -> None:
    """A container pinned to two nodes may fill either, so it counts against each."""
    wide = Grant(parse_cpuset("0"), frozenset({0, 1}))
    node = Node(THREE_NODES, containers={"w": container(5 * GIB, "w")}, grants={"w": wide})

    assert memory_nodes(node, container(4 * GIB), parse_cpuset("0"))[0] == {0}
    assert memory_nodes(node, container(5 * GIB), parse_cpuset("0"))[0] == {0, 1, 2}
    assert memory_nodes(node, container(9 * GIB), parse_cpuset("4"))[0] == {2}


def test_a_container_does_not_count_against_itself() -> None:
    """A container that is placed again is counted once."""
    node = node_with((9, "0"))

    assert memory_nodes(node, container(9 * GIB, "c0"), parse_cpuset("0"))[0] == {0}


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        pytest.param(NumaNode(0, parse_cpuset("0-3"), 10 * GIB, normal_memory=False), ALL, id="movable-only"),
        pytest.param(NumaNode(0, parse_cpuset("0-3"), 0, normal_memory=False), {1}, id="no-memory"),
    ],
)
def test_nodes_without_normal_memory_are_never_alone(first: NumaNode, expected: CpuSet) -> None:
    """CPUs whose only node has no normal memory leave memory unpinned; beside another it adds nothing it lacks."""
    topology = replace(TWO_NODES, nodes=(first, TWO_NODES.nodes[1]))

    assert memory_nodes(Node(topology), container(GIB), parse_cpuset("0-3"))[0] == ALL
    assert memory_nodes(Node(topology), container(GIB), parse_cpuset("0-7"))[0] == expected


def test_nodes_that_pods_may_not_use() -> None:
    """Nodes outside the pods' cgroup are not named."""
    topology = replace(TWO_NODES, mems=frozenset({1}))

    assert memory_nodes(Node(topology), container(GIB), parse_cpuset("0-7"))[0] == {1}
    assert memory_nodes(Node(topology), container(GIB), parse_cpuset("0"))[0] == {1}


def test_unknown_memory() -> None:
    """Where nothing is known of NUMA, the set is empty: the field is left alone."""
    topology = replace(TWO_NODES, mems=frozenset(), nodes=())

    assert memory_nodes(Node(topology), container(GIB), parse_cpuset("0"))[0] == frozenset()
