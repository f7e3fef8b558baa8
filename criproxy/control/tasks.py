"""Background work of the controller: kept alive, ended together, and never failing in silence."""

import asyncio
from collections.abc import Coroutine

from criproxy.control.settings import Log


class Tasks:
    """The tasks that run beside the calls; one that raises is logged."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run *work* in the background."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel what is still running and wait for its end."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._log.error("background work failed", work=task.get_name(), error=str(error), exc_info=error)
