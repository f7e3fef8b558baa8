"""What NVML says of the machine's GPUs: a program of its own, which prints it, and that nothing waits for if it hangs.

NVML hangs with its driver, in the kernel, and a thread that hangs there keeps its process from ending.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

from criproxy.devices.links import Peers
from criproxy.discovery.nvml import peers_of, text_of
from criproxy.model.plain import to_plain
from criproxy.nvidia.gpus import Fabric, Gpu, MigDevice
from criproxy.nvidia.mig import profile_name

T = TypeVar("T")

_MIB = 1 << 20
_MEDIA = {7: "+me", 8: "+me", 10: "+gfx", 11: "+gfx", 12: "+gfx", 13: "-me", 14: "-me", 15: "+me.all", 16: "+me.all"}
"""What follows the size in a profile's name, by NVML's number of the GPU instance profile."""
_ATTRIBUTES = {
    "slices.gi": "gpuInstanceSliceCount",
    "slices.ci": "computeInstanceSliceCount",
    "engines.copy": "sharedCopyEngineCount",
    "engines.decoder": "sharedDecoderCount",
    "engines.encoder": "sharedEncoderCount",
    "engines.jpeg": "sharedJpegCount",
    "engines.ofa": "sharedOfaCount",
    "multiprocessors": "multiprocessorCount",
}
_THOUSAND, _TEN = 1000, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """All that the device plugin asks of NVML."""

    gpus: tuple[Gpu, ...] = ()
    """In NVML's order; without what only sysfs knows."""
    peers: Mapping[str, Peers] = field(default_factory=dict)
    """Links between GPUs, by their UUIDs."""
    driver_version: str = ""
    cuda_version: tuple[int, int] = (0, 0)
    """The newest that the driver supports."""
    problem: str = ""
    """Why there is nothing else; empty: NVML has answered."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By index, why NVML cannot describe a GPU that it counts."""

    def after(self, before: "NvmlReport") -> "NvmlReport":
        """The same with GPUs that only *before* could be described: they are there, and do not work."""
        known = {gpu.uuid for gpu in self.gpus}
        kept = [gpu for gpu in before.gpus if str(gpu.index) in self.unread and gpu.uuid not in known]
        return replace(self, gpus=tuple(sorted((*self.gpus, *kept), key=lambda gpu: gpu.index)))

    @property
    def lost(self) -> Mapping[str, str]:
        """By UUID, GPUs and MIG devices that NVML cannot describe any more, with the reason."""
        return {
            card: self.unread[str(gpu.index)]
            for gpu in self.gpus
            if str(gpu.index) in self.unread
            for card in (gpu.uuid, *(device.uuid for device in gpu.mig))
        }


def read(nvml: ModuleType) -> NvmlReport:
    """What pynvml, *nvml*, says; whatever is wrong with a GPU does not hide others.

    Raises:
        NVMLError: NVML does not work at all.
    """
    nvml.nvmlInit()
    try:
        return _read(nvml)
    finally:
        nvml.nvmlShutdown()


def _read(nvml: ModuleType) -> NvmlReport:
    gpus, handles, unread = list[Gpu](), dict[str, Any](), dict[str, str]()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = _gpu(nvml, index, handle)
        except nvml.NVMLError as error:
            unread[str(index)] = str(error)
            continue
        gpus.append(gpu)
        handles[gpu.uuid] = handle
    cuda = _maybe(nvml, nvml.nvmlSystemGetCudaDriverVersion, 0)
    return NvmlReport(
        gpus=tuple(gpus),
        peers=peers_of(nvml, handles),
        driver_version=text_of(_maybe(nvml, nvml.nvmlSystemGetDriverVersion, "")),
        cuda_version=(cuda // _THOUSAND, cuda % _THOUSAND // _TEN),
        unread=unread,
    )


def _gpu(nvml: ModuleType, index: int, handle: Any) -> Gpu:  # noqa: ANN401
    memory = _maybe(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total, 0) // _MIB
    mode = _maybe(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], None)
    enabled = mode == nvml.NVML_DEVICE_MIG_ENABLE
    return Gpu(
        index=index,
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        memory_mib=memory,
        compute_capability=_maybe(nvml, lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)), (0, 0)),
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
        pci_bus_id=text_of(nvml.nvmlDeviceGetPciInfo(handle).busId),
        mig_capable=mode is not None,
        mig_enabled=enabled,
        mig=tuple(_mig_devices(nvml, handle, memory)) if enabled else (),
        mig_slices=_max_mig_devices(nvml, handle) if enabled else 0,
        fabric=_maybe(nvml, lambda: _fabric(nvml, handle), None),
        is_vgpu=_maybe(nvml, lambda: nvml.nvmlDeviceGetVirtualizationMode(handle), 0)
        == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
    )


def _mig_devices(nvml: ModuleType, handle: Any, memory_mib: int) -> Iterator[MigDevice]:  # noqa: ANN401
    """Those of a GPU; their numbers have gaps."""
    for index in range(_max_mig_devices(nvml, handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield _mig_device(nvml, index, handle, device, memory_mib)
        except nvml.NVMLError:  # no device has this number, or it is just being removed
            continue


def _max_mig_devices(nvml: ModuleType, handle: Any) -> int:  # noqa: ANN401
    """As many as a GPU has slices: the smallest device is one of them."""
    return _maybe(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)


def _mig_device(nvml: ModuleType, index: int, gpu: Any, device: Any, gpu_memory_mib: int) -> MigDevice:  # noqa: ANN401
    gi, said = nvml.nvmlDeviceGetGpuInstanceId(device), nvml.nvmlDeviceGetAttributes_v2(device)
    return MigDevice(
        uuid=text_of(nvml.nvmlDeviceGetUUID(device)),
        profile=profile_name(
            device_memory_mib=gpu_memory_mib,
            mig_memory_mib=said.memorySizeMB,
            gi_slices=said.gpuInstanceSliceCount,
            ci_slices=said.computeInstanceSliceCount,
            attribute=_maybe(nvml, lambda: _suffix(nvml, gpu, gi), ""),
        ),
        gi=gi,
        ci=nvml.nvmlDeviceGetComputeInstanceId(device),
        index=index,
        memory_mib=said.memorySizeMB,
        attributes=tuple((name, getattr(said, field)) for name, field in _ATTRIBUTES.items()),
    )


def _suffix(nvml: ModuleType, gpu: Any, gi: int) -> str:  # noqa: ANN401
    """What the name of a GPU instance's profile has at its end: NVML numbers profiles in another way than instances."""
    wanted = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, gi)).profileId
    for number, suffix in _MEDIA.items():
        if _maybe(nvml, partial(_profile_id, nvml, gpu, number), None) == wanted:
            return suffix
    return ""


def _profile_id(nvml: ModuleType, gpu: Any, number: int) -> int | None:  # noqa: ANN401
    found: int = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, 1).id
    return found


def _fabric(nvml: ModuleType, handle: Any) -> Fabric | None:  # noqa: ANN401
    info = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(handle, nvml.byref(info))
    if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != nvml.NVML_SUCCESS:
        return None
    return Fabric(cluster_uuid=str(UUID(bytes=bytes(info.clusterUuid))), clique_id=str(info.cliqueId))


def _maybe(nvml: ModuleType, ask: Callable[[], T], otherwise: T) -> T:
    """What a card or driver may not know."""
    try:
        return ask()
    except nvml.NVMLError:
        return otherwise


def main() -> int:
    """Print the report."""
    try:
        import pynvml

        report = read(pynvml)
    except ImportError:
        report = NvmlReport(
            problem="the Python package nvidia-ml-py, which criproxy needs to query NVML, is not installed"
        )
    except Exception as error:  # noqa: BLE001 (a library of others, on a driver in any state)
        report = NvmlReport(problem=f"NVML: {error}")
    json.dump(to_plain(report), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
