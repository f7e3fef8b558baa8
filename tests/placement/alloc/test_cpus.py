"""CPUs are taken from as few NUMA nodes as possible, whole cores first, always the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Core, Topology
from criproxy.placement.alloc.cpus import Taste, one_per_core, take_cpus
from criproxy.simulate.hosts import machine

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


FOUR_CACHES = replace(
    machine(nodes=1, cores=16, threads=2), l3_groups=tuple(map(parse_cpuset, ["0-3,16-19", "4-7,20-23", "8-15,24-31"]))
)


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param("0-31", 4, "0-1,16-17", id="two-cores-of-one-cache"),
        pytest.param("0-31", 8, "0-3,16-19", id="a-cache"),
        pytest.param("0-31", 10, "8-12,24-28", id="the-cache-that-is-large-enough"),
        pytest.param("0-31", 24, "0-3,8-19,24-31", id="two-caches"),
        pytest.param("2-31", 4, "2-3,18-19", id="what-is-left-of-a-cache"),
        pytest.param("2-31", 3, "2,16,18", id="a-core-and-a-thread-that-has-no-sibling"),
        pytest.param("1-15,17-31", 1, "1", id="a-thread-where-the-least-is-left"),
        pytest.param("0-31", 9, "8-12,24-27", id="an-odd-thread-of-the-same-cache"),
    ],
)
def test_caches(free: str, count: int, expected: str) -> None:
    """Within a NUMA node as few caches as possible: the tightest that has enough, else the largest."""
    assert format_cpuset(take_cpus(FOUR_CACHES, parse_cpuset(free), count)) == expected


def test_caches_that_split_cores() -> None:
    """What is left of a core of which a cache has only one thread can be taken, too."""
    split = replace(TWO_NODES_SMT, l3_groups=(parse_cpuset("0-3"), parse_cpuset("8-11")), l2_groups=())

    assert format_cpuset(take_cpus(split, parse_cpuset("0-3,8-11"), 7)) == "0-3,8-10"
    assert format_cpuset(take_cpus(split, parse_cpuset("0-3,8-9"), 5)) == "0-2,8-9"


def test_across_cores() -> None:
    """First threads of idle cores, then of others, then second threads."""
    taste = Taste(across_cores=True)

    assert format_cpuset(take_cpus(TWO_NODES_SMT, TWO_NODES_SMT.cpus, 3, taste)) == "0-2"
    assert format_cpuset(take_cpus(TWO_NODES_SMT, parse_cpuset("1-3,8-11"), 4, taste)) == "1-3,8"
    assert format_cpuset(take_cpus(TWO_NODES_SMT, TWO_NODES_SMT.cpus, 6, taste)) == "0-3,8-9"


@pytest.mark.parametrize(
    ("cpus", "first", "expected"),
    [("0-1,8,10,99", "", "0-1,10,99"), ("0-1,8-9", "9", "0,9"), ("0-5", "8", "0-5"), ("", "", "")],
)
def test_one_thread_of_each_core(cpus: str, first: str, expected: str) -> None:
    """The lowest of those that are there, or one of those that count first; a CPU of no core is alone."""
    assert format_cpuset(one_per_core(TWO_NODES_SMT, parse_cpuset(cpus), parse_cpuset(first))) == expected


tastes = st.builds(Taste, st.frozensets(st.integers(0, 31)), across_cores=st.booleans())


@given(requests(), tastes)
def test_whatever_is_liked(request: tuple[Topology, CpuSet, int], taste: Taste) -> None:
    """Exactly as many, only free ones, the same again, and those liked first as far as they suffice."""
    topology, free, count = request
    taken = take_cpus(topology, free, count, taste)
    liked = free & taste.first

    assert len(taken) == count
    assert taken <= free
    assert take_cpus(topology, free, count, taste) == taken
    assert len(liked) < count or taken <= liked


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param("0-15", 8, "0-3,8-11", id="one-node-is-enough"),
        pytest.param("0-15", 12, "0-2,4-6,8-10,12-14", id="six-each"),
        pytest.param("0-15", 10, "0-2,4-5,8-10,12-13", id="a-core-more"),
        pytest.param("0,4-7,12-15", 9, "0,4-7,12-15", id="all-that-one-has"),
        pytest.param("0,8,4-7,12-15", 9, "0,4-7,8,12-14", id="one-has-less"),
    ],
)
def test_evenly(free: str, count: int, expected: str) -> None:
    """Where several nodes are needed, whole cores of each in turn."""
    cpus = take_cpus(TWO_NODES_SMT, parse_cpuset(free), count, Taste(evenly=True))

    assert cpus == parse_cpuset(expected)


def test_one_package() -> None:
    """Rather four NUMA nodes of one package than two of two."""
    eight = machine(nodes=8, cores=4, threads=1, packages=2)  # package 0: 0-15
    free = parse_cpuset("0-1,4-5,8-9,12,16-18,20-23")

    assert format_cpuset(take_cpus(eight, free, 7)) == "16-18,20-23"
    assert format_cpuset(take_cpus(eight, free - {16}, 6, Taste(one_package=True))) == "17-18,20-23"
    spread_out = parse_cpuset("0-3,4,16-19,20-22,24-26")
    assert format_cpuset(take_cpus(eight, spread_out, 8)) == "0-3,16-19"
    assert format_cpuset(take_cpus(eight, spread_out, 8, Taste(one_package=True))) == "16-22,24"
