"""NVIDIA's GPUs and their MIG devices, as NVML reports them, and their device nodes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Platform = Literal["nvml", "wsl", "tegra"]
"""How the machine's cards are found: by NVML, by NVML under WSL, or as the GPU of a Tegra chip."""
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
WSL_NODE = "/dev/dxg"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
MigMinors = Mapping[tuple[int, int, int | None], int]
"""The minor number of an instance's capability node, by the GPU's minor number and the IDs of the GPU instance and of
the compute instance; the last one is None for the GPU instance itself."""
MIG_ATTRIBUTES = {
    "slices.gi": "gpuInstanceSliceCount",
    "slices.ci": "computeInstanceSliceCount",
    "engines.copy": "sharedCopyEngineCount",
    "engines.decoder": "sharedDecoderCount",
    "engines.encoder": "sharedEncoderCount",
    "engines.jpeg": "sharedJpegCount",
    "engines.ofa": "sharedOfaCount",
    "multiprocessors": "multiprocessorCount",
}
"""The properties of MIG devices that are labels beside their memory: suffix of the label → field of NVML's answer."""
_MINOR = re.compile(r"^gpu([0-9]{1,6})/gi([0-9]{1,6})(?:/ci([0-9]{1,6}))?/access ([0-9]{1,9})$", re.MULTILINE)


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
    """NVML's numbers of its slices, engines and multiprocessors, by the keys of `MIG_ATTRIBUTES`."""


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


def mig_minors(text: str) -> MigMinors:
    """Parse ``/proc/driver/nvidia-caps/mig-minors``."""
    return {(int(gpu), int(gi), int(ci) if ci else None): int(minor) for gpu, gi, ci, minor in _MINOR.findall(text)}


def gpu_paths(gpu: Gpu) -> tuple[str, ...]:
    """Return the nodes of a whole GPU."""
    return (f"/dev/nvidia{gpu.minor}",)


def mig_paths(gpu: Gpu, device: MigDevice, minors: MigMinors) -> tuple[str, ...]:
    """Return the nodes of a MIG device: the node of its GPU, and the known nodes of its capabilities."""
    wanted = (gpu.minor, device.gi, None), (gpu.minor, device.gi, device.ci)
    capabilities = (f"/dev/nvidia-caps/nvidia-cap{minors[each]}" for each in wanted if each in minors)
    return *gpu_paths(gpu), *capabilities
