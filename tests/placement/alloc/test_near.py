"""CPUs next to things and to those that a container has; and kinds of CPUs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.machine.topology import CpuKind
from criproxy.placement.alloc.cpus import Taste
from criproxy.placement.alloc.near import Priority, cpus_of_priority, resize_cpus, take_beside, take_near
from criproxy.simulate.hosts import machine
from tests.placement.policies.shapes import n4c16

MACHINE = n4c16()


@pytest.mark.parametrize(
    ("free", "count", "hints", "expected"),
    [
        pytest.param("0-15", 4, ["0", "3"], "0-1,12-13", id="the-same-for-each"),
        pytest.param("0-15", 3, ["1", "2"], "4-5,8", id="one-each-and-the-rest-anywhere"),
        pytest.param("0-15", 2, ["1", "1"], "4-5", id="twice-the-same-place"),
        pytest.param("0-11", 2, ["1", "3"], "0-1", id="nothing-left-there"),
        pytest.param("0-15", 1, ["1", "2"], "0", id="more-things-than-cpus"),
        pytest.param("0-15", 2, [], "0-1", id="no-things"),
        pytest.param("0-15", 2, ["7", "1"], "0-1", id="an-unknown-node"),
    ],
)
def test_take_near(free: str, count: int, hints: list[str], expected: str) -> None:
    """Each thing gets its share of CPUs, if all can; otherwise the hints do not count."""
    taken = take_near(MACHINE, parse_cpuset(free), count, [parse_cpuset(hint) for hint in hints])
    assert format_cpuset(taken) == expected


def test_too_few() -> None:
    """There must be as many as are wanted."""
    with pytest.raises(NotEnough):
        take_near(MACHINE, parse_cpuset("0-1"), 3, [parse_cpuset("0")])


@pytest.mark.parametrize(
    ("free", "count", "hints", "expected"),
    [
        pytest.param("0-15", 4, ["0", "2"], "0-1,8-9", id="evenly"),
        pytest.param("0-15", 3, ["0", "2"], "0-1,8", id="the-first-has-one-more"),
        pytest.param("0-15", 4, ["0", "2", "2", "2"], "0,8-10", id="by-things"),
        pytest.param("0-15", 2, ["0", "0", "2", "2"], "0,8", id="fewer-than-things"),
        pytest.param("3-15", 4, ["0", "2"], "3,8-10", id="one-side-is-full"),
        pytest.param("4-15", 2, ["0"], "4-5", id="none-beside"),
        pytest.param("0-15", 6, ["1"], "0-1,4-7", id="more-than-there-is"),
        pytest.param("0-15", 2, ["7"], "0-1", id="no-such-node"),
    ],
)
def test_take_beside(free: str, count: int, hints: list[str], expected: str) -> None:
    """As many CPUs beside each thing; what one side lacks comes from the other, and then from the nearest."""
    taken = take_beside(MACHINE, parse_cpuset(free), count, [parse_cpuset(hint) for hint in hints])

    assert format_cpuset(taken) == expected


EIGHT = machine(nodes=1, cores=8, threads=1)
E_CORES, P_CORES = CpuKind(parse_cpuset("4-7"), capacity=600), CpuKind(parse_cpuset("0-3"), capacity=1024)
SLOW, FAST = CpuKind(parse_cpuset("2-3"), base_khz=2), CpuKind(parse_cpuset("0-1"), base_khz=3)
SMALL = CpuKind(parse_cpuset("4-7"), capacity=600, base_khz=2)
BIG = CpuKind(parse_cpuset("2-3"), capacity=1024, base_khz=2)
BOOSTED = CpuKind(parse_cpuset("0-1"), capacity=1024, base_khz=3)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        pytest.param((), ["", "", "", ""], id="all-alike"),
        pytest.param((E_CORES, P_CORES), ["0-3", "0-3", "4-7", ""], id="hybrid"),
        pytest.param((SLOW, FAST), ["0-1", "2-3", "", ""], id="two-frequencies"),
        pytest.param((SMALL, BIG, BOOSTED), ["0-1", "2-3", "4-7", ""], id="both"),
    ],
)
def test_what_is_taken_first(kinds: tuple[CpuKind, ...], expected: list[str]) -> None:
    """Efficiency cores are low, the fastest of several frequencies high; none is nobody's wish."""
    topology = replace(EIGHT, cpu_kinds=kinds)

    assert [format_cpuset(cpus_of_priority(topology, priority)) for priority in Priority] == expected


SMT = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11
CLUSTERED = replace(
    machine(nodes=4, cores=4, threads=1, packages=2),
    distances=((10, 11, 21, 21), (11, 10, 21, 21), (21, 21, 10, 11), (21, 21, 11, 10)),
)
"""Two sockets of two NUMA nodes."""


@pytest.mark.parametrize(
    ("own", "free", "count", "expected"),
    [
        pytest.param("1,9", "0-15", 2, "1,9", id="stays"),
        pytest.param("1-2,9", "0-15", 2, "1,9", id="a-whole-core-stays"),
        pytest.param("1,4", "0-15", 0, "", id="nothing-stays"),
        pytest.param("1", "0-15", 2, "1,9", id="the-other-thread-of-its-core"),
        pytest.param("1,9", "2-15", 4, "1-2,9-10", id="another-core-of-its-node"),
        pytest.param("1,9", "3-7,12-15", 4, "1,3-4,9", id="what-is-left-on-its-node-then-another-node"),
        pytest.param("", "0-15", 2, "0,8", id="had-none"),
        pytest.param("99", "0-15", 2, "0,99", id="a-cpu-that-the-machine-does-not-know"),
    ],
)
def test_examples(own: str, free: str, count: int, expected: str) -> None:
    """Siblings first, then the same NUMA node, then anywhere."""
    assert format_cpuset(resize_cpus(SMT, parse_cpuset(own), parse_cpuset(free), count)) == expected


@pytest.mark.parametrize(
    ("own", "free", "count", "expected"),
    [
        pytest.param("0-3", "4-7,12-13", 5, "0-4", id="its-socket-though-another-has-less-left"),
        pytest.param("0-3", "4,8-15", 6, "0-4,8", id="all-of-its-socket-first"),
        pytest.param("12-15", "0-7,9", 5, "9,12-15", id="the-other-socket"),
    ],
)
def test_the_next_nearest_node(own: str, free: str, count: int, expected: str) -> None:
    """What its NUMA nodes lack comes from those that are close to them, and not from where it would fit best."""
    assert format_cpuset(resize_cpus(CLUSTERED, parse_cpuset(own), parse_cpuset(free), count)) == expected


@pytest.mark.parametrize(
    ("own", "free", "count", "taste", "expected"),
    [
        pytest.param("1", "0-15", 3, Taste(across_cores=True), "0-2", id="other-cores-first"),
        pytest.param("1", "1,9,12", 2, Taste(across_cores=True), "1,9", id="its-own-core-rather-than-another-node"),
        pytest.param("1-2,9", "0-15", 2, Taste(across_cores=True), "1-2", id="a-thread-of-each-core-stays"),
        pytest.param("0-3,8-9", "", 4, Taste(), "0-1,8-9", id="whole-cores-stay"),
        pytest.param("1", "2-15", 3, Taste(first=frozenset({12, 13})), "1,12-13", id="liked-ones-of-another-node"),
        pytest.param("1", "2-15", 3, Taste(first=frozenset({10})), "1,9-10", id="a-liked-one-and-another"),
        pytest.param("", "0-15", 2, Taste(first=frozenset({5, 7})), "5,7", id="had-none"),
    ],
)
def test_tastes(own: str, free: str, count: int, taste: Taste, expected: str) -> None:
    """What it likes counts for what stays, and for what it gets more."""
    assert format_cpuset(resize_cpus(SMT, parse_cpuset(own), parse_cpuset(free), count, taste)) == expected


cpusets = st.frozensets(st.integers(0, 15))
tastes = st.builds(Taste, cpusets, across_cores=st.booleans(), evenly=st.booleans(), one_package=st.booleans())


@given(cpusets, cpusets, st.integers(0, 20), tastes)
def test_always(own: CpuSet, free: CpuSet, count: int, taste: Taste) -> None:
    """The count is exact, nothing foreign is taken, and nothing is given up but what is too much."""
    if count > len(own | free):
        with pytest.raises(NotEnough):
            resize_cpus(SMT, own, free, count, taste)
        return
    picked = resize_cpus(SMT, own, free, count, taste)

    assert len(picked) == count
    assert picked <= own | free
    assert picked <= own or own <= picked
