"""NVIDIA's device nodes: of a GPU, of a MIG device, and the shared ones."""

import re
from collections.abc import Mapping
from typing import Literal

from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice

Platform = Literal["nvml", "wsl", "tegra"]
"""How the machine's cards are found: by NVML, by NVML under WSL, or as the GPU of a Tegra chip."""
SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
WSL_NODE = "/dev/dxg"
IMEX_CHANNELS = "/dev/nvidia-caps-imex-channels"
MigMinors = Mapping[tuple[int, int, int | None], int]
"""The minor number of an instance's capability node, by the GPU's minor number and the IDs of the GPU instance and of
the compute instance; the last one is None for the GPU instance itself."""
_MINOR = re.compile(r"^gpu([0-9]{1,6})/gi([0-9]{1,6})(?:/ci([0-9]{1,6}))?/access ([0-9]{1,9})$", re.MULTILINE)


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
