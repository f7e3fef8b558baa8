"""The files of pods with cards, for programs beside the daemon.

No call waits for the files. If the disk is full, read-only or hangs, they become outdated, which `status --check`
reports; writes are retried from time to time, and then all files are written again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time

from criproxy.devices.holdings import Holdings
from criproxy.devices.usage.rows import CardRow, PodFile, is_uid, pod_files, rows
from criproxy.host.patience import Hangs, Patience
from criproxy.node.context import Context
from criproxy.node.devices.plugin import CardUsage
from criproxy.store.files import PODS, write_pods

UPDATE_S = 10.0
"""How often a file is written if only the use has changed, and how often a failing disk is retried."""
PAUSE_S = 0.5
"""Pause between writes, so that concurrent changes are written together."""
TIMEOUT_S = 2.0
"""How long the disk may take."""


@dataclass(slots=True, repr=False)
class PodFiles:
    """Writes the files while the daemon runs.

    Args:
        state_dir: the state directory.
        context: has the node.
        holdings: the cards that its containers were given.
        usage: the use of these cards.
        known: returns once the running containers and their cards are known.
    """

    state_dir: Path
    context: Context
    holdings: Holdings
    usage: CardUsage
    known: Callable[[], Awaitable[None]]
    clock: Callable[[], float] = monotonic
    write: Callable[..., None] = write_pods
    problem: str = ""
    """Why the files are outdated, in one sentence; empty if they are not."""
    _written: dict[str, tuple[PodFile, float]] = field(default_factory=dict)
    """By UID, what was written last and when, on the monotonic clock."""
    _listed: bool = False
    """Whether the files of pods that are gone were removed."""
    _invalid: set[str] = field(default_factory=set)
    """Sandboxes of pods with an invalid UID, which were logged."""
    _turn: object = None
    """Identifies the newest write: an older one that hung stops when it continues."""
    _patience: Patience = field(default_factory=Patience)

    async def run(self) -> None:
        """Write all changes, for ever."""
        await self.known()
        while True:
            news = [asyncio.ensure_future(each) for each in (self.context.state.changed(), self.usage.changed())]
            found = set[asyncio.Future[None]]()
            try:
                await asyncio.sleep(0)  # both wait from here on
                await self.update()
                if not self.problem:
                    found, _ = await asyncio.wait(news, timeout=UPDATE_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in news:
                    each.cancel()
            if self.problem or found:
                await asyncio.sleep(UPDATE_S if self.problem else PAUSE_S)

    async def update(self) -> None:
        """Write the files that are due. Errors of the disk do not raise."""
        now_s = self.clock()
        wanted, wall_s = await self._wanted(), time()
        due = {uid: file for uid, file in wanted.items() if self._is_due(uid, file, now_s)}
        if not due and self._listed and self._written.keys() <= wanted.keys():
            return
        failed_before, self._turn = bool(self.problem), (turn := object())

        def work() -> None:
            texts = {uid: file.text(wall_s) for uid, file in due.items()}
            self.write(self.state_dir, texts, set(wanted), lambda: self._turn is turn)

        if not await self._try(work) or failed_before:  # after a failure write twice: a write that hung may end late
            self._written, self._listed = {}, False
            return
        self._listed = True
        before = {uid: each for uid, each in self._written.items() if uid in wanted}
        self._written = before | {uid: (file, now_s) for uid, file in due.items()}

    async def _wanted(self) -> dict[str, PodFile]:
        if (rules := self.context.settings.devices) is None:
            return {}
        node, report = self.context.state.node, self.usage.current

        def made() -> tuple[list[CardRow], dict[str, PodFile]]:
            found = list(rows(node, self.holdings, rules, report))
            return found, pod_files(found)

        found, files = await asyncio.to_thread(made)  # it takes 3 ms for 64 containers, with every report
        # The kubelet sends no invalid UIDs: pods with one get no file.
        invalid = {row.container.pod for row in found if not is_uid(row.grant.pod_uid)}
        for pod in invalid - self._invalid:
            self.context.log.warning("no file for a pod: its UID is invalid", sandbox=pod)
        self._invalid = invalid
        return files

    def _is_due(self, uid: str, file: PodFile, now_s: float) -> bool:
        before, at_s = self._written.get(uid, (None, 0.0))
        if before is None or before.lasting != file.lasting:
            return True
        return before.uses != file.uses and now_s - at_s >= UPDATE_S

    async def _try(self, work: Callable[[], None]) -> bool:
        """Run *work* with a time limit, and return whether it succeeded; each failure is logged once."""
        folder, problem = self.state_dir / PODS, ""
        try:
            await self._patience.wait(f"writing to {folder}", work, TIMEOUT_S)
        except Hangs as error:
            problem = str(error).split(" for ", 1)[0]
        except OSError as error:
            problem = f"{folder} cannot be written: {error.strerror or error}"
        before, self.problem = self.problem, problem
        self.context.counters.pod_file_failures += bool(problem)
        if problem not in ("", before):
            self.context.log.warning("files of pods with cards cannot be written", error=problem)
        elif before and not problem:
            self.context.log.warning("files of pods with cards are written again")
        return not problem
