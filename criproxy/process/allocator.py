"""How the C library's allocator treats large buffers: kept between calls, given back after a peak."""

import asyncio
import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_BYTES = 8 << 20
_TRIM_THRESHOLD_BYTES = 16 << 20
LOOK_S = 10.0
"""How often `give_back_after_peaks` looks how much memory is in use."""
_GROWN_BYTES = 64 << 20
"""How much more than after the last time is worth the pause: 0.2 ms for each MB that is given back."""
_USUAL_BYTES = 128 << 20
"""With more than this, giving back is tried again now and then: the last time may have been in the middle of a peak."""
_LONGEST_LOOKS = 64


def keep_large_buffers() -> bool:
    """Let freed buffers of up to 8 MiB be used again instead of giving their pages back after every call.

    A list of 1,000 containers is nearly 1 MB in pieces that glibc would map and unmap each time (``mallopt(3)``): two
    thirds of the CPU time of such a call are page faults without this.

    Returns:
        False where the C library has no such setting (musl).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES))


async def give_back_after_peaks() -> None:
    """Give freed memory back to the kernel whenever much has been added, for ever; glibc alone keeps most of it.

    It returns where the C library has no such call (musl).
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return
    memory = _Memory(trim)
    while True:
        await asyncio.sleep(LOOK_S)
        await asyncio.to_thread(memory.look)


@dataclass(slots=True)
class _Memory:
    trim: Callable[[int], int]
    left_bytes: int = 0
    """What was in use after the last time, or less since."""
    looks: int = 0
    """Since then."""
    pause_looks: int = 1
    """How many there are before the next attempt without growth."""

    def look(self) -> None:
        before_bytes, self.looks = _resident_bytes(), self.looks + 1
        has_grown = before_bytes >= self.left_bytes + _GROWN_BYTES
        if has_grown or (before_bytes >= _USUAL_BYTES and self.looks >= self.pause_looks):
            self.trim(0)
            self.pause_looks = 1 if has_grown else min(2 * self.pause_looks, _LONGEST_LOOKS)
            self.looks, self.left_bytes = 0, _resident_bytes()
        else:
            self.left_bytes = min(self.left_bytes, before_bytes)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
