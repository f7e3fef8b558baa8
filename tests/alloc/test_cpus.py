"""CPUs are taken from as few NUMA nodes as possible, whole cores first, always the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.alloc.cpus import take_cpus
from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.topology import Core, Topology
from criproxy.sim.machines import machine

TWO_NODES_SMT = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11
FOUR_NODES = machine(nodes=4, cores=4, threads=1, packages=2)  # package 0: 0-7


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param("0-15", 0, "", id="nothing-asked"),
        pytest.param("0-15", 1, "0", id="one-thread"),
        pytest.param("0-15", 2, "0,8", id="one-whole-core"),
        pytest.param("0-15", 3, "0-1,8", id="a-core-and-a-thread"),
        pytest.param("0-15", 8, "0-3,8-11", id="one-whole-numa-node"),
        pytest.param("1-15", 8, "4-7,12-15", id="skips-the-node-that-is-short"),
        pytest.param("0-15", 10, "0-4,8-12", id="spills-over-by-one-core"),
        pytest.param("0-3,8-10,12", 1, "12", id="tightest-node"),
        pytest.param("0-2,8-11", 1, "11", id="a-thread-of-a-core-in-use"),
        pytest.param("0-2,8-11", 3, "0,8,11", id="whole-core-then-the-thread-of-a-core-in-use"),
        pytest.param("0-3,12-15", 4, "0-3", id="no-whole-core-anywhere"),
        pytest.param("1-3,9-10,4-7,13,14", 8, "1-2,5-6,9-10,13-14", id="whole-cores-of-both-nodes"),
    ],
)
def test_two_nodes_with_threads(free: str, count: int, expected: str) -> None:
    """The tightest place that fits is chosen, and whole cores within it."""
    assert format_cpuset(take_cpus(TWO_NODES_SMT, parse_cpuset(free), count)) == expected


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param("0-15", 6, "0-5", id="two-nodes-of-one-package"),
        pytest.param("0,4-15", 6, "8-13", id="the-package-that-has-enough"),
        pytest.param("0-2,4-6,8-10,12-14", 9, "0-2,4-6,8-10", id="three-nodes"),
        pytest.param("0-1,4-15", 6, "0-1,4-7", id="the-tighter-package"),
    ],
)
def test_two_packages(free: str, count: int, expected: str) -> None:
    """As few NUMA nodes as possible, then within one package."""
    assert format_cpuset(take_cpus(FOUR_NODES, parse_cpuset(free), count)) == expected


def test_cores_of_different_sizes() -> None:
    """On a hybrid machine a single CPU does not break a core with two threads."""
    cpus = parse_cpuset("0-4")
    cores = [Core(min(core), core) for core in map(parse_cpuset, ["0-1", "2-3", "4"])]
    hybrid = replace(machine(cores=5, threads=1), cpus=cpus, cores=tuple(cores))

    assert format_cpuset(take_cpus(hybrid, cpus, 1)) == "4"
    assert format_cpuset(take_cpus(hybrid, cpus, 3)) == "0-1,4"


def test_cpus_that_sysfs_knows_little_of() -> None:
    """CPUs in no NUMA node and in no core can be taken, after those of the nodes."""
    odd = replace(machine(cores=2, threads=1), cpus=parse_cpuset("0-3"), online_cpus=parse_cpuset("0-3"))

    assert format_cpuset(take_cpus(odd, odd.cpus, 2)) == "0-1"
    assert format_cpuset(take_cpus(odd, odd.cpus, 3)) == "0-2"


def test_too_few() -> None:
    """More than there are is refused."""
    with pytest.raises(NotEnough, match="9 CPUs wanted, 8 free"):
        take_cpus(TWO_NODES_SMT, parse_cpuset("0-7"), 9)


machines = st.builds(
    machine, st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), packages=st.sampled_from([1, None])
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[Topology, CpuSet, int]:
    """A machine, some of its CPUs, and a count that fits."""
    topology = draw(machines)
    free = draw(st.frozensets(st.sampled_from(sorted(topology.cpus))))
    return topology, free, draw(st.integers(0, len(free)))


@given(requests())
def test_takes_what_was_asked_from_the_fewest_nodes(request: tuple[Topology, CpuSet, int]) -> None:
    """Exactly that many, only free ones, and no set of fewer nodes would have had enough."""
    topology, free, count = request
    taken = take_cpus(topology, free, count)
    sizes = sorted((len(node.cpus & free) for node in topology.nodes), reverse=True)
    fewer = sizes[: max(len(topology.nodes_of(taken)) - 1, 0)]

    assert len(taken) == count
    assert taken <= free
    assert count == 0 or sum(fewer) < count


@given(requests())
def test_breaks_at_most_one_core_per_node(request: tuple[Topology, CpuSet, int]) -> None:
    """Of the cores that were wholly free, at most one in the last node is left half used."""
    topology, free, count = request
    taken = take_cpus(topology, free, count)

    assert sum(core.cpus <= free and bool(core.cpus & taken) and not core.cpus <= taken for core in topology.cores) <= 1


@given(requests())
def test_does_not_depend_on_order(request: tuple[Topology, CpuSet, int]) -> None:
    """The order in which nodes and cores are listed changes nothing."""
    topology, free, count = request
    turned = replace(topology, nodes=topology.nodes[::-1], packages=topology.packages[::-1])

    assert take_cpus(turned, free, count) == take_cpus(topology, free, count)
