"""A machine's GPUs as a library below pynvml's functions: for tests, and as a program for tests of whole processes.

``python -m tests.nvml MACHINE.json MODULE`` lets MODULE's ``main`` find the GPUs of a file, which `write` makes; the
library reads it anew at each call of ``nvmlInit``.
"""

import json
import os
import re
import select
import sys
import threading
from collections.abc import Callable
from ctypes import byref as reference
from ctypes import c_uint, c_ulonglong, c_void_p, cast, memmove, sizeof
from dataclasses import dataclass
from functools import partialmethod
from importlib import import_module
from pathlib import Path
from typing import Any

import pynvml

from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from criproxy.model.text.plain import from_plain, to_plain

# ruff: noqa: D102, N815 (methods have the names of NVML, whose documentation says what they do)

Pointer = Any
"""What ctypes passes: pointers, handles and buffers."""
OK = int(pynvml.NVML_SUCCESS)
NOT_FOUND = int(pynvml.NVML_ERROR_NOT_FOUND)
INVALID = int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
INSUFFICIENT_SIZE = int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
LOST = int(pynvml.NVML_ERROR_GPU_IS_LOST)
_NOT_AVAILABLE = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
_A_GPU, _AN_INSTANCE = 1000, 500
"""Handles are numbers: GPU 0 is 1000, its MIG device 2 is 1003, its GPU instance 1 is 1501."""
_SUFFIXES = {"+me": (7, 8), "+gfx": (10, 11, 12), "-me": (13, 14), "+me.all": (15, 16)}
_PROFILE = re.compile(r"(?:([0-9]+)c\.)?([0-9]+)g\.[0-9]+gb([+-].*)?")
_STRUCTS = {
    "slices.gi": "gpuInstanceSliceCount",
    "slices.ci": "computeInstanceSliceCount",
    "engines.copy": "sharedCopyEngineCount",
    "engines.decoder": "sharedDecoderCount",
    "engines.encoder": "sharedEncoderCount",
    "engines.jpeg": "sharedJpegCount",
    "engines.ofa": "sharedOfaCount",
    "multiprocessors": "multiprocessorCount",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a process uses of a GPU or MIG device."""

    card: str
    """Its UUID."""
    pid: int
    memory_mib: int = 0
    """-1: the driver does not say it."""
    lists: tuple[str, ...] = ("compute",)
    """Of compute, graphics, mps."""
    samples: tuple[tuple[int, int], ...] = ()
    """When, in microseconds since the epoch, and how much of the computing units, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the library says."""

    gpus: tuple[Gpu, ...] = ()
    """In the order of their indexes, without gaps."""
    driver_version: str = "550.54.15"
    cuda: int = 12040
    fails: int = OK
    """What ``nvmlInit`` returns."""
    hangs: bool = False
    """Whether ``nvmlInit`` never returns."""
    lost: tuple[int, ...] = ()
    """The indexes of GPUs that have fallen off the bus."""
    used: tuple[Used, ...] = ()
    """Who uses them; all is read anew whenever the processes or the MIG mode of the first GPU are asked for."""
    unsupported: tuple[str, ...] = ()
    """Functions that the driver does not have: lists of processes, or memory."""
    events: str = ""
    """A FIFO with a line for each event: ``{"gpu": 0, "type": 8, "data": 79, "gi": 1, "ci": 0}``."""


def write(file: Path, driver: Driver) -> None:
    """Let programs find these GPUs; a reader sees either the old or the new ones."""
    new = file.with_name(f".{file.name}")
    new.write_text(json.dumps(to_plain(driver)))
    new.rename(file)


def command(file: Path, module: str = "criproxy.deviceplugin.cards.nvml_report") -> tuple[str, ...]:
    """Run the ``main`` of *module* with the GPUs of *file*."""
    return (sys.executable, "-m", "tests.nvml", str(file), module)


class Library:
    """The functions that pynvml looks for; each is a method with its name."""

    def __init__(self, driver: Callable[[], Driver]) -> None:
        self._read = driver
        self._driver = Driver()
        self._events = -1

    def nvmlInitWithFlags(self, flags: int) -> int:
        self._driver = self._read()
        if self._driver.hangs:
            threading.Event().wait()
        return self._driver.fails

    def nvmlShutdown(self) -> int:
        return OK

    def nvmlSystemGetDriverVersion(self, buffer: Pointer, size: c_uint) -> int:
        return _say(buffer, self._driver.driver_version)

    def nvmlSystemGetCudaDriverVersion(self, number: Pointer) -> int:
        return _set(number, self._driver.cuda)

    def nvmlDeviceGetCount_v2(self, number: Pointer) -> int:
        return _set(number, len(self._driver.gpus))

    def nvmlDeviceGetHandleByIndex_v2(self, index: c_uint, handle: Pointer) -> int:
        if index.value in self._driver.lost:
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        return _point(handle, _A_GPU * (index.value + 1))

    def nvmlDeviceGetHandleByUUID(self, uuid: Pointer, handle: Pointer) -> int:
        wanted = uuid.value.decode()
        for place, gpu in enumerate(self._driver.gpus):
            if gpu.uuid == wanted:
                return self.nvmlDeviceGetHandleByIndex_v2(c_uint(place), handle)
            for device in gpu.mig:
                if device.uuid == wanted:
                    return _point(handle, _A_GPU * (place + 1) + 1 + device.index)
        return NOT_FOUND

    def nvmlDeviceGetUUID(self, handle: Pointer, buffer: Pointer, size: c_uint) -> int:
        device = self._device(handle)
        return _say(buffer, device.uuid if device else self._gpu(handle).uuid)

    def nvmlDeviceGetName(self, handle: Pointer, buffer: Pointer, size: c_uint) -> int:
        return _say(buffer, self._gpu(handle).name)

    def nvmlDeviceGetMinorNumber(self, handle: Pointer, number: Pointer) -> int:
        return _set(number, self._gpu(handle).minor)

    def nvmlDeviceGetPciInfo_v3(self, handle: Pointer, info: Pointer) -> int:
        info._obj.busId = self._gpu(handle).pci_bus_id.encode()
        return OK

    def nvmlDeviceGetVirtualizationMode(self, handle: Pointer, mode: Pointer) -> int:
        return _set(mode, int(pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU) if self._gpu(handle).is_vgpu else 0)

    def nvmlDeviceGetMemoryInfo(self, handle: Pointer, info: Pointer) -> int:
        if "memory" in self._driver.unsupported:
            return NOT_SUPPORTED
        if self._is_gone(handle):
            return INVALID
        device = self._device(handle) or self._gpu(handle)
        info._obj.total = device.memory_mib << 20
        info._obj.used = sum(max(each.memory_mib, 0) for each in self._used(handle)) << 20
        info._obj.free = info._obj.total - info._obj.used
        return OK

    def nvmlDeviceGetUtilizationRates(self, handle: Pointer, rates: Pointer) -> int:
        rates._obj.gpu = sum(percent for each in self._used(handle) for _, percent in each.samples[-1:])
        return OK

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Pointer, count: Pointer, processes: Pointer) -> int:
        if processes is None and _number(handle) == _A_GPU:
            self._driver = self._read()
        return self._list("compute", handle, count, processes)

    def nvmlDeviceGetProcessUtilization(
        self, handle: Pointer, samples: Pointer, count: Pointer, seen: c_ulonglong
    ) -> int:
        # Of a MIG device NVIDIA's library says that it does not support this: who asks all the same is found out.
        found = [(each, *sample) for each in self._used(handle) for sample in each.samples if sample[0] > seen.value]
        if not found:
            return NOT_FOUND
        if samples is None:
            return _set(count, len(found)) or INSUFFICIENT_SIZE
        for place, (each, at_us, percent) in enumerate(found):
            samples[place].pid, samples[place].timeStamp, samples[place].smUtil = each.pid, at_us, percent
        return _set(count, len(found))

    def nvmlDeviceGetCudaComputeCapability(self, handle: Pointer, major: Pointer, minor: Pointer) -> int:
        _set(major, self._gpu(handle).compute_capability[0])
        return _set(minor, self._gpu(handle).compute_capability[1])

    def nvmlDeviceGetMigMode(self, handle: Pointer, current: Pointer, pending: Pointer) -> int:
        if _number(handle) == _A_GPU and (driver := self._read()).gpus:
            self._driver = driver
        gpu = self._gpu(handle)
        if not gpu.mig_capable:
            return NOT_SUPPORTED
        return _set(current, gpu.mig_enabled) or _set(pending, gpu.mig_enabled)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Pointer, number: Pointer) -> int:
        return _set(number, 7 if self._gpu(handle).mig_capable else 0)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Pointer, index: c_uint, device: Pointer) -> int:
        number = index.value
        if all(each.index != number for each in self._gpu(handle).mig):
            return NOT_FOUND
        return _point(device, _number(handle) + 1 + number)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device: Pointer, handle: Pointer) -> int:
        return _point(handle, _number(device) // _A_GPU * _A_GPU)

    def nvmlDeviceGetGpuInstanceId(self, device: Pointer, number: Pointer) -> int:
        return _set(number, self._mig(device).gi)

    def nvmlDeviceGetComputeInstanceId(self, device: Pointer, number: Pointer) -> int:
        return _set(number, self._mig(device).ci)

    def nvmlDeviceGetAttributes_v2(self, device: Pointer, attributes: Pointer) -> int:
        mig, said = self._mig(device), attributes._obj
        ci, gi, _ = _profile(mig)
        for name, value in {"slices.gi": gi, "slices.ci": ci, **dict(mig.attributes)}.items():
            setattr(said, _STRUCTS[name], value)
        said.memorySizeMB = mig.memory_mib
        return OK

    def nvmlDeviceGetGpuInstanceById(self, handle: Pointer, gi: int, instance: Pointer) -> int:
        return _point(instance, _number(handle) + _AN_INSTANCE + gi)

    def nvmlGpuInstanceGetInfo(self, instance: Pointer, info: Pointer) -> int:
        place, gi = divmod(_number(instance), _A_GPU)
        device = next(each for each in self._driver.gpus[place - 1].mig if each.gi == gi - _AN_INSTANCE)
        _, slices, suffix = _profile(device)
        profiles = _SUFFIXES.get(suffix)
        info._obj.profileId = 100 + (profiles[min(slices, len(profiles)) - 1] if profiles else 0)
        return OK

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle: Pointer, profile: int, info: Pointer) -> int:
        info._obj.id = 100 + profile  # NVML has other numbers here, too
        return OK

    def nvmlDeviceGetSupportedEventTypes(self, handle: Pointer, types: Pointer) -> int:
        return _set(types, pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError)

    def nvmlEventSetCreate(self, events: Pointer) -> int:
        self._events = os.open(self._driver.events, os.O_RDWR | os.O_NONBLOCK) if self._driver.events else -1
        return _point(events, 1)

    def nvmlDeviceRegisterEvents(self, handle: Pointer, types: Pointer, events: Pointer) -> int:
        return OK

    def nvmlEventSetFree(self, events: Pointer) -> int:
        if self._events >= 0:
            os.close(self._events)
        return OK

    def nvmlEventSetWait_v2(self, events: Pointer, data: Pointer, timeout_ms: c_uint) -> int:
        if self._events < 0 or not select.select([self._events], [], [], timeout_ms.value / 1000)[0]:
            return int(pynvml.NVML_ERROR_TIMEOUT)
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._events, 1)
        told, event = json.loads(line), data._obj
        _point(reference(event), _A_GPU * (told["gpu"] + 1))  # the handle is the first of its fields
        event.eventType, event.eventData = told["type"], told["data"]
        event.gpuInstanceId, event.computeInstanceId = told.get("gi", 0xFFFFFFFF), told.get("ci", 0xFFFFFFFF)
        return OK

    def _used(self, handle: Pointer) -> list[Used]:
        device = self._device(handle) or self._gpu(handle)
        return [each for each in self._driver.used if each.card == device.uuid]

    def _list(self, name: str, handle: Pointer, count: Pointer, processes: Pointer) -> int:
        if name in self._driver.unsupported:
            return NOT_SUPPORTED
        if _number(handle) // _A_GPU - 1 in self._driver.lost:
            return LOST
        if self._is_gone(handle):
            return INVALID
        found = [each for each in self._used(handle) if name in each.lists]
        if processes is None:
            return _set(count, len(found)) or (INSUFFICIENT_SIZE if found else OK)
        for place, each in enumerate(found):
            processes[place].pid = each.pid
            processes[place].usedGpuMemory = each.memory_mib << 20 if each.memory_mib >= 0 else _NOT_AVAILABLE
        return _set(count, len(found))

    nvmlDeviceGetGraphicsRunningProcesses_v3 = partialmethod(_list, "graphics")
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = partialmethod(_list, "mps")

    def _gpu(self, handle: Pointer) -> Gpu:
        return self._driver.gpus[_number(handle) // _A_GPU - 1]

    def _device(self, handle: Pointer) -> MigDevice | None:
        number = _number(handle) % _A_GPU
        return next((each for each in self._gpu(handle).mig if each.index == number - 1), None) if number else None

    def _is_gone(self, handle: Pointer) -> bool:
        """Whether it is the handle of a MIG device that was removed since."""
        return bool(_number(handle) % _A_GPU) and self._device(handle) is None

    def _mig(self, handle: Pointer) -> MigDevice:
        device = self._device(handle)
        assert device is not None, "asked of a whole GPU"
        return device


def _profile(device: MigDevice) -> tuple[int, int, str]:
    """The slices of its compute instance and of its GPU instance, and what follows the size."""
    found = _PROFILE.fullmatch(device.profile)
    assert found, device.profile
    return int(found[1] or found[2]), int(found[2]), found[3] or ""


def _set(pointer: Pointer, value: int) -> int:
    pointer._obj.value = value
    return OK


def _say(buffer: Pointer, text: str) -> int:
    buffer.value = text.encode()
    return OK


def _point(pointer: Pointer, number: int) -> int:
    memmove(pointer, reference(c_void_p(number)), sizeof(c_void_p))
    return OK


def _number(handle: Pointer) -> int:
    return cast(handle, c_void_p).value or 0


def main() -> int:
    """Run a program with the GPUs of a file."""
    file, module = Path(sys.argv[1]), sys.argv[2]
    pynvml.nvmlLib = Library(lambda: from_plain(Driver, json.loads(file.read_text())))
    program: Callable[[], int] = import_module(module).main
    return program()


if __name__ == "__main__":
    sys.exit(main())
