"""Saves the configurations that come into force, for ``criproxy history config``."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.control.settings import Loaded
from criproxy.errors import reason_of
from criproxy.observe.logger import Log
from criproxy.store.configurations import FOLDER, MOST, InForceOnce, add
from criproxy.store.last_good import GoodFile

RETRY_S = 10.0
"""Pause before a failed write is retried."""


@dataclass(slots=True, repr=False)
class PastConfigurations:
    """Writes them in the background, in order; while the disk fails, the newest wait in memory."""

    state_dir: Path
    log: Log
    _waiting: deque[InForceOnce] = field(default_factory=lambda: deque(maxlen=MOST))
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _failing: bool = False

    def note(self, said: GoodFile, policy: str, loaded: Loaded, how: str) -> None:
        """Save *said* soon, which came into force as *loaded* says; *policy* and *how* as in `InForceOnce`."""
        if said.text:
            at_s = time.time() if how == "kept" else loaded.at_s
            once = InForceOnce(text=said.text, source=loaded.file, hash=loaded.hash, policy=policy, at_s=at_s, how=how)
            self._waiting.append(once)
            self._news.set()

    async def run(self) -> None:
        """Write what waits, for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write(self._waiting[0])

    async def _write(self, once: InForceOnce) -> None:
        try:
            await asyncio.to_thread(add, self.state_dir, once)
        except OSError as error:
            if not self._failing:
                values = {"folder": str(self.state_dir / FOLDER), "error": reason_of(error)}
                self.log.warning("the history of configurations cannot be written", **values)
            self._failing = True
            await asyncio.sleep(RETRY_S)
        else:
            self._failing = False
            if self._waiting and self._waiting[0] is once:
                self._waiting.popleft()
