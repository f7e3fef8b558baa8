"""Parts of the watcher that run beside each other."""

import asyncio
from collections import Counter
from collections.abc import Callable

from criproxy.deviceplugin.usage.watcher import TaskSet
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks, Work
from tests.deviceplugin.news import News
from tests.deviceplugin.node import Log


class Parts(News):
    """Parts that count how often they have begun and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = Failures()
        self.works = TaskSet(Tasks(Log(), self.failures, first_pause_s=0.001))
        self.begun, self.ended = Counter[str](), Counter[str]()

    def part(self, name: str, *, fails: bool = False) -> Callable[[], Work]:
        """Return one that runs until it is ended, or that fails."""

        async def run() -> None:
            self.begun[name] += 1
            self.wake()
            if fails:
                raise OverflowError("too large")
            try:
                await asyncio.Event().wait()
            finally:
                self.ended[name] += 1

        return run


async def test_a_part_that_fails_ends_no_other() -> None:
    """It begins again, and its failure is counted."""
    parts = Parts()
    await parts.works.use({"a": (1, parts.part("a")), "b": (1, parts.part("b", fails=True))})
    await parts.until(lambda: parts.begun["b"] >= 3)
    assert (parts.begun["a"], parts.ended["a"]) == (1, 0)
    assert parts.failures.counts["watcher"] >= 2

    await parts.works.use({})
    assert parts.ended["a"] == 1


async def test_only_what_changes_begins_again() -> None:
    """A part runs on while what it depends on is equal."""
    parts = Parts()
    for period_s in (1.0, 1.0, 2.0):
        wanted = {"a": ("same", parts.part("a")), "b": (period_s, parts.part("b"))}
        await parts.works.use(wanted)
        await parts.until(lambda: parts.begun.total() - parts.ended.total() == 2)
    await parts.works.use({})

    assert parts.begun == parts.ended == {"a": 1, "b": 2}
