"""What only users ask for: frequencies, huge pages, PCI devices and the kernel's lists. Not read by `serve`."""

from collections.abc import Iterator
from pathlib import Path

from criproxy.host.cpus import CPUS, read_present
from criproxy.host.files import entries, read_ids, read_mask, read_number, read_text
from criproxy.host.machine import discover
from criproxy.host.numa import NODES, read_huge_pages
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.hardware import Frequency, Hardware, PciDevice
from criproxy.model.machine.topology import Topology

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
    cpus_of: dict[tuple[int, int, int], CpuSet] = {}
    for core in topology.cores:
        cpu = host_root / CPUS / f"cpu{core.id}"
        base_khz = (
            read_number(cpu / "cpufreq/base_frequency") or (read_number(cpu / "acpi_cppc/nominal_freq") or 0) * 1000
        )
        min_khz, max_khz = (read_number(cpu / f"cpufreq/cpuinfo_{end}_freq") or 0 for end in ("min", "max"))
        known = (base_khz, min_khz, max_khz)
        if any(known):
            cpus_of[known] = cpus_of.get(known, frozenset()) | core.cpus
    found = (Frequency(cpus, *known) for known, cpus in cpus_of.items())
    return tuple(sorted(found, key=lambda frequency: min(frequency.cpus)))


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
    cpus = read_ids(place / "local_cpulist")
    if cpus is None:
        cpus = read_mask(place / "local_cpus")
    if cpus is None and node in topology.node_by_id:
        cpus = topology.node_by_id[node].cpus
    return topology.online_cpus & (cpus or frozenset()) or topology.online_cpus


def read_processor() -> tuple[str, str]:
    """Return the name and the flags of this machine's processor. This runs programs and takes a second."""
    from cpuinfo import get_cpu_info

    found = get_cpu_info()
    return found.get("brand_raw", "unknown"), " ".join(found.get("flags", ()))
