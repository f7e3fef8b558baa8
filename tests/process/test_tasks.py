"""What has to end ends: work is not cancelled half way, and nothing that hangs keeps the process."""

import asyncio
import subprocess
import sys

import pytest

from criproxy.process.tasks import Backoff, in_full

LIMIT_S = 120.0
"""Only what never comes takes so long."""
PROGRAM = """\
import asyncio, threading
from criproxy.process import tasks

begun = threading.Event()

def read_a_file():
    begun.set()
    threading.Event().wait()

async def serve():
    asyncio.get_running_loop().run_in_executor(None, read_a_file)
    begun.wait()
    tasks.end_process_soon()

tasks.LONGEST_STOP_S = 0.1
asyncio.run(serve())
"""


class Work:
    """Goes on until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self) -> int:
        """Wait."""
        self.begun.set()
        try:
            await self.let_go.wait()
        finally:
            self.ended.set()
        return 7


async def test_work_that_ends() -> None:
    """Gives what it returns, or raises."""
    work = Work()
    work.let_go.set()
    assert await in_full(work(), None) == 7

    async def fails() -> None:
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        await in_full(fails(), LIMIT_S)


async def test_work_whose_caller_is_cancelled() -> None:
    """Ends first; then the caller does."""
    work = Work()
    caller = asyncio.create_task(in_full(work(), None, LIMIT_S))
    await work.begun.wait()
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    work.let_go.set()

    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended.is_set()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_work_that_does_not_end(is_cancelled: bool) -> None:
    """Goes on, without a caller that waits for it any more."""
    work = Work()
    caller = asyncio.create_task(in_full(work(), None if is_cancelled else 0.01, 0.01))
    await work.begun.wait()
    if is_cancelled:
        caller.cancel()

    with pytest.raises(asyncio.CancelledError if is_cancelled else TimeoutError):
        await caller
    assert not work.ended.is_set()
    work.let_go.set()
    await work.ended.wait()


def test_a_process_with_a_thread_that_hangs() -> None:
    """Ends all the same, with the status 1, and prints where the thread was."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert ended.returncode == 1
    assert "read_a_file" in ended.stderr


# ---------------------------------------------------------------- pauses between tries


def test_pauses_double() -> None:
    """From the first to the longest, each up to a fifth shorter, and again from the first after a success."""
    backoff = Backoff(1.0, 30.0)
    whole = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]

    found = [backoff.pause_s() for _ in whole]
    backoff.reset()

    assert all(
        0.8 * most <= pause <= most for pause, most in zip([*found, backoff.pause_s()], [*whole, 1.0], strict=True)
    )
