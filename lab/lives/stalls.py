"""How late an event loop gets to its work: what a slow machine takes is no fault of what is measured on it."""

import asyncio


class Stalls:
    """How long the event loop did not get to its work, because the machine had others to run."""

    TICK_S = 0.02

    def __init__(self) -> None:
        self.total_s = 0.0
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to measure."""
        self._ticking = asyncio.create_task(self._tick(), name="stalls")

    def stop(self) -> None:
        """Measure no more."""
        if self._ticking is not None:
            self._ticking.cancel()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            await asyncio.sleep(self.TICK_S)
            self.total_s += max(loop.time() - begun_s - 2 * self.TICK_S, 0.0)
