"""Reads sysfs into a `Topology`: the whole machine, and the CPUs that pods may use. Other modules read the parts.

The scheduler's capacities and the frequencies decide. The performance counters of Intel's two core types
(``devices/cpu_core`` and ``cpu_atom``) decide only if no frequency is known: they show what a core can count, and
there are machines that have both, although all their cores are alike.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.errors import CriproxyError
from criproxy.host.cgroup import read_allowed, read_cgroup, read_control_files, read_device
from criproxy.host.cpus import (
    CPUS,
    grouped,
    read_caches,
    read_cores,
    read_dies,
    read_isolated,
    read_online,
    read_packages,
    read_present,
)
from criproxy.host.files import entries, read_ids, read_number, read_text
from criproxy.host.numa import NODES, read_distances, read_huge_pages, read_nodes
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.machine.hardware import Frequency, Hardware, PciDevice
from criproxy.model.machine.topology import Core, CpuKind, Topology

if TYPE_CHECKING:
    from criproxy.model.machine.controllable import Controllable
    from criproxy.placement.options.usable import HostReader

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
    control_files = read_control_files(host_root, pods)
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
        control_files=control_files.names if control_files else None,
    )


def host_reader(host_root: Path) -> "HostReader":
    """Return a reader for paths below *host_root*."""
    from criproxy.placement.options.usable import HostReader  # late: `criproxy topology` needs no options of policies

    def controllable() -> "Controllable":
        from criproxy.host.controllable import read_controllable  # late: few files have classes

        return read_controllable(host_root)

    return HostReader(partial(read_cgroup, host_root), partial(read_device, host_root), controllable)


@dataclass(frozen=True, slots=True, order=True)
class _Speed:
    capacity: int
    max_khz: int
    base_khz: int


def read_kinds(host_root: Path, cores: Iterable[Core]) -> tuple[CpuKind, ...]:
    """Return the kinds of CPUs, from slow to fast; none if all are alike."""
    cpus_of = grouped((_speed(f"{host_root}/{CPUS}/cpu{core.id}"), core.cpus) for core in cores)
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
    kinds = grouped(
        (_Speed(speed.capacity, highest.get(speed.base_khz, speed.max_khz), speed.base_khz), cpus)
        for speed, cpus in cpus_of.items()
    )
    return [CpuKind(cpus, speed.capacity, speed.base_khz, speed.max_khz) for speed, cpus in sorted(kinds.items())]


def _counter_kinds(host_root: Path, cpus: CpuSet) -> list[CpuKind]:
    counted = (read_ids(host_root / f"sys/devices/{unit}/cpus") or frozenset() for unit in ("cpu_atom", "cpu_core"))
    groups = [group & cpus for group in counted]
    return [CpuKind(group) for group in groups if group]


NODE_STATES = ("online", "possible", "has_cpu", "has_memory", "has_normal_memory", "has_generic_initiator")
PCI = "sys/bus/pci/devices"


def inspect(host_root: Path = Path("/")) -> Hardware:
    """Read everything about the machine with /sys and /proc below *host_root*.

    Raises:
        CriproxyError: As for `discover`.
    """
    topology = discover(host_root)
    states = {name: read_ids(host_root / NODES / name) for name in NODE_STATES}
    return Hardware(
        topology=topology,
        present_cpus=read_present(host_root),
        possible_cpus=read_text(host_root / CPUS / "possible") or "",
        nohz_full_cpus=read_ids(host_root / CPUS / "nohz_full") or frozenset(),
        node_states={name: nodes for name, nodes in states.items() if nodes is not None},
        frequencies=_frequencies(host_root, topology),
        hugepages=read_huge_pages(host_root, (node.id for node in topology.nodes)),
        pci=tuple(_pci_devices(host_root, topology)),
    )


def _frequencies(host_root: Path, topology: Topology) -> tuple[Frequency, ...]:
    cpus_of = grouped((_khz(host_root / CPUS / f"cpu{core.id}"), core.cpus) for core in topology.cores)
    frequencies = (Frequency(cpus, *khz) for khz, cpus in cpus_of.items() if any(khz))
    return tuple(sorted(frequencies, key=lambda frequency: min(frequency.cpus)))


def _khz(cpu: Path) -> tuple[int, int, int]:
    """Return the base, lowest and highest frequency of a CPU; 0 where that is unknown."""
    base_khz = read_number(cpu / "cpufreq/base_frequency") or (read_number(cpu / "acpi_cppc/nominal_freq") or 0) * 1000
    min_khz, max_khz = (read_number(cpu / f"cpufreq/cpuinfo_{end}_freq") or 0 for end in ("min", "max"))
    return base_khz, min_khz, max_khz


def _pci_devices(host_root: Path, topology: Topology) -> Iterator[PciDevice]:
    for address in entries(host_root / PCI):
        place = host_root / PCI / address
        number = read_number(place / "numa_node")
        node = -1 if number is None else number
        yield PciDevice(
            address=address,
            class_id=read_text(place / "class") or "",
            vendor=read_text(place / "vendor") or "",
            device=read_text(place / "device") or "",
            numa_node=node,
            local_cpus=_local_cpus(place, topology, node),
        )


def _local_cpus(place: Path, topology: Topology, node: int) -> CpuSet:
    """Return the CPUs close to a device: its own list, or else the CPUs of its node, or else all."""
    cpus = read_ids(place / "local_cpulist", masks=[place / "local_cpus"])
    if cpus is None and node in topology.node_by_id:
        cpus = topology.node_by_id[node].cpus
    return topology.online_cpus & (cpus or frozenset()) or topology.online_cpus


def read_processor() -> tuple[str, str]:
    """Return the name and the flags of this machine's processor. This runs programs and takes a second."""
    from cpuinfo import get_cpu_info

    found = get_cpu_info()
    return found.get("brand_raw", "unknown"), " ".join(found.get("flags", ()))
