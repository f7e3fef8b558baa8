"""Waiting for what a test's peers see and say."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

PATIENT_S = 60.0
"""Ends a test that hangs."""


class News:
    """Something that a test can wait for."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Let who waits judge again."""
        self._news.set()

    async def until(self, condition: Callable[[], object], timeout_s: float = PATIENT_S) -> None:
        """Return when *condition* is true: it is judged after each call of `wake`.

        Raises:
            TimeoutError: it is not in time.
        """
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._news.wait()
                self._news.clear()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run *work* while the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def poll(condition: Callable[[], object]) -> None:
    """Return when *condition* is true, of which nothing tells."""
    async with asyncio.timeout(PATIENT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
