"""Saves in the background which policy files come into force: the last good one, and those for their history."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.errors import reason_of
from criproxy.node.settings import Loaded
from criproxy.process.logger import Log
from criproxy.process.tasks import wait_at_most
from criproxy.store.configurations import FOLDER, LAST_GOOD_NAME, MOST, GoodFile, InForceOnce, add, write_good

RETRY_S = 10.0
"""Pause before a failed write is retried."""
CHECK_S = 60.0
"""How often to check that the last good file still exists: an administrator may have removed the state directory."""
CLOSE_S = 1.0
"""How long `close` waits for the disk."""


@dataclass(slots=True, repr=False)
class ConfigurationKeeper:
    """Writes both until `close`; retries while the disk fails, and writes the last good file again if it is lost."""

    state_dir: Path
    log: Log
    problem: str = ""
    """Why the saved file is not the one in force; empty if it is."""
    _wanted: GoodFile | None = None
    _waiting: deque[InForceOnce] = field(default_factory=lambda: deque(maxlen=MOST))
    """What the history lacks, in order; while the disk fails, only the newest."""
    _history_fails: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def keep(self, good: GoodFile) -> None:
        """Save *good* soon, unless it is empty, in place of the former one."""
        if good.text:
            self._wanted = good
            self._news.set()

    def note(self, said: GoodFile, policy: str, loaded: Loaded, how: str) -> None:
        """Save *said* soon, which came into force as *loaded* says; *policy* and *how* as in `InForceOnce`."""
        if said.text:
            at_s = time.time() if how == "kept" else loaded.at_s
            once = InForceOnce(text=said.text, source=loaded.file, hash=loaded.hash, policy=policy, at_s=at_s, how=how)
            self._waiting.append(once)
            self._news.set()

    async def run(self) -> None:
        """Save whatever is new or was lost, until `close`."""
        while not self._closing or self._news.is_set():
            self._news.clear()
            await self._write_history()
            if self._wanted is not None:
                await self._write_good(self._wanted)
            pause_s = RETRY_S if self.problem or self._waiting else CHECK_S
            await wait_at_most(0 if self._closing else pause_s, self._news.wait())
        self._ended.set()

    async def close(self) -> None:
        """Try once more to save what is not saved yet, for `CLOSE_S` at most."""
        self._closing = True
        self._news.set()
        await wait_at_most(CLOSE_S, self._ended.wait())

    async def _write_good(self, good: GoodFile) -> None:
        try:
            await asyncio.to_thread(write_good, self.state_dir, good)
        except OSError as error:
            problem = f"{self.state_dir / LAST_GOOD_NAME} cannot be written: {error.strerror}"
            if problem != self.problem:
                self.log.warning("the policy file in effect cannot be saved as the last good file", error=problem)
            self.problem = problem
        else:
            self.problem = ""

    async def _write_history(self) -> None:
        while self._waiting:
            once = self._waiting[0]
            try:
                await asyncio.to_thread(add, self.state_dir, once)
            except OSError as error:
                if not self._history_fails:
                    values = {"folder": str(self.state_dir / FOLDER), "error": reason_of(error)}
                    self.log.warning("the history of configurations cannot be written", **values)
                self._history_fails = True
                return
            self._history_fails = False
            if self._waiting[0] is once:  # newer ones may have taken its place meanwhile
                self._waiting.popleft()
