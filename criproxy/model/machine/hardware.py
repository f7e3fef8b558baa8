"""Facts about a machine that only people need, and placement does not: frequencies, PCI devices, use; and huge pages.

Separate from `Topology`, which is read at every start of the daemon and has to be small and fast.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class HugePages:
    """The huge pages of one size in one NUMA node."""

    node: int
    size_bytes: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class HugePageRequest:
    """The huge pages of one size that a container may use."""

    size_bytes: int
    limit_bytes: int
    there: tuple[HugePages, ...] = ()
    """Those of the machine when the container was created, by NUMA node; empty if unknown."""

    def beside(self, there: Iterable[HugePages]) -> "HugePageRequest":
        """Return the same request with those of a machine's pages that have its size."""
        known = tuple(there)
        found = tuple(each for each in known if each.size_bytes == self.size_bytes)
        none = (HugePages(node, self.size_bytes, 0, 0) for node in dict.fromkeys(each.node for each in known))
        return replace(self, there=found or tuple(none))

    @property
    def is_nowhere(self) -> bool:
        """Whether no NUMA node has any of these pages, neither free nor in use."""
        return bool(self.there) and not any(each.total for each in self.there)


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


@dataclass(frozen=True, slots=True)
class CpuTime:
    """The time of one or all CPUs since the boot; only the ratio of both has a meaning."""

    busy: float
    total: float


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """What the cgroup of one container has used."""

    cpu_ns: int
    """CPU time since it was created."""
    memory_bytes: int | None
    """Memory that cannot be reclaimed easily, as the kubelet counts it; None where the kernel does not say."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory of the machine."""

    total_bytes: int
    available_bytes: int
    """What processes can get without swapping."""
