"""What people want to know about a machine and placement does not need: frequencies, huge pages, PCI devices.

Kept apart from `Topology`, which is read at every start of the daemon and has to be small and fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Frequency:
    """CPUs with the same frequencies, in kHz; 0 where one is not known."""

    cpus: CpuSet
    base_khz: int
    min_khz: int
    max_khz: int


@dataclass(frozen=True, slots=True)
class HugePages:
    """The huge pages of one size in one NUMA node."""

    node: int
    size_bytes: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function."""

    address: str
    """As the kernel names it, such as ``0000:3b:00.0``."""
    class_id: str
    """Hexadecimal with 0x, as the next two: class, subclass and programming interface; empty where not known."""
    vendor: str
    device: str
    numa_node: int
    """-1 where the firmware does not say."""
    local_cpus: CpuSet
    """Online CPUs close to it; all of them where nothing is known."""


@dataclass(frozen=True)
class Hardware:
    """All that is known of one machine."""

    topology: Topology
    present_cpus: CpuSet
    """Plugged in, running or not."""
    possible_cpus: str
    """In kernel notation, as the kernel says it: it may name thousands that will never exist. Empty where not known."""
    nohz_full_cpus: CpuSet
    """CPUs without the periodic tick."""
    node_states: Mapping[str, CpuSet]
    """The kernel's lists of NUMA nodes (online, has_memory, …) as far as there are any."""
    frequencies: tuple[Frequency, ...] = ()
    hugepages: tuple[HugePages, ...] = ()
    pci: tuple[PciDevice, ...] = ()
