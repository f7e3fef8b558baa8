"""A topology answers which nodes CPUs belong to, and how much memory nodes have."""

from dataclasses import replace

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.machine.topology import NumaNode
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
