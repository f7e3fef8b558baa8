"""Prints what NVML reports about the machine's GPUs; a separate program, for which nothing waits if it hangs.

NVML hangs with its driver, in the kernel, and a thread that hangs there keeps its process from exiting.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

from criproxy.deviceplugin.nvidia.gpus import MIG_ATTRIBUTES, Fabric, Gpu, MigDevice
from criproxy.devices.classes.cards import Peers
from criproxy.devices.classes.mig_profiles import profile_name
from criproxy.host.nvml import fault_of, is_unsupported, peers_of, text_of
from criproxy.model.text.plain import to_plain

T = TypeVar("T")

_MIB = 1 << 20
_MEDIA = {7: "+me", 8: "+me", 10: "+gfx", 11: "+gfx", 12: "+gfx", 13: "-me", 14: "-me", 15: "+me.all", 16: "+me.all"}
"""Suffix of a profile's name after its size, by NVML's number of the GPU instance profile."""
_THOUSAND, _TEN = 1000, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """Everything that the device plugin queries from NVML."""

    gpus: tuple[Gpu, ...] = ()
    """In NVML's order; without the properties that only sysfs has."""
    peers: Mapping[str, Peers] = field(default_factory=dict)
    """Links between GPUs, by their UUIDs."""
    driver_version: str = ""
    cuda_version: tuple[int, int] = (0, 0)
    """The newest version that the driver supports."""
    problem: str = ""
    """Why there is no other content; empty if NVML has answered."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By index: why NVML cannot describe a GPU that it counts."""

    lost: Mapping[str, str] = field(default_factory=dict)
    """GPUs and MIG devices that do not work, or that NVML can no longer describe: UUID to reason."""

    def after(self, before: "NvmlReport") -> "NvmlReport":
        """Return this report with the GPUs that only *before* describes, if NVML counts GPUs that it cannot describe.

        These exist, but do not work. Which one has which index may have changed.
        """
        known = {gpu.uuid for gpu in self.gpus}
        kept = [gpu for gpu in before.gpus if gpu.uuid not in known] if self.unread else []
        any_reason, lost = next(iter(self.unread.values()), ""), dict(self.lost)
        for gpu in kept:
            lost |= dict.fromkeys(_cards(gpu), self.unread.get(str(gpu.index), any_reason))
        return replace(self, gpus=tuple(sorted((*self.gpus, *kept), key=lambda gpu: gpu.index)), lost=lost)


def _cards(gpu: Gpu) -> Iterator[str]:
    """Yield the UUIDs of a GPU and its MIG devices."""
    yield gpu.uuid
    yield from (device.uuid for device in gpu.mig)


def read(nvml: ModuleType) -> NvmlReport:
    """Return the report of pynvml, *nvml*; an error of one GPU does not hide others.

    Raises:
        NVMLError: NVML does not work at all.
    """
    nvml.nvmlInit()
    try:
        return _read(nvml)
    finally:
        nvml.nvmlShutdown()


def _read(nvml: ModuleType) -> NvmlReport:
    gpus, handles, unread, lost = list[Gpu](), dict[str, Any](), dict[str, str](), dict[str, str]()
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu, fault = _gpu(nvml, index, handle), fault_of(nvml, handle)
        except nvml.NVMLError as error:
            unread[str(index)] = str(error)
            continue
        if fault:
            lost |= dict.fromkeys(_cards(gpu), fault)
        gpus.append(gpu)
        handles[gpu.uuid] = handle
    cuda = query_or(nvml, nvml.nvmlSystemGetCudaDriverVersion, 0)
    return NvmlReport(
        gpus=tuple(gpus),
        peers=peers_of(nvml, handles),
        driver_version=text_of(query_or(nvml, nvml.nvmlSystemGetDriverVersion, "")),
        cuda_version=(cuda // _THOUSAND, cuda % _THOUSAND // _TEN),
        unread=unread,
        lost=lost,
    )


def _gpu(nvml: ModuleType, index: int, handle: Any) -> Gpu:  # noqa: ANN401
    memory = query_or(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total, 0) // _MIB
    mode = supported_or(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], None)
    enabled = mode == nvml.NVML_DEVICE_MIG_ENABLE
    return Gpu(
        index=index,
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        memory_mib=memory,
        compute_capability=query_or(nvml, lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)), (0, 0)),
        minor=nvml.nvmlDeviceGetMinorNumber(handle),
        pci_bus_id=text_of(nvml.nvmlDeviceGetPciInfo(handle).busId),
        mig_capable=mode is not None,
        mig_enabled=enabled,
        mig=tuple(_mig_devices(nvml, handle, memory)) if enabled else (),
        mig_slices=_max_mig_devices(nvml, handle) if enabled else 0,
        fabric=query_or(nvml, lambda: _fabric(nvml, handle), None),
        is_vgpu=query_or(nvml, lambda: nvml.nvmlDeviceGetVirtualizationMode(handle), 0)
        == nvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
    )


def _mig_devices(nvml: ModuleType, handle: Any, memory_mib: int) -> Iterator[MigDevice]:  # noqa: ANN401
    """Yield the MIG devices of a GPU; their indexes have gaps.

    Raises:
        NVMLError: NVML does not say which ones there are.
    """
    for index in range(_max_mig_devices(nvml, handle)):
        try:
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield _mig_device(nvml, index, handle, device, memory_mib)
        except nvml.NVMLError as error:
            if error.value not in {nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT}:
                raise
            # no device has this index, or it is being removed


def _max_mig_devices(nvml: ModuleType, handle: Any) -> int:  # noqa: ANN401
    """Return the number of slices of a GPU, which is the maximum: the smallest device is one slice."""
    return supported_or(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle), 0)


def _mig_device(nvml: ModuleType, index: int, gpu: Any, device: Any, gpu_memory_mib: int) -> MigDevice:  # noqa: ANN401
    gi, attributes = nvml.nvmlDeviceGetGpuInstanceId(device), nvml.nvmlDeviceGetAttributes_v2(device)
    return MigDevice(
        uuid=text_of(nvml.nvmlDeviceGetUUID(device)),
        profile=profile_name(
            device_memory_mib=gpu_memory_mib,
            mig_memory_mib=attributes.memorySizeMB,
            gi_slices=attributes.gpuInstanceSliceCount,
            ci_slices=attributes.computeInstanceSliceCount,
            attribute=query_or(nvml, lambda: _suffix(nvml, gpu, gi), ""),
        ),
        gi=gi,
        ci=nvml.nvmlDeviceGetComputeInstanceId(device),
        index=index,
        memory_mib=attributes.memorySizeMB,
        attributes=tuple((name, getattr(attributes, field)) for name, field in MIG_ATTRIBUTES.items()),
    )


def _suffix(nvml: ModuleType, gpu: Any, gi: int) -> str:  # noqa: ANN401
    """Return the suffix of a GPU instance's profile name: NVML has two numberings, for profiles and for instances."""
    wanted = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(gpu, gi)).profileId
    for number, suffix in _MEDIA.items():
        profile = query_or(nvml, partial(nvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, 1), None)
        if profile is not None and profile.id == wanted:
            return suffix
    return ""


def _fabric(nvml: ModuleType, handle: Any) -> Fabric | None:  # noqa: ANN401
    info = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(handle, nvml.byref(info))
    if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED or info.status != nvml.NVML_SUCCESS:
        return None
    return Fabric(cluster_uuid=str(UUID(bytes=bytes(info.clusterUuid))), clique_id=str(info.cliqueId))


def query_or(nvml: ModuleType, query: Callable[[], T], default: T) -> T:
    """Return the result of *query*, or *default* if there is none: how the card is offered does not depend on it."""
    try:
        return query()
    except nvml.NVMLError:
        return default


def supported_or(nvml: ModuleType, query: Callable[[], T], default: T) -> T:
    """Return the result of *query*, or *default* if the card or driver does not support it.

    Raises:
        NVMLError: NVML does not answer, so that it is not known how the card is divided.
    """
    try:
        return query()
    except nvml.NVMLError as error:
        if not is_unsupported(nvml, error):
            raise
        return default


def with_nvml(work: Callable[[ModuleType], None], failed: Callable[[str], None]) -> int:
    """Run *work* with pynvml, or call *failed* with why it fails; return the exit status of a program.

    That its reader has gone is no failure.
    """
    try:
        import pynvml

        work(pynvml)
    except BrokenPipeError:
        return 0
    except ImportError:
        failed("the Python package nvidia-ml-py, which criproxy needs to query NVML, is not installed")
    except Exception as error:  # noqa: BLE001 (a third-party library, on a driver in any state)
        failed(f"NVML: {error}")
    return 1


def _print(report: NvmlReport) -> None:
    json.dump(to_plain(report), sys.stdout)


def main() -> int:
    """Print the report."""
    with_nvml(lambda nvml: _print(read(nvml)), lambda problem: _print(NvmlReport(problem=problem)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
