"""Background tasks: supervised, stopped together, failures reported; pauses between retries; rates; bounded ends."""

import asyncio
import faulthandler
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from traceback import walk_tb
from typing import Any, TypeVar

from criproxy.process.failures import Failures
from criproxy.process.logger import Log

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 30.0
"""Pause before a supervised task is restarted; it doubles with each failure."""
CALM_S = 60.0
"""When a running task counts as recovered, so that its next restart follows after the first pause."""
STOP_S = 2.0
"""How long cancelled tasks may take to end."""

Work = Coroutine[object, object, None]
T = TypeVar("T")


@dataclass(slots=True, repr=False)
class Tasks:
    """The background tasks; one that raises is logged, counted, and shown for an hour."""

    log: Log
    """Receives each different failure once."""
    failures: Failures
    """Counts all failures."""
    first_pause_s: float = FIRST_PAUSE_S
    """The first pause before a failed supervised task is restarted."""
    stop_s: float = STOP_S
    """How long `stop` waits."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _stopped: bool = False

    def spawn(self, name: str, work: Work) -> None:
        """Run *work* in the background, without a restart after a failure. After `stop` nothing is started."""
        if self._stopped:
            work.close()
            return
        self._running.add(self.begin(name, work))

    def begin(self, name: str, work: Work) -> asyncio.Task[None]:
        """Do the same for a task that its owner awaits and ends: `stop` does not cancel it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def forever(self, name: str, loop: Callable[[], Work]) -> None:
        """Run *loop* in the background, and restart it after each exception, with growing pauses, until it returns.

        Args:
            name: for people: what the task does.
            loop: returns the coroutine, which never ends or must be completed.
        """
        self.spawn(name, self.keep_going(name, loop))

    async def until_ended(self, name: str) -> None:
        """Wait until no work with that *name* runs."""
        while running := [task for task in self._running if task.get_name() == name and not task.done()]:
            await asyncio.wait(running)

    def watch_callbacks(self) -> None:
        """Report exceptions of the event loop's callbacks until `stop`; asyncio would only print them."""
        asyncio.get_running_loop().set_exception_handler(self._unhandled)

    async def stop(self) -> None:
        """Cancel running tasks and wait for a moment for their ends; log those that do not end."""
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
        """Run the loop of `forever`, for callers that end it themselves."""
        clock, pause_s = asyncio.get_running_loop(), self.first_pause_s
        while True:
            begun_s = clock.time()
            try:
                await loop()
            except Exception as error:
                if (task := asyncio.current_task()) and task.cancelling():  # the exception has replaced it
                    raise
                self.failed("watcher", name, error)
            else:
                return
            if clock.time() - begun_s > CALM_S:
                pause_s = self.first_pause_s
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def failed(self, kind: str, name: str, error: BaseException) -> None:
        """Count, show and, if it is new, log that *name* has failed with *error*; *kind* as in `Failures`."""
        after = "; criproxy has restarted it" if kind == "watcher" else ""
        if self.failures.add(kind, f"criproxy failed at '{name}': {error!r}{after}"):
            self.log.error("background work failed", work=name, error=str(error), exc_info=error)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception of a callback; the signature is that of asyncio's exception handlers."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        else:
            self.failed("background", _first_of_ours(error) or str(context.get("message")), error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.failed("background", task.get_name(), error)


def _first_of_ours(error: BaseException) -> str:
    """Return the name of our outermost function in the traceback of *error*; empty if there is none."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__) if frame.f_globals.get("__package__") != "asyncio")
    return next((frame.f_code.co_qualname for frame in frames), "")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield parts of *items* of at most *size*; other tasks can run between them."""
    return (items[first : first + size] for first in range(0, len(items), size))


async def wait_at_most(limit_s: float | None, waiting: Awaitable[object]) -> bool:
    """Await *waiting*, for *limit_s* seconds at most; None: without a limit. Return whether it ended in time."""
    try:
        async with asyncio.timeout(limit_s):
            await waiting
    except TimeoutError:
        return False
    return True


class OnDemand:
    """A supervised task that starts when there is work, and ends when there is none.

    Args:
        tasks: run it.
        name: for people.
        work: does all pending work.
        after_s: how long `soon` waits, so that calls go first and more work is done together.
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
        """Start after ``after_s``; if it is running, that long after its end."""
        if self.busy:
            self._again = True
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._after_s, self.now)

    def now(self) -> None:
        """Start at once, unless it is running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.busy:
            self.busy, self._again = True, False
            self._tasks.forever(self._name, self._run)

    async def ended(self) -> None:
        """Wait until it is not running."""
        while self.busy:
            await self._ended.wait()

    async def _run(self) -> None:
        await self._work()
        self.busy = False
        self._ended.set()
        self._ended = asyncio.Event()
        if self._again:
            self.soon()


_JITTER = 0.2


@dataclass(slots=True)
class Backoff:
    """The pauses between retries of one operation."""

    first_s: float
    longest_s: float
    least: float = 1 - _JITTER
    """The shortest part of a pause that is chosen by chance; 0 where thousands of nodes must not return together."""
    _next_s: float = 0.0

    def pause_s(self) -> float:
        """Return the next pause, and double the one after it, up to the longest."""
        pause_s = self._next_s or self.first_s
        self._next_s = min(2 * pause_s, self.longest_s)
        return pause_s * random.uniform(self.least, 1)  # noqa: S311 (no secret)

    def reset(self) -> None:
        """Begin again with the first pause, after a success."""
        self._next_s = 0.0


class Bucket:
    """A token bucket.

    Args:
        per_s: tokens that are added per second.
        burst: its capacity.
        now: a clock, in seconds.
    """

    def __init__(self, per_s: float, burst: float, now: Callable[[], float] = monotonic) -> None:
        self._per_s, self._burst, self._now = per_s, burst, now
        self._tokens, self._filled_s = float(burst), now()

    def take(self) -> bool:
        """Take a token; False if there is none."""
        if self._filled() < 1:
            return False
        self._tokens -= 1
        return True

    def reserve(self, count: float = 1) -> float:
        """Take *count* tokens, even future ones, and return the seconds until they are available."""
        left = self._filled() - count
        self._tokens = left
        return max(-left, 0.0) / self._per_s

    def _filled(self) -> float:
        now_s = self._now()
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        return self._tokens


@dataclass(slots=True, repr=False)
class _Look:
    """A function of `Looks`."""

    act: Callable[[], None]
    pauses: Backoff
    waits: bool = False
    """Whether it has raised, and is repeated later."""


class Looks:
    """Functions that look at something whenever it may have changed: one pass over all of them per turn of the loop.

    A task for each would cost every call of the kubelet more than what it does. One that raises is logged, counted and
    repeated after a pause, as `Tasks.forever` does it; the others do not wait for it.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._looks: dict[str, _Look] = {}
        self._due = False

    def add(self, name: str, act: Callable[[], None]) -> None:
        """Call *act* now, and then after each `soon`; *name* is for people."""
        self._looks[name] = look = _Look(act, Backoff(self._tasks.first_pause_s, LONGEST_PAUSE_S))
        self._try(name, look)

    def soon(self) -> None:
        """Call all functions in the next turn of the loop."""
        if self._looks and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._due = False
        for name, look in self._looks.items():
            if not look.waits:
                self._try(name, look)

    def _try(self, name: str, look: _Look) -> None:
        look.waits = False
        try:
            look.act()
        except Exception as error:  # noqa: BLE001 (any: it is reported, and the look repeated)
            look.waits = True
            self._tasks.failed("watcher", name, error)
            asyncio.get_running_loop().call_later(look.pauses.pause_s(), self._try, name, look)
        else:
            look.pauses.reset()


LONGEST_STOP_S = 9.0
"""From the signal to the end of the process; systemd kills it 1 s later, see ``TimeoutStopSec=`` of the units."""
PART_S = 2.0
"""How long the end of one part may take."""


async def in_full(work: Coroutine[object, object, T], timeout_s: float | None, last_s: float = PART_S) -> T:
    """Return what *work* returns, or raise what it raises; the cancellation of the caller does not cancel it.

    Libraries that are cancelled in the middle may leak resources, or raise another exception than the cancellation,
    which is lost then.

    Args:
        work: continues even if no caller waits for it any more.
        timeout_s: how long to wait for its end; None: without a limit.
        last_s: how long to wait for it after the caller was cancelled, before the cancellation continues.

    Raises:
        TimeoutError: it has not ended in time.
    """
    task = asyncio.ensure_future(work)
    # Without that, asyncio would print the exception if no caller waits any more.
    task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=last_s)
        raise
    if not done:
        raise TimeoutError
    return task.result()


def end_process_soon() -> None:
    """End this process after `LONGEST_STOP_S` in any case: a thread that hangs in a file cannot be ended otherwise.

    The stack of each thread at that moment is printed to standard error.
    """
    with suppress(RuntimeError, ValueError, OSError):  # there is no standard error
        faulthandler.dump_traceback_later(LONGEST_STOP_S, exit=True)
