"""What a process gives back to the kernel."""

import asyncio
import sys
from pathlib import Path

LIMIT_S = 60.0
LEFT_MIB = 24
PROGRAM = f"""
import asyncio, ctypes
from criproxy.process import allocator

allocator.POLL_S = 0.05
ctypes.CDLL(None).mallopt(-8, 1)  # one arena, whichever thread allocates
left = [bytes(100_000) for _ in range({LEFT_MIB} * 10)]
last = bytes(100_000)  # the C library gives nothing back below what is in use
del left
print(allocator._resident_bytes() >> 20, flush=True)
asyncio.run(allocator.give_back_after_peaks())
"""
"""What a start leaves behind, less than the growth that counts as a peak later."""


def resident_mib(pid: int) -> int:
    """What a process has resident."""
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1]) >> 10


async def test_what_a_start_leaves_is_given_back() -> None:
    """Also if it is little: a start is the one time when much is freed at once on every node."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT_S):
            assert process.stdout is not None
            before_mib = int(await process.stdout.readline())
            while resident_mib(process.pid) > before_mib - LEFT_MIB / 2:  # noqa: ASYNC110 (the kernel tells nobody)
                await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
