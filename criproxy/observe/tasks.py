"""Background work of the controller: kept alive, ended together, and never failing in silence."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any, TypeVar

from criproxy.observe.failures import Failures
from criproxy.observe.logger import Log

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Before supervised work begins again; the pause doubles with each failure."""
CALM_S = 60.0
"""What has gone on for so long begins again after the first pause."""
STOP_S = 2.0
"""How long what is cancelled may take to end."""

Work = Coroutine[object, object, None]
T = TypeVar("T")


@dataclass(slots=True, repr=False)
class Tasks:
    """The tasks that run beside the calls; one that raises is logged, counted, and shown for an hour."""

    log: Log
    """Has what fails, once for each sentence."""
    failures: Failures
    """Counts everything that fails."""
    first_pause_s: float = FIRST_PAUSE_S
    """Before supervised work that has failed begins again."""
    stop_s: float = STOP_S
    """How long `stop` waits."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _stopped: bool = False

    def spawn(self, name: str, work: Work) -> None:
        """Run *work* in the background; if it fails, that was it. After `stop` nothing begins any more."""
        if self._stopped:
            work.close()
            return
        self._running.add(self.begin(name, work))

    def begin(self, name: str, work: Work) -> asyncio.Task[None]:
        """The same for a task that its owner waits for and ends: `stop` leaves it alone."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def forever(self, name: str, loop: Callable[[], Work]) -> None:
        """Run *loop* in the background, and again after each exception, with growing pauses, until it returns.

        Args:
            name: what people read of it: what it watches.
            loop: makes the work that has no end, or has to reach it.
        """
        self.spawn(name, self.keep_going(name, loop))

    def watch_callbacks(self) -> None:
        """Report what callbacks of the running event loop raise, until `stop`; asyncio would only print it."""
        asyncio.get_running_loop().set_exception_handler(self._unhandled)

    async def stop(self) -> None:
        """Cancel what is still running and wait for its end, for a moment; what does not end is named in the log."""
        self._stopped = True
        if (loop := asyncio.get_running_loop()).get_exception_handler() == self._unhandled:  # else it is another's
            loop.set_exception_handler(None)
        for task in (ending := {*self._running}):
            task.cancel()
        if not ending:
            return
        _, left = await asyncio.wait(ending, timeout=self.stop_s)
        for name in sorted(task.get_name() for task in left):
            self.log.warning("background work does not end", work=name, after_s=self.stop_s)

    async def keep_going(self, name: str, loop: Callable[[], Work]) -> None:
        """What `forever` runs, for who ends it himself."""
        clock, pause_s = asyncio.get_running_loop(), self.first_pause_s
        while True:
            begun_s = clock.time()
            try:
                await loop()
            except Exception as error:
                if _is_cancelled():  # what was raised has taken the place of the cancellation
                    raise
                self.failed("watcher", name, error)
            else:
                return
            if clock.time() - begun_s > CALM_S:
                pause_s = self.first_pause_s
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def failed(self, kind: str, name: str, error: BaseException) -> None:
        """Count, show and, where it is news, log that *name* has failed with *error*; *kind* as in `Failures`."""
        after = "; criproxy has restarted it" if kind == "watcher" else ""
        if self.failures.add(kind, f"criproxy failed at '{name}': {error!r}{after}"):
            self.log.error("background work failed", work=name, error=str(error), exc_info=error)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As `asyncio` calls it, with *context* in its words."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        else:
            self.failed("background", _first_of_ours(error) or str(context.get("message")), error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.failed("background", task.get_name(), error)


def _is_cancelled() -> bool:
    """Whether the running task has been asked to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first_of_ours(error: BaseException) -> str:
    """The name of our outermost function through which *error* came; empty where there is none."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__) if frame.f_globals.get("__package__") != "asyncio")
    return next((frame.f_code.co_qualname for frame in frames), "")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Parts of *items* of *size* at most, between which other tasks get their turn."""
    return (items[first : first + size] for first in range(0, len(items), size))


class OnDemand:
    """Work that begins when there is something to do and ends when there is not; supervised like work without an end.

    Args:
        tasks: run it.
        name: what people read of it.
        work: does all there is to do.
        after_s: how long `soon` waits, so that calls go first and more is done together.
    """

    def __init__(self, tasks: Tasks, name: str, work: Callable[[], Work], after_s: float = 0.0) -> None:
        self.busy = False
        self._tasks = tasks
        self._name = name
        self._work = work
        self._after_s = after_s
        self._timer: asyncio.TimerHandle | None = None
        self._again = False
        self._ended = asyncio.Event()

    def soon(self) -> None:
        """Begin after ``after_s``; where it is at work, so long after its end."""
        if self.busy:
            self._again = True
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._after_s, self.now)

    def now(self) -> None:
        """Begin at once, unless it is at work."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.busy:
            self.busy, self._again = True, False
            self._tasks.forever(self._name, self._run)

    async def ended(self) -> None:
        """Return when it is not at work."""
        while self.busy:
            await self._ended.wait()

    async def _run(self) -> None:
        await self._work()
        self.busy = False
        self._ended.set()
        self._ended = asyncio.Event()
        if self._again:
            self.soon()
