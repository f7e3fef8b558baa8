"""Whoever has CPUs keeps as many of them as possible, and gets the next ones close to them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.placement.alloc.cpus import Taste
from criproxy.placement.alloc.near import resize_cpus
from criproxy.simulate.hosts import machine

MACHINE = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11
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
    assert format_cpuset(resize_cpus(MACHINE, parse_cpuset(own), parse_cpuset(free), count)) == expected


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
    assert format_cpuset(resize_cpus(MACHINE, parse_cpuset(own), parse_cpuset(free), count, taste)) == expected


cpusets = st.frozensets(st.integers(0, 15))
tastes = st.builds(Taste, cpusets, across_cores=st.booleans(), evenly=st.booleans(), one_package=st.booleans())


@given(cpusets, cpusets, st.integers(0, 20), tastes)
def test_always(own: CpuSet, free: CpuSet, count: int, taste: Taste) -> None:
    """The count is exact, nothing foreign is taken, and nothing is given up but what is too much."""
    if count > len(own | free):
        with pytest.raises(NotEnough):
            resize_cpus(MACHINE, own, free, count, taste)
        return
    picked = resize_cpus(MACHINE, own, free, count, taste)

    assert len(picked) == count
    assert picked <= own | free
    assert picked <= own or own <= picked
