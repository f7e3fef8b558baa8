"""Ends what has to end, without waiting for ever for it: work that must not be cancelled half way, and the process."""

import asyncio
import faulthandler
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

LONGEST_STOP_S = 9.0
"""From the signal to the end of the process; systemd kills it 1 s later, see ``TimeoutStopSec=`` of the units."""
PART_S = 2.0
"""How long the end of one part may take."""


async def in_full(work: Coroutine[object, object, T], timeout_s: float | None, last_s: float = PART_S) -> T:
    """What *work* returns, or raises; a caller that is cancelled does not cancel it.

    Cancelled half way, libraries may keep what nobody can end any more, or raise something else than the cancellation,
    which then is lost.

    Args:
        work: goes on even where nobody waits for it any more.
        timeout_s: how long to wait for its end; None: as long as it takes.
        last_s: how long to wait for it after the caller was cancelled, before the cancellation goes on.

    Raises:
        TimeoutError: it has not ended in time.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_look_at)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=last_s)
        raise
    if not done:
        raise TimeoutError
    return task.result()


def end_process_soon() -> None:
    """End this process after `LONGEST_STOP_S`, whatever hangs: a thread that reads a file can be ended in no other way.

    Where each thread was at that moment is printed to standard error.
    """
    with suppress(RuntimeError, ValueError, OSError):  # there is no standard error: nothing can be told
        faulthandler.dump_traceback_later(LONGEST_STOP_S, exit=True)


def _look_at(task: "asyncio.Task[T]") -> None:
    """Nobody may wait for it any more, and then asyncio would print what it raised."""
    if not task.cancelled():
        task.exception()
