"""Reads sysfs into a `Topology`: the whole machine, and the CPUs that pods may use. Other modules read the parts.

The scheduler's capacities and the frequencies decide. The performance counters of Intel's two core types
(``devices/cpu_core`` and ``cpu_atom``) decide only if no frequency is known: they show what a core can count, and
there are machines that have both, although all their cores are alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from criproxy.errors import CriproxyError
from criproxy.host.cgroup import read_allowed
from criproxy.host.cpus import (
    CPUS,
    read_caches,
    read_cores,
    read_dies,
    read_isolated,
    read_online,
    read_packages,
    read_present,
)
from criproxy.host.files import read_ids, read_number
from criproxy.host.numa import read_distances, read_nodes
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.machine.topology import Core, CpuKind, Topology

BOOST_TOLERANCE = 0.10
"""Highest frequencies of one kind may differ by less than this: vendors let the best cores boost further."""


def discover(host_root: Path = Path("/"), pods: str = "") -> Topology:
    """Read the machine with /sys and /proc below *host_root*, as far as placement needs it.

    Args:
        host_root: prefix of these paths.
        pods: the cgroup above those of all pods; if empty, the usual one.

    Raises:
        CriproxyError: There are no CPUs, a file has invalid content, or the pods' cgroup allows no online CPU.
    """
    online = read_online(host_root)
    nodes = read_nodes(host_root, online)
    cores = read_cores(host_root, online)
    allowed = read_allowed(host_root, pods)
    cpus = online if allowed.cpus is None else online & allowed.cpus
    if not cpus:
        allows = numbered("CPU", allowed.cpus or frozenset())
        raise CriproxyError(f"{allowed.path} allows the pods {allows}, none of which is online")
    mems = frozenset(node.id for node in nodes if node.memory_bytes) or frozenset(node.id for node in nodes)
    return Topology(
        cpus=cpus,
        mems=mems if allowed.mems is None else mems & allowed.mems,
        nodes=nodes,
        cores=cores,
        packages=read_packages(host_root, cores),
        online_cpus=online,
        dies=read_dies(host_root, cores),
        l2_groups=read_caches(host_root, online, 2),
        l3_groups=read_caches(host_root, online, 3),
        cpu_kinds=read_kinds(host_root, cores),
        distances=read_distances(host_root, nodes),
        isolated_cpus=read_isolated(host_root) & online,
        offline_cpus=read_present(host_root) - online,
    )


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
