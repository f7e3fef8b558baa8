"""A noisy neighbour: says that it begins, works until it is killed, and counts its work in the file that it is given.

    python -m lab.benefit.programs.neighbour KIND FILE WORKERS

Each of the workers, which are processes, has its count in the file (eight bytes, little-endian). The rig reads them at
the beginning and at the end of a measurement: what a manager gives to one container, it may take from these.
"""

import mmap
import os
import random
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.benefit.programs.harness import say

_STEP = 20_000
_BURST_S = (0.001, 0.012)
_PAUSE_S = (0.002, 0.020)
_THRASHED_BYTES = 96 << 20


def _spin() -> None:
    total = 0
    for number in range(_STEP):
        total += number


def busy() -> Iterator[int]:
    """A loop without pause: video encoding, or a program with a defect."""
    while True:
        _spin()
        yield 1


def bursty() -> Iterator[int]:
    """A web worker: some milliseconds of work, then some of waiting for the next request."""
    chance = random.Random()
    while True:
        end = time.perf_counter() + chance.uniform(*_BURST_S)
        done = 0
        while time.perf_counter() < end:
            _spin()
            done += 1
        yield done
        time.sleep(chance.uniform(*_PAUSE_S))


def thrasher() -> Iterator[int]:
    """Walks through more memory than a level 2 cache holds: an analytics job."""
    memory = bytearray(_THRASHED_BYTES)
    other = bytearray(_THRASHED_BYTES)
    while True:
        for begin in range(0, _THRASHED_BYTES, 8 << 20):
            other[begin : begin + (8 << 20)] = memory[begin : begin + (8 << 20)]
            yield 1


def batch() -> Iterator[int]:
    """Compression at low priority: a backup."""
    block = random.Random(2).randbytes(32 << 10) * 2
    while True:
        zlib.compress(block)
        yield 1


KINDS: dict[str, Callable[[], Iterator[int]]] = {
    function.__name__: function for function in (busy, bursty, thrasher, batch)
}


def main(kind: str, file: Path, workers: int) -> None:
    """Work in so many processes, and count."""
    file.write_bytes(bytes(8 * workers))
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 8 * workers) as counts:
        say(ready=True)
        number = next((number for number in range(1, workers) if os.fork() == 0), 0)
        total = 0
        for done in KINDS[kind]():
            total += done
            counts[8 * number : 8 * number + 8] = struct.pack("<Q", total)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
