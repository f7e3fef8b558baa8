"""Saves the configurations that come into force, for ``criproxy history config``."""

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.errors import reason_of
from criproxy.node.settings import Loaded
from criproxy.process.logger import Log
from criproxy.store.configurations import FOLDER, MOST, InForceOnce, add
from criproxy.store.last_good import GoodFile

RETRY_S = 10.0
"""Pause before a failed write is retried."""
CLOSE_S = 1.0
"""How long `close` waits for the disk."""


@dataclass(slots=True, repr=False)
class PastConfigurations:
    """Writes them in the background, in order; while the disk fails, the newest wait in memory."""

    state_dir: Path
    log: Log
    _waiting: deque[InForceOnce] = field(default_factory=lambda: deque(maxlen=MOST))
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _failing: bool = False
    _closing: bool = False
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, said: GoodFile, policy: str, loaded: Loaded, how: str) -> None:
        """Save *said* soon, which came into force as *loaded* says; *policy* and *how* as in `InForceOnce`."""
        if said.text:
            at_s = time.time() if how == "kept" else loaded.at_s
            once = InForceOnce(text=said.text, source=loaded.file, hash=loaded.hash, policy=policy, at_s=at_s, how=how)
            self._waiting.append(once)
            self._news.set()

    async def run(self) -> None:
        """Write what waits, until `close`."""
        while not self._closing or self._news.is_set():
            self._news.clear()
            while self._waiting and await self._written(self._waiting[0]):
                pass
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._closing else RETRY_S if self._waiting else None):
                    await self._news.wait()
        self._ended.set()

    async def close(self) -> None:
        """Write what still waits, for `CLOSE_S` at most."""
        self._closing = True
        self._news.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._ended.wait()

    async def _written(self, once: InForceOnce) -> bool:
        try:
            await asyncio.to_thread(add, self.state_dir, once)
        except OSError as error:
            if not self._failing:
                values = {"folder": str(self.state_dir / FOLDER), "error": reason_of(error)}
                self.log.warning("the history of configurations cannot be written", **values)
            self._failing = True
            return False
        self._failing = False
        if self._waiting and self._waiting[0] is once:
            self._waiting.popleft()
        return True
