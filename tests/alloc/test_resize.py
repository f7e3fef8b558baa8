"""Whoever has CPUs keeps as many of them as possible, and gets the next ones close to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.alloc.resize import resize_cpus
from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.sim.machines import machine

MACHINE = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11


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


cpusets = st.frozensets(st.integers(0, 15))


@given(cpusets, cpusets, st.integers(0, 20))
def test_always(own: CpuSet, free: CpuSet, count: int) -> None:
    """The count is exact, nothing foreign is taken, and nothing is given up but what is too much."""
    if count > len(own | free):
        with pytest.raises(NotEnough):
            resize_cpus(MACHINE, own, free, count)
        return
    picked = resize_cpus(MACHINE, own, free, count)

    assert len(picked) == count
    assert picked <= own | free
    assert picked <= own or own <= picked
