"""Machines as scenario files describe them."""

import pytest

from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.simulate.scenario.machine import read_machine, with_closest
from criproxy.simulate.scenario.place import Wrong
from tests.simulate.test_scenario_assertions import at


def made(text: str) -> Topology:
    """The machine that YAML describes."""
    return read_machine(at(text))


def lists(groups: object) -> list[str]:
    """CPUs of cores, packages and so on, in kernel notation."""
    assert isinstance(groups, tuple)
    return [format_cpuset(group if isinstance(group, frozenset) else group.cpus) for group in groups]


@pytest.mark.parametrize(
    ("threads", "cores"),
    [("consecutive", ["0-1", "2-3", "4-5", "6-7"]), ("none", ["0", "1", "2", "3", "4", "5", "6", "7"])],
)
def test_threads(threads: str, cores: list[str]) -> None:
    """CPUs 2k and 2k+1 are one core, or every CPU is one."""
    topology = made(f"{{threads: {threads}, nodes: {{0: {{cpus: 0-3, mem: 1G}}, 1: {{cpus: 4-7, mem: 1G}}}}}}")

    assert cores == lists(topology.cores)


def test_split_threads_are_what_is_not_said() -> None:
    """CPU N and N + half of all are one core."""
    topology = made("nodes: {0: {cpus: '0-1,4-5', mem: 1G}, 1: {cpus: '2-3,6-7', mem: 1G}}")

    assert lists(topology.cores) == ["0,4", "1,5", "2,6", "3,7"]


def test_split_threads_within_a_node_only() -> None:
    """A core has its threads in one NUMA node."""
    with pytest.raises(Wrong, match="write threads: consecutive or none"):
        made("nodes: {0: {cpus: 0-1, mem: 1G}, 1: {cpus: 2-3, mem: 1G}}")


def test_kinds_of_cores_and_level_2_caches() -> None:
    """Efficiency cores come first, the fastest last; where all are alike there are no kinds."""
    nodes = "nodes: {0: {cpus: 0-7, mem: 1G}}"
    hybrid = made(f"{{threads: none, l2: 4, efficient: 4-7, fast: 0, {nodes}}}")

    assert (lists(hybrid.cpu_kinds), lists(hybrid.l2_groups)) == (["4-7", "1-3", "0"], ["0-3", "4-7"])
    assert made(f"{{threads: none, fast: 0-7, {nodes}}}").cpu_kinds == ()


def test_packages_dies_and_caches() -> None:
    """Dies are told apart where a package has several; level 3 caches are those of nodes, or of so many CPUs."""
    topology = made("""
threads: consecutive
l3: 4
nodes:
  0: {cpus: 0-7, pkg: 0, die: 0, mem: 1G}
  1: {cpus: 8-15, pkg: 0, die: 1, mem: 1G}
  2: {cpus: 16-19, pkg: 1, die: 0, mem: 1G}
""")

    assert lists(topology.packages) == ["0-15", "16-19"]
    assert [(die.package, die.id) for die in topology.dies] == [(0, 0), (0, 1), (1, 0)]
    assert lists(topology.l3_groups) == ["0-3", "4-7", "8-11", "12-15", "16-19"]
    assert not made("{threads: none, nodes: {0: {cpus: 0-3, die: 1, mem: 1G}}}").dies


def test_memory() -> None:
    """Sizes are of powers of two; nodes may have memory only, which may be movable."""
    topology = made(
        "nodes: {0: {cpus: 0-1, mem: 2G}, 1: {kind: pmem, mem: 32kB, movable: true}, 2: {kind: hbm, mem: 1}}"
    )

    assert [node.memory_bytes for node in topology.nodes] == [2 << 30, 32 << 10, 1]
    assert [node.kind for node in topology.nodes] == [MemoryKind.DRAM, MemoryKind.PMEM, MemoryKind.HBM]
    assert [node.normal_memory for node in topology.nodes] == [True, False, True]


def test_distances() -> None:
    """11 within a die, 21 beyond; 17 to the closest node of memory and 28 to others; or as the file says."""
    usual = made("""
threads: none
nodes:
  0: {cpus: 0, pkg: 0, mem: 1G}
  1: {cpus: 1, pkg: 0, mem: 1G}
  2: {cpus: 2, pkg: 1, mem: 1G}
  3: {kind: pmem, mem: 1G, closest: 1}
  4: {kind: hbm, mem: 1G, dist: {0: 13, 1: 14, 2: 15, 3: 16}}
""")
    given = made(
        "{threads: none, nodes: {0: {cpus: 0, mem: 1G}, 3: {cpus: 1, mem: 1G}}, distance: [[10, 12], [13, 10]]}"
    )

    assert usual.distances == (
        (10, 11, 21, 28, 13),
        (11, 10, 21, 17, 14),
        (21, 21, 10, 28, 15),
        (28, 17, 28, 10, 16),
        (13, 14, 15, 16, 10),
    )
    assert (given.distance(0, 3), given.distance(3, 0)) == (12, 13)


def test_memory_gets_another_node_next_to_it() -> None:
    """What is closest can be said later."""
    topology = made(
        "{threads: none, nodes: {0: {cpus: 0, mem: 1G}, 1: {cpus: 1, mem: 1G}, 2: {kind: pmem, mem: 1G, closest: 0}}}"
    )

    moved = with_closest(topology, {2: 1})

    assert [topology.distance(2, node) for node in (0, 1, 2)] == [17, 28, 10]
    assert [moved.distance(2, node) for node in (0, 1, 2)] == [28, 17, 10]
    assert (moved.distance(0, 1), moved.distance(1, 2)) == (11, 17)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: {}", "no node has a CPU"),
        ("{}", "'nodes' is missing"),
        ("nodes: {a: {cpus: 0, mem: 1G}}", "must be the number of a NUMA node"),
        ("{threads: none, nodes: {0: {cpus: 0}}}", "'mem' is missing"),
        ("{threads: none, nodes: {0: {cpus: 0, mem: 1X}}}", "must be a size such as 2G"),
        ("{threads: none, nodes: {0: {cpus: '0:8:0', mem: 1G}}}", "FIRST:END:STEP"),
        ("{threads: none, nodes: {0: {cpus: 0-1, mem: 1G}, 1: {cpus: 1, mem: 1G}}}", "a CPU is in two NUMA nodes"),
        ("{threads: none, nodes: {0: {cpus: 0, mem: 1G, kind: dramm}}}", "did you mean 'dram'"),
        ("{threads: none, nodes: {0: {cpus: 0, mem: 1G}}, distance: [[10, 11]]}", "1 rows of 1 numbers"),
        ("{threads: none, nodes: {0: {cpus: 0, mem: 1G}}, cores: 3}", "unknown key 'cores'"),
    ],
)
def test_machines_that_cannot_be(text: str, said: str) -> None:
    """Each is a sentence."""
    with pytest.raises(Wrong, match=said):
        made(text)
