"""NVIDIA's GPUs and their MIG devices, as NVML reports them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A part of a GPU: a compute instance within a GPU instance."""

    uuid: str
    profile: str
    """In NVIDIA's notation: ``1g.5gb`` or ``1c.3g.20gb+me``."""
    gi: int
    """ID of its GPU instance."""
    ci: int
    """ID of its compute instance within the GPU instance."""
    index: int
    """Its NVML index within its GPU; its index text is ``<GPU index>:<index>``."""
    memory_mib: int
    attributes: tuple[tuple[str, int], ...] = ()
    """NVML's numbers of its slices, engines and multiprocessors, by the suffixes of their labels: ``slices.gi``,
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
    """Its NVML index: the position in NVML's list, with gaps where GPUs are left out."""
    uuid: str
    name: str
    """The product, for example ``Tesla T4``."""
    memory_mib: int
    """0 if NVML does not report it."""
    compute_capability: tuple[int, int] = (0, 0)
    minor: int
    """The number of its node ``/dev/nvidia<minor>``."""
    pci_bus_id: str = ""
    """In NVML's notation, ``00000000:3B:00.0``; empty if unknown."""
    numa_node: int | None = None
    """The NUMA node of its PCI slot; None if the firmware does not report it."""
    mig_capable: bool = False
    mig_enabled: bool = False
    mig: tuple[MigDevice, ...] = ()
    mig_slices: int = 0
    """Number of slices into which MIG divides its multiprocessors; 0 if NVML does not report it."""
    pci_class: int | None = None
    """Its PCI class as in sysfs, for example ``0x030200``; None if it cannot be read."""
    fabric: Fabric | None = None
    """None if it is not attached to a fabric."""
    is_vgpu: bool = False
    """Whether this machine is a guest, and the GPU is a part of a GPU of the host."""

    @property
    def is_described(self) -> bool:
        """Whether its MIG devices are known: without NVML, files only show that there are some."""
        return self.mig_capable or not self.mig_enabled
