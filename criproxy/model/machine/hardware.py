"""Facts about a machine that only people need, and placement does not: frequencies, huge pages, PCI devices.

Separate from `Topology`, which is read at every start of the daemon and has to be small and fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.huge_pages import HugePages
from criproxy.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class Frequency:
    """CPUs with the same frequencies, in kHz; 0 if unknown."""

    cpus: CpuSet
    base_khz: int
    min_khz: int
    max_khz: int


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One PCI function."""

    address: str
    """The kernel's name, such as ``0000:3b:00.0``."""
    class_id: str
    """Class, subclass and programming interface; hexadecimal with 0x, like the next two; empty if unknown."""
    vendor: str
    device: str
    numa_node: int
    """-1 if the firmware does not report it."""
    local_cpus: CpuSet
    """Online CPUs close to it; all if unknown."""


@dataclass(frozen=True)
class Hardware:
    """The hardware of one machine."""

    topology: Topology
    present_cpus: CpuSet
    """Installed CPUs, online or not."""
    possible_cpus: str
    """The kernel's list, which may contain thousands that will never exist. Empty if unknown."""
    nohz_full_cpus: CpuSet
    """CPUs without the periodic tick."""
    node_states: Mapping[str, CpuSet]
    """The kernel's lists of NUMA nodes (online, has_memory, …), if there are any."""
    frequencies: tuple[Frequency, ...] = ()
    hugepages: tuple[HugePages, ...] = ()
    pci: tuple[PciDevice, ...] = ()
