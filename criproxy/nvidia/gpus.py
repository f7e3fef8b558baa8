"""NVIDIA's GPUs and their MIG devices, as NVML reports them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A part of a GPU: a compute instance within a GPU instance."""

    uuid: str
    profile: str
    """As NVIDIA writes it, ``1g.5gb`` or ``1c.3g.20gb+me``."""
    gi: int
    """The number of its GPU instance."""
    ci: int
    """The number of its compute instance within that."""
    index: int
    """Its NVML index within its GPU; its index text is ``<GPU index>:<index>``."""
    memory_mib: int
    attributes: tuple[tuple[str, int], ...] = ()
    """What NVML says of its slices, engines and multiprocessors, by the ends of their labels: ``slices.gi``,
    ``slices.ci``, ``engines.copy``, ``engines.decoder``, ``engines.encoder``, ``engines.jpeg``, ``engines.ofa``,
    ``multiprocessors``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The NVLink domain across nodes that a GPU belongs to."""

    cluster_uuid: str
    clique_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A whole GPU."""

    index: int
    """Its NVML index: the position in NVML's list, with gaps where others are left out."""
    uuid: str
    name: str
    """The product, ``Tesla T4``."""
    memory_mib: int
    """0 where NVML does not say."""
    compute_capability: tuple[int, int] = (0, 0)
    minor: int
    """The number of its node ``/dev/nvidia<minor>``."""
    pci_bus_id: str = ""
    """As NVML writes it, ``00000000:3B:00.0``; empty where that is not known."""
    numa_node: int | None = None
    """The NUMA node of its PCI slot; None where the firmware does not say."""
    mig_capable: bool = False
    mig_enabled: bool = False
    mig: tuple[MigDevice, ...] = ()
    mig_slices: int = 0
    """In how many slices MIG divides its computing units; 0 where NVML does not say."""
    pci_class: int | None = None
    """Its PCI class as in sysfs, ``0x030200``; None where that cannot be read."""
    fabric: Fabric | None = None
    """None: it is not attached to one."""
    is_vgpu: bool = False
    """Whether this is a guest, and it is a part of a GPU of the host's."""
