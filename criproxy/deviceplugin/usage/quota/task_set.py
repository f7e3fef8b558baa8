"""Runs a changing set of tasks: one that fails is restarted, and the others go on."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.process.ending import PART_S
from criproxy.process.tasks import Tasks, Work


@dataclass(frozen=True, slots=True)
class WantedTask:
    """A task that has to run."""

    loop: Callable[[], Work]
    settings: object = None
    """What the task depends on: a running task goes on while this is equal; None: its loop."""

    @property
    def identity(self) -> object:
        """The value by which a wanted task is compared with the one that runs."""
        return self.loop if self.settings is None else self.settings


@dataclass(slots=True, repr=False)
class TaskSet:
    """The running tasks, by name.

    Args:
        tasks: runs them, and restarts those that fail.
    """

    tasks: Tasks
    _running: dict[str, tuple[object, asyncio.Task[None]]] = field(default_factory=dict)

    async def use(self, wanted: Mapping[str, WantedTask]) -> None:
        """Run exactly these tasks; return when all others have ended, or after `PART_S`."""
        running = [(name, identity) for name, (identity, _) in self._running.items()]
        await self._end(name for name, identity in running if not _has_identity(wanted.get(name), identity))
        for name, each in wanted.items():
            if name not in self._running:
                task = self.tasks.begin(name, self.tasks.keep_going(name, each.loop))
                self._running[name] = each.identity, task

    async def _end(self, names: Iterable[str]) -> None:
        ending = [self._running.pop(name)[1] for name in names]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=PART_S)


def _has_identity(wanted: WantedTask | None, identity: object) -> bool:
    return wanted is not None and wanted.identity == identity
