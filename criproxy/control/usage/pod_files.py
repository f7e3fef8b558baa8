"""Keeping the files of pods with cards: written beside the calls, removed with their pods.

No call waits for them. A disk that is full, read-only or hangs makes them old, which `status --check` says; it is
tried again from time to time, and then all of them are written anew.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from criproxy.control.context import Context
from criproxy.control.usage.reported import CardUsage
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.holdings import Holdings
from criproxy.discovery.patience import Hangs, Patience
from criproxy.model.node import Node
from criproxy.model.notices import Values
from criproxy.store.pod_files import NAME, write_pods
from criproxy.usage.pod_file_content import PodFile, is_uid, pod_files
from criproxy.usage.rows import CardRow, rows
from criproxy.usage.totals import UsageReport

UPDATE_S = 10.0
"""A file in which only the use has changed is written so often at most; also how often a disk that fails is tried."""
PAUSE_S = 0.5
"""What happens together is written together."""
TIMEOUT_S = 2.0
"""How long the disk may take."""


@dataclass(slots=True)
class _Written:
    """What a file says."""

    lasting: Values
    uses: object
    at_s: float
    """On the monotonic clock."""


@dataclass(slots=True, repr=False)
class PodFiles:
    """Writes the files as long as the daemon runs.

    Args:
        state_dir: the state directory.
        context: has the node.
        holdings: what its containers were given.
        usage: what they use.
        known: returns once it is known who runs and what was given to whom.
    """

    state_dir: Path
    context: Context
    holdings: Holdings
    usage: CardUsage
    known: Callable[[], Awaitable[None]]
    clock: Callable[[], float] = time.monotonic
    write: Callable[..., None] = write_pods
    problem: str = ""
    """Why the files are not up to date, in one sentence; empty where they are."""
    _written: dict[str, _Written] = field(default_factory=dict)
    _listed: bool = False
    """Whether the files of pods that are gone were looked for."""
    _nameless: set[str] = field(default_factory=set)
    """Pods whose UID is none, of which the log was told."""
    _turn: object = None
    """Of the newest write: one that hung until after it writes no more."""
    _patience: Patience = field(default_factory=Patience)

    async def run(self) -> None:
        """Write whatever has changed, for ever."""
        await self.known()
        while True:
            news = [asyncio.ensure_future(each) for each in (self.context.state.changed(), self.usage.changed())]
            try:
                await asyncio.sleep(0)  # both listen from here on
                await self.look()
                if not self.problem:
                    await asyncio.wait(news, timeout=UPDATE_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in news:
                    each.cancel()
            await asyncio.sleep(UPDATE_S if self.problem else PAUSE_S)

    async def look(self) -> None:
        """Write what is to be written now. Never raises for the disk's sake."""
        now_s = self.clock()
        wanted = await self._wanted()
        due = {uid: file for uid, file in wanted.items() if self._is_due(uid, file, now_s)}
        if not due and self._listed and self._written.keys() <= wanted.keys():
            return
        failed_before, self._turn = bool(self.problem), (turn := object())
        work = partial(self._write, due, set(wanted), lambda: self._turn is turn)
        if not await self._try(work) or failed_before:  # after a failure twice: a write that hung may end late
            self._written, self._listed = {}, False
            return
        self._listed = True
        self._written = {uid: each for uid, each in self._written.items() if uid in wanted}
        self._written |= {uid: _Written(file.lasting, file.uses, now_s) for uid, file in due.items()}

    async def _wanted(self) -> dict[str, PodFile]:
        if (rules := self.context.settings.devices) is None:
            return {}
        node, report = self.context.state.node, self.usage.current
        found, files = await asyncio.to_thread(_made, node, self.holdings, rules, report)
        self._tell_nameless(found)
        return files

    def _write(self, due: Mapping[str, PodFile], keep: Collection[str], is_newest: Callable[[], bool]) -> None:
        at_s = time.time()
        self.write(self.state_dir, {uid: file.text(at_s) for uid, file in due.items()}, keep, is_newest)

    def _is_due(self, uid: str, file: PodFile, now_s: float) -> bool:
        before = self._written.get(uid)
        if before is None or before.lasting != file.lasting:
            return True
        return before.uses != file.uses and now_s - before.at_s >= UPDATE_S

    async def _try(self, work: Callable[[], None]) -> bool:
        """Whether the disk has done it; what fails is told once."""
        try:
            await self._patience.wait(f"writing to {self.state_dir / NAME}", work, TIMEOUT_S)
        except Hangs as error:
            self._fail(str(error).split(" for ", 1)[0])
        except OSError as error:
            self._fail(f"{self.state_dir / NAME} cannot be written: {error.strerror or error}")
        else:
            if self.problem:
                self.context.log.warning("files of pods with cards are written again")
            self.problem = ""
            return True
        return False

    def _fail(self, why: str) -> None:
        self.context.counters.pod_file_failures += 1
        if why != self.problem:
            self.context.log.warning("files of pods with cards cannot be written", error=why)
        self.problem = why

    def _tell_nameless(self, found: list[CardRow]) -> None:
        """Let the log say of which pods there can be no file: the kubelet sends no such UID."""
        nameless = {row.container.pod for row in found if not is_uid(row.grant.pod_uid)}
        for pod in nameless - self._nameless:
            self.context.log.warning("no file for a pod: its UID is invalid", sandbox=pod)
        self._nameless = nameless


def _made(
    node: Node, holdings: Holdings, rules: DeviceRules, report: UsageReport | None
) -> tuple[list[CardRow], dict[str, PodFile]]:
    """What the files say; in a thread, since it takes 3 ms for 64 containers, and comes with each report."""
    found = list(rows(node, holdings, rules, report))
    return found, pod_files(found)
