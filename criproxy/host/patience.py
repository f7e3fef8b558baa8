"""Reads what may hang: the files of drivers and of the kubelet. Each read has a timeout and a separate thread.

Such a thread cannot be killed. Therefore, it is a daemonic one, which does not delay an exit, and not one of a pool
that others use, and a read that is known to hang is not awaited again. After a pause it is tried again, since the path
may be another file by then.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import monotonic
from typing import Any, TypeVar

from criproxy.errors import CriproxyError

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 1800.0
"""Pauses before a read that hangs is tried again; they double each time, since each attempt may cost a thread."""


class Hangs(CriproxyError):
    """A read has not finished in time, or cannot begin; it may do so later."""


@dataclass(slots=True)
class _Read:
    """A read in progress, under one name."""

    future: "Future[Any]"
    started_s: float
    hangs_since_s: float | None = None
    """When it began, or the first attempt before it that hung, too; None if no caller has given up waiting."""
    pause_s: float = FIRST_PAUSE_S


@dataclass(slots=True)
class Patience:
    """Runs reads by name, such as the path of a file; messages contain the name. May be used from any thread."""

    clock: Callable[[], float] = monotonic
    _reads: dict[str, _Read] = field(default_factory=dict)
    """Reads that have not finished."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def hanging(self) -> Mapping[str, float]:
        """Return the reads that have not finished in time: name to seconds."""
        with self._lock:
            now_s, reads = self.clock(), dict(self._reads)
        return {name: now_s - read.hangs_since_s for name, read in reads.items() if read.hangs_since_s is not None}

    async def wait(self, name: str, work: Callable[[], T], timeout_s: float) -> T:
        """Return what *work* returns, or raise what it raises; concurrent callers with the same *name* share one read.

        Raises:
            Hangs: The read has not finished after *timeout_s*; immediately if it is known to hang, or cannot begin.
        """
        future = self.begin(name, work)
        try:
            async with asyncio.timeout(timeout_s):  # wait_for of Python 3.11 may swallow the cancellation of its caller
                return await asyncio.wrap_future(future)
        except TimeoutError:
            if future.done():
                return future.result()  # it has ended at the last moment, or raised this error itself
            raise self._record_timeout(name, future, timeout_s) from None

    def ask(self, name: str, work: Callable[[], T], timeout_s: float) -> T:
        """Do the same as `wait` in a thread that may block."""
        return self.result(name, self.begin(name, work), timeout_s)

    def begin(self, name: str, work: Callable[[], T]) -> "Future[T]":
        """Start a read, for `result`.

        Raises:
            Hangs: The read is known to hang, or there is no thread for it.
        """
        with self._lock:
            before, now_s = self._reads.get(name), self.clock()
            read = _Read(Future(), now_s)
            if before:
                if before.hangs_since_s is None:
                    return before.future
                if now_s - before.started_s < before.pause_s:
                    raise _hangs_error(name, now_s - before.hangs_since_s)
                read.hangs_since_s, read.pause_s = before.hangs_since_s, min(before.pause_s * 2, LONGEST_PAUSE_S)
            read.future.set_running_or_notify_cancel()  # it continues even if callers stop waiting
            self._reads[name] = read
        try:
            Thread(target=self._run, args=(name, read, work), name=f"look at {name}", daemon=True).start()
        except RuntimeError as error:
            self._remove(name, read)
            raise Hangs(f"{name} cannot be read: {error}") from error
        if read.hangs_since_s is not None:  # the next caller gets the result if it has finished
            raise _hangs_error(name, now_s - read.hangs_since_s)
        return read.future

    def result(self, name: str, future: "Future[T]", timeout_s: float) -> T:
        """Return the result of a read that was started; raises as `wait` does."""
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                return future.result()  # as in `wait`
            raise self._record_timeout(name, future, timeout_s) from None

    def mark_silent(self, name: str) -> bool:
        """Record that something awaited elsewhere hangs; return whether that is new."""
        with self._lock:
            now_s, is_news = self.clock(), name not in self._reads
            self._reads.setdefault(name, _Read(Future(), now_s, now_s))
        return is_news

    def mark_answered(self, name: str) -> None:
        """Record that it has answered."""
        with self._lock:
            self._reads.pop(name, None)

    def _run(self, name: str, read: _Read, work: Callable[[], Any]) -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 (it is raised in the callers that wait)
            self._remove(name, read)
            read.future.set_exception(error)
        else:
            self._remove(name, read)
            read.future.set_result(result)

    def _remove(self, name: str, read: _Read) -> None:
        with self._lock:
            if self._reads.get(name) is read:
                del self._reads[name]

    def _record_timeout(self, name: str, future: "Future[Any]", waited_s: float) -> Hangs:
        with self._lock:
            read = self._reads.get(name)
            if read and read.future is future and read.hangs_since_s is None:
                read.hangs_since_s = read.started_s
        return _hangs_error(name, waited_s)


def _hangs_error(name: str, since_s: float) -> Hangs:
    return Hangs(f"{name} has not answered for {since_s:.3g} s")
