"""The program that asks NVML, with a library below pynvml's functions that costs as little as it can.

``python -m lab.usage.nvml PIDS PERIOD``: the processes of the file PIDS use the cards, equally many each. Every
function is called as often as with NVIDIA's library: once for the size of a list, and again for what is in it.
"""

import json
import sys
import time
from ctypes import addressof, byref, c_void_p, memmove, sizeof
from pathlib import Path
from typing import Any

import pynvml

from criproxy.deviceplugin.usage import nvml_usage

# ruff: noqa: D102, N815 (methods have the names of NVML, whose documentation says what they do)

Pointer = Any
"""What ctypes passes: pointers, handles and buffers."""
CARDS = 8
TOTAL_MIB = 81920
_BASE_MIB = 4096
_OK, _MORE = int(pynvml.NVML_SUCCESS), int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)


class Card:
    """One GPU with its processes; they use a little more or less from one reading to the next."""

    def __init__(self, pids: list[int]) -> None:
        self.processes = (pynvml.c_nvmlProcessInfo_v3_t * len(pids))()
        self.samples = (pynvml.c_nvmlProcessUtilizationSample_t * len(pids))()
        for place, pid in enumerate(pids):
            self.processes[place].pid = self.samples[place].pid = pid
        self.turn = 0

    def move(self) -> None:
        """Let time pass."""
        self.turn += 1
        now_us = time.time_ns() // 1000
        for process, sample in zip(self.processes, self.samples, strict=True):
            process.usedGpuMemory = (_BASE_MIB + self.turn % 7) << 20
            sample.timeStamp, sample.smUtil = now_us, 5 + self.turn % 3


class Library:
    """The functions that pynvml looks for."""

    def __init__(self, pids: list[int]) -> None:
        share = len(pids) // CARDS
        self._cards = [Card(pids[index * share : (index + 1) * share]) for index in range(CARDS)]
        self.calls = 0

    def nvmlInitWithFlags(self, flags: Pointer) -> int:
        return _OK

    def nvmlDeviceGetCount_v2(self, number: Pointer) -> int:
        number._obj.value = CARDS
        return _OK

    def nvmlDeviceGetHandleByIndex_v2(self, index: Pointer, handle: Pointer) -> int:
        memmove(handle, byref(c_void_p(index.value + 1)), sizeof(c_void_p))
        return _OK

    def nvmlDeviceGetUUID(self, handle: Pointer, buffer: Pointer, size: Pointer) -> int:
        buffer.value = f"GPU-{_index(handle)}".encode()
        return _OK

    def nvmlDeviceGetMigMode(self, handle: Pointer, current: Pointer, pending: Pointer) -> int:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetMemoryInfo(self, handle: Pointer, info: Pointer) -> int:
        card = self._cards[_index(handle)]
        info._obj.total, info._obj.used = TOTAL_MIB << 20, len(card.processes) * _BASE_MIB << 20
        return _OK

    def nvmlDeviceGetUtilizationRates(self, handle: Pointer, rates: Pointer) -> int:
        rates._obj.gpu = 40 + self._cards[_index(handle)].turn % 5
        return _OK

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Pointer, count: Pointer, processes: Pointer) -> int:
        card = self._cards[_index(handle)]
        if processes is None:
            card.move()
        return _copy(card.processes, count, processes)

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Pointer, count: Pointer, processes: Pointer) -> int:
        count._obj.value = 0
        return _OK

    nvmlDeviceGetMPSComputeRunningProcesses_v3 = nvmlDeviceGetGraphicsRunningProcesses_v3

    def nvmlDeviceGetProcessUtilization(self, handle: Pointer, samples: Pointer, count: Pointer, seen: Pointer) -> int:
        return _copy(self._cards[_index(handle)].samples, count, samples)


def _copy(found: Pointer, count: Pointer, into: Pointer) -> int:
    count._obj.value = len(found)
    if into is None:
        return _MORE
    memmove(into, addressof(found), sizeof(found))
    return _OK


def _index(handle: Pointer) -> int:
    return int(addressof(handle.contents)) - 1


if __name__ == "__main__":
    pynvml.nvmlLib = Library(json.loads(Path(sys.argv[1]).read_text()))
    sys.exit(nvml_usage.main())
