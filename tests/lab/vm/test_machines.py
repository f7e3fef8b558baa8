"""Machines by name and from words: what can exist is made as described, what cannot is refused with a reason."""

from dataclasses import replace

import pytest

from criproxy.model.cpuset import parse_cpuset
from lab.vm.machines import NAMED, Chips, GuestNode, UsageError, checked, custom, named


def test_every_named_machine_can_exist() -> None:
    """They have the names that one asks for, and one to eight nodes that hold all CPUs."""
    for name, machine in NAMED.items():
        assert named(name) is machine
        assert checked(machine) is machine
    assert {len(machine.nodes) for machine in NAMED.values()} >= {1, 4, 8}


def test_an_unknown_name_lists_those_that_there_are() -> None:
    """Whoever mistypes one can see the right one."""
    with pytest.raises(UsageError, match=r"no machine '2s'; there are 1s-1n, .*4s-8n"):
        named("2s")


def test_a_machine_is_made_from_words() -> None:
    """Sockets, nodes, memory-only ones and distances are as described."""
    words = ["512:0-2", "512:3-5", "256:-:pmem"]
    machine = custom("sockets=2,cores=3", words, "10,20,17;20,10,28;17,28,10")

    assert machine.chips == Chips(sockets=2, cores=3)
    assert machine.nodes == (
        GuestNode(512, parse_cpuset("0-2")),
        GuestNode(512, parse_cpuset("3-5")),
        GuestNode(256, pmem=True),
    )
    assert machine.distances[1] == (20, 10, 28)
    assert (machine.dram_mib, list(machine.pmem_nodes)) == (1024, [2])
    assert machine.nodes_of(parse_cpuset("2-3")) == {0, 1}


def test_without_nodes_there_is_one() -> None:
    """It holds all CPUs."""
    assert custom("cores=3", [], "").nodes == (GuestNode(1024, parse_cpuset("0-2")),)


@pytest.mark.parametrize(
    ("chips", "nodes", "distances", "complaint"),
    [
        pytest.param("", [], "", "--smp: '' is none of sockets=N", id="no-chips"),
        pytest.param("cores=0", [], "", "--smp: 'cores=0'", id="no-core"),
        pytest.param("hearts=2", [], "", "--smp: 'hearts=2'", id="unknown-word"),
        pytest.param("cores=2", ["big"], "", "--node: 'big' is not MIB", id="no-size"),
        pytest.param("cores=2", ["512:1-0"], "", "--node: the range '1-0'", id="backwards"),
        pytest.param("cores=2", ["512:0-1:ssd"], "", "--node: '512:0-1:ssd'", id="unknown-flag"),
        pytest.param("cores=2", ["512:0"], "", "must hold CPUs 0-1, each of them once", id="a-cpu-without-node"),
        pytest.param("cores=2", ["512:0-1", "512:1"], "", "each of them once", id="a-cpu-twice"),
        pytest.param("cores=2", ["512:-", "512:0-1"], "", "node 0 must have CPUs", id="boot-node-without-cpus"),
        pytest.param("cores=2", ["512:0-1", "100:-:pmem"], "", "multiples of 128 MiB", id="half-a-section"),
        pytest.param("cores=2", ["512:0-1"], "10,20;20,10", "distances must be 1 rows of 1", id="wrong-distances"),
        pytest.param("cores=2", ["512:0-1"], "near", "--dist: 'near'", id="no-distances"),
        pytest.param("cores=9", [f"128:{cpu}" for cpu in range(9)], "", "must be 1 to 8", id="nine-nodes"),
    ],
)
def test_what_cannot_exist_is_refused(chips: str, nodes: list[str], distances: str, complaint: str) -> None:
    """The sentence names the word that is wrong."""
    with pytest.raises(UsageError, match=complaint):
        custom(chips, nodes, distances)


def test_a_machine_without_nodes_is_refused() -> None:
    """Also one that was made otherwise than from words."""
    with pytest.raises(UsageError, match="0 NUMA nodes"):
        checked(replace(named("1s-1n"), nodes=()))
