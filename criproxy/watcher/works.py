"""Runs the parts of the watcher, each by itself: one that fails begins again, and ends no other."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.observe.ending import PART_S
from criproxy.observe.tasks import Tasks, Work


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part that has to run."""

    loop: Callable[[], Work]
    same: object = None
    """What it depends on: while that is equal, it runs on; None: its loop."""

    @property
    def what(self) -> object:
        """By what it is compared with one that runs."""
        return self.loop if self.same is None else self.same


@dataclass(slots=True, repr=False)
class Works:
    """The parts that run, by their names.

    Args:
        tasks: run them, and begin those anew that have failed.
    """

    tasks: Tasks
    _running: dict[str, tuple[object, asyncio.Task[None]]] = field(default_factory=dict)

    async def use(self, wanted: Mapping[str, Wanted]) -> None:
        """Run exactly these; returns when the others have ended, or after a moment."""
        await self._end(name for name, (what, _) in [*self._running.items()] if not _is(wanted.get(name), what))
        for name, each in wanted.items():
            if name not in self._running:
                task = self.tasks.begin(name, self.tasks.keep_going(name, each.loop))
                self._running[name] = each.what, task

    async def _end(self, names: Iterable[str]) -> None:
        ending = [self._running.pop(name)[1] for name in names]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=PART_S)


def _is(wanted: Wanted | None, what: object) -> bool:
    return wanted is not None and wanted.what == what
