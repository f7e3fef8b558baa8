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
POLL_S = 10.0
"""How often `give_back_after_peaks` reads how much memory is in use."""
_GROWN_BYTES = 64 << 20
"""The growth since the last trim that is worth the next one, a pause of 0.2 ms for each MB that is given back."""
_USUAL_BYTES = 128 << 20
"""Above this, trims are repeated without growth: the last one may have been in the middle of a peak."""
_MAX_PAUSE_POLLS = 64


def keep_large_buffers() -> bool:
    """Let freed buffers of up to 8 MiB be used again instead of giving their pages back after every call.

    A list of 1,000 containers is nearly 1 MB in pieces that glibc would map and unmap each time (``mallopt(3)``): two
    thirds of the CPU time of such a call are page faults without this.

    Returns:
        False where the C library has no such setting (musl).
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES) and mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES))


async def give_back_after_peaks() -> None:
    """Give freed memory back to the kernel after the start, and whenever much has been added; glibc keeps most of it.

    It ends only where the C library has no such call (musl).
    """
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is None:
        return
    memory = _Memory(trim)
    while True:
        await asyncio.sleep(POLL_S)
        if memory.poll():
            await asyncio.to_thread(memory.give_back)


@dataclass(slots=True)
class _Memory:
    trim: Callable[[int], int]
    least_bytes: int = 0
    """The smallest size since the last trim; 0 before the first one, which is due: a start leaves 1.5 MB behind."""
    polls: int = 0
    """The number of polls since the last trim."""
    pause_polls: int = 1
    """How many polls there are before a trim without growth; doubles with each such trim."""

    def poll(self) -> bool:
        """Return whether to trim: memory has grown, or is large and was not trimmed for long."""
        now_bytes, self.polls = _resident_bytes(), self.polls + 1
        has_grown = not self.least_bytes or now_bytes >= self.least_bytes + _GROWN_BYTES
        if has_grown or (now_bytes >= _USUAL_BYTES and self.polls >= self.pause_polls):
            self.pause_polls = 1 if has_grown else min(2 * self.pause_polls, _MAX_PAUSE_POLLS)
            return True
        self.least_bytes = min(self.least_bytes, now_bytes)
        return False

    def give_back(self) -> None:
        """Trim. May block."""
        self.trim(0)
        self.polls, self.least_bytes = 0, _resident_bytes()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
