"""Compresses blocks in as many threads as there are usable CPUs, as parallel gzip programs do. Amount: MB.

python -m lab.benefit.programs.compress SECONDS
"""

import os
import random
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

from lab.benefit.programs.harness import work

_BLOCK_BYTES = 128 << 10  # as pigz has it
_WORDS = 4000


def text(size_bytes: int) -> bytes:
    """Words that compress about as well as a log file; always the same."""
    chance = random.Random(1)
    words = [
        bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=chance.randint(2, 12))) for _ in range(_WORDS)
    ]
    lines = b" ".join(chance.choices(words, k=size_bytes // 6))
    return lines[:size_bytes]


def main(seconds: float) -> None:
    """Compress the same blocks over and over."""
    threads = len(os.sched_getaffinity(0))
    block = text(_BLOCK_BYTES)
    with ThreadPoolExecutor(threads) as pool:

        def step() -> float:
            for _ in pool.map(zlib.compress, [block] * 4 * threads):
                pass
            return 4 * threads * len(block) / 1e6

        work(step, seconds, threads=threads)


if __name__ == "__main__":
    main(float(sys.argv[1]))
