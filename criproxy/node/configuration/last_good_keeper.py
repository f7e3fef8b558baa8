"""Saves the last good policy file while the daemon runs."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.process.logger import Log
from criproxy.store.last_good import NAME, GoodFile, write_good

RETRY_S = 10.0
"""Pause before a failed write is retried."""
CHECK_S = 60.0
"""How often to check that the saved file still exists: an administrator may have removed the state directory."""
CLOSE_S = 1.0
"""How long `close` waits for the disk."""


@dataclass(slots=True, repr=False)
class PolicyFileKeeper:
    """Writes the last good file in the background; retries while the disk fails, and writes it again if it is lost."""

    state_dir: Path
    log: Log
    problem: str = ""
    """Why the saved file is not the one in force; empty if it is."""
    _wanted: GoodFile | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def keep(self, good: GoodFile) -> None:
        """Save *good* soon, unless it is empty, in place of the former one."""
        if good.text:
            self._wanted = good
            self._news.set()

    async def run(self) -> None:
        """Write the file whenever it is missing or outdated, until `close`."""
        while True:
            self._news.clear()
            if self._wanted is not None:
                await self._write(self._wanted)
            if self._closing and not self._news.is_set():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self.problem else CHECK_S):
                    await self._news.wait()
        self._ended.set()

    async def close(self) -> None:
        """Try once more to write a file that is not saved yet, for `CLOSE_S` at most."""
        self._closing = True
        self._news.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._ended.wait()

    async def _write(self, good: GoodFile) -> None:
        try:
            await asyncio.to_thread(write_good, self.state_dir, good)
        except OSError as error:
            problem = f"{self.state_dir / NAME} cannot be written: {error.strerror}"
            if problem != self.problem:
                self.log.warning("the policy file in effect cannot be saved as the last good file", error=problem)
            self.problem = problem
        else:
            self.problem = ""
