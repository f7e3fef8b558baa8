"""Kinds of CPUs are high, normal or low."""

from dataclasses import replace

import pytest

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.machine.topology import CpuKind
from criproxy.placement.alloc.near import Priority, cpus_of_priority
from criproxy.simulate.hosts import machine

MACHINE = machine(nodes=1, cores=8, threads=1)
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
    topology = replace(MACHINE, cpu_kinds=kinds)

    assert [format_cpuset(cpus_of_priority(topology, priority)) for priority in Priority] == expected
