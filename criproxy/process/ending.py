"""Bounded waits for ends: of work that must not be cancelled in the middle, and of the process."""

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
    """Return what *work* returns, or raise what it raises; the cancellation of the caller does not cancel it.

    Libraries that are cancelled in the middle may leak resources, or raise another exception than the cancellation,
    which is lost then.

    Args:
        work: continues even if no caller waits for it any more.
        timeout_s: how long to wait for its end; None: without a limit.
        last_s: how long to wait for it after the caller was cancelled, before the cancellation continues.

    Raises:
        TimeoutError: it has not ended in time.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve_exception)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=last_s)
        raise
    if not done:
        raise TimeoutError
    return task.result()


def end_process_soon() -> None:
    """End this process after `LONGEST_STOP_S` in any case: a thread that hangs in a file cannot be ended otherwise.

    The stack of each thread at that moment is printed to standard error.
    """
    with suppress(RuntimeError, ValueError, OSError):  # there is no standard error
        faulthandler.dump_traceback_later(LONGEST_STOP_S, exit=True)


def _retrieve_exception(task: "asyncio.Task[T]") -> None:
    """Retrieve the exception of *task*: otherwise asyncio would print it if no caller waits any more."""
    if not task.cancelled():
        task.exception()
