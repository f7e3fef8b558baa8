"""A topology answers which nodes CPUs belong to, and how much memory nodes have."""

from dataclasses import replace

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.topology import NumaNode
from criproxy.sim.machines import GIB, machine

TWO_NODES = machine(nodes=2, cores=2, threads=2, memory_bytes=8 * GIB)


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
