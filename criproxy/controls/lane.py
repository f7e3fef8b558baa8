"""Work on files that may hang: one item after the other in a thread; one that hangs is named, and only it waits.

`Lane` does a list of items; `Passes` decides when there is one.

A thread for each item, as in `host.patience`, would cost too much: thousands of files are looked at again and again. So
a thread does all items until one hangs; then another thread does the rest. An item that hangs is not begun again before
it has ended, and does nothing else afterwards.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Generic, TypeVar

from criproxy.process.tasks import wait_at_most

T = TypeVar("T")

HANG_S = 1.0
"""When an item counts as hanging."""
MOST_HANGING = 16
"""Each costs a thread; with more, all other items wait for one of them."""


class Lane:
    """Does one list of items at a time.

    Args:
        name: for people, and for the names of threads.
        came_back: called in the loop when an item has ended that hung; its result is lost.
        hang_s: when an item counts as hanging.
    """

    def __init__(self, name: str, came_back: Callable[[], None], hang_s: float = HANG_S) -> None:
        self._name, self._came_back, self._hang_s = name, came_back, hang_s
        self._hanging: dict[str, float] = {}

    @property
    def hanging(self) -> Mapping[str, float]:
        """Return the items that hang: name → for how many seconds."""
        now_s = monotonic()
        return {name: now_s - since_s for name, since_s in self._hanging.items()}

    async def run(self, items: Iterable[tuple[str, Callable[[], T]]]) -> dict[str, T | Exception]:
        """Return what each item has returned or raised, by its name; those that hang are missing."""
        todo = deque(item for item in items if item[0] not in self._hanging)
        done: dict[str, T | Exception] = {}
        while todo and len(self._hanging) < MOST_HANGING:
            turn = _Turn(todo, done, self._returned)
            Thread(target=turn.run, name=self._name, daemon=True).start()
            while not await wait_at_most(self._hang_s / 2, turn.ended.wait()):
                if (stuck := turn.abandon(self._hang_s)) is not None:
                    name, since_s = stuck
                    self._hanging[name] = since_s
                    break
        return done

    async def one(self, name: str, work: Callable[[], T]) -> T | Exception | None:
        """Return what a single item has returned or raised; None if it hangs."""
        return (await self.run([(name, work)])).get(name)

    def _returned(self, name: str) -> None:
        self._hanging.pop(name, None)  # it may hang twice, in runs beside each other
        self._came_back()


class _Turn(Generic[T]):
    """What one thread does: as many items as it can."""

    def __init__(
        self,
        todo: "deque[tuple[str, Callable[[], T]]]",
        done: dict[str, T | Exception],
        returned: Callable[[str], None],
    ) -> None:
        self.ended = asyncio.Event()
        self._todo, self._done, self._returned = todo, done, returned
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        self._now: tuple[str, float] | None = None
        self._abandoned = False

    def run(self) -> None:
        """Do items until there are none, or one of them was abandoned."""
        while (item := self._next()) is not None:
            name, work = item
            result: T | Exception
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 (of any kind: it is a result, and the others go on)
                result = error
            with self._lock:
                if not self._abandoned:
                    self._done[name] = result
                    continue
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._returned, name)
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)

    def abandon(self, hang_s: float) -> tuple[str, float] | None:
        """Return the item that has taken *hang_s* and since when, which is the last one of this thread; else None."""
        with self._lock:
            if self._now is None or monotonic() - self._now[1] < hang_s:
                return None
            self._abandoned = True
            return self._now

    def _next(self) -> tuple[str, Callable[[], T]] | None:
        with self._lock:
            if not self._todo:
                self._now = None
                return None
            name, work = self._todo.popleft()
            self._now = name, monotonic()
            return name, work


Work = Callable[[bool], Awaitable[None]]
"""One pass; the argument says whether all is to be looked at, not only what has changed."""


class Passes:
    """Runs one pass after the other; what is asked during a pass leads to another one."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._asked = 0
        self._done = 0
        self._look = False
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def pending(self) -> bool:
        """Whether a pass runs or waits."""
        return self._done < self._asked

    def ask(self, *, look: bool = False) -> None:
        """Let a pass begin soon."""
        self._asked += 1
        self._look |= look
        self._changed.set()

    async def wait(self, limit_s: float | None) -> bool:
        """Wait until all is done that was asked until now; return whether it is."""
        return await wait_at_most(limit_s, self._until(self._asked))

    async def _until(self, number: int) -> None:
        while self._done < number:
            self._ended.clear()
            await self._ended.wait()

    async def run(self) -> None:
        """Do the passes for ever; after an exception, the pass is repeated when this is called again."""
        while True:
            while not self.pending:
                self._changed.clear()
                await self._changed.wait()
            number, look, self._look = self._asked, self._look, False
            try:
                await self._work(look)
            except BaseException:
                self._look |= look
                raise
            self._done = number
            self._ended.set()
