"""Hybrid machines: which CPUs are slower than others. Empty if all are alike.

The scheduler's capacities and the frequencies decide. The performance counters of Intel's two core types
(``devices/cpu_core`` and ``cpu_atom``) decide only if no frequency is known: they show what a core can count, and
there are machines that have both, although all their cores are alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from criproxy.host.cpus import CPUS
from criproxy.host.files import read_ids, read_number
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Core, CpuKind

BOOST_TOLERANCE = 0.10
"""Highest frequencies of one kind may differ by less than this: vendors let the best cores boost further."""


@dataclass(frozen=True, slots=True, order=True)
class _Speed:
    capacity: int
    max_khz: int
    base_khz: int


def read_kinds(host_root: Path, cores: Iterable[Core]) -> tuple[CpuKind, ...]:
    """Return the kinds of CPUs, from slow to fast; none if all are alike."""
    cpus_of: dict[_Speed, CpuSet] = {}
    for core in cores:
        speed = _speed(f"{host_root}/{CPUS}/cpu{core.id}")
        cpus_of[speed] = cpus_of.get(speed, frozenset()) | core.cpus
    if set(cpus_of) == {_Speed(0, 0, 0)}:
        kinds = _counter_kinds(host_root, cpus_of[_Speed(0, 0, 0)])
    else:
        kinds = _merge_similar(cpus_of)
    return tuple(kinds) if len(kinds) > 1 else ()


def _speed(cpu: str) -> _Speed:
    return _Speed(
        capacity=read_number(f"{cpu}/cpu_capacity") or 0,
        max_khz=read_number(f"{cpu}/cpufreq/cpuinfo_max_freq") or 0,
        base_khz=read_number(f"{cpu}/cpufreq/base_frequency") or 0,
    )


def _merge_similar(cpus_of: dict[_Speed, CpuSet]) -> list[CpuKind]:
    """Return the kinds; similar highest frequencies of CPUs with the same base frequency count as equal."""
    highest: dict[int, int] = {}
    for base_khz, same in groupby(sorted(cpus_of, key=lambda speed: speed.base_khz), key=lambda speed: speed.base_khz):
        maxima = [speed.max_khz for speed in same]
        if max(maxima) < min(maxima) * (1 + BOOST_TOLERANCE):
            highest[base_khz] = max(maxima)
    kinds: dict[_Speed, CpuSet] = {}
    for speed, cpus in cpus_of.items():
        merged = _Speed(speed.capacity, highest.get(speed.base_khz, speed.max_khz), speed.base_khz)
        kinds[merged] = kinds.get(merged, frozenset()) | cpus
    return [CpuKind(cpus, speed.capacity, speed.base_khz, speed.max_khz) for speed, cpus in sorted(kinds.items())]


def _counter_kinds(host_root: Path, cpus: CpuSet) -> list[CpuKind]:
    counted = (read_ids(host_root / f"sys/devices/{unit}/cpus") or frozenset() for unit in ("cpu_atom", "cpu_core"))
    groups = [group & cpus for group in counted]
    return [CpuKind(group) for group in groups if group]
