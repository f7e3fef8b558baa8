"""CPUs next to things and to those that a container has; and kinds of CPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.placement.alloc.cpus import Taste
from criproxy.placement.alloc.near import resize_cpus, take_near
from criproxy.simulate.hosts import machine
from tests.placement.policies.shapes import n4c16

MACHINE = n4c16()


def test_too_few() -> None:
    """There must be as many as are wanted."""
    with pytest.raises(NotEnough):
        take_near(MACHINE, parse_cpuset("0-1"), 3, [parse_cpuset("0")])


SMT = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11


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
