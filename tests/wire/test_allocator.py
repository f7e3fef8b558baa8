"""What the C library keeps of memory that was freed: as much as calls need again, not what a peak needed."""

import subprocess
import sys

PEAK = """
import asyncio
from criproxy.wire import allocator

async def main():
    allocator.keep_large_buffers()
    allocator.LOOK_S = 0.05
    kept = [b"x" * (1500 + number % 100) for number in range(150_000)][::100]
    peak_bytes = allocator._resident_bytes()
    giving = asyncio.create_task(allocator.give_back_after_peaks())
    while allocator._resident_bytes() > peak_bytes / 2 and not giving.done():
        await asyncio.sleep(0.05)
    print(peak_bytes >> 20, giving.done())

asyncio.run(main())
"""


def test_what_a_peak_needed_is_given_back() -> None:
    """Small pieces between it are still in use, so that glibc alone would keep it for ever."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=60)

    peak_mib, ended = done.stdout.split()
    assert int(peak_mib) > 200
    assert ended == "False"
