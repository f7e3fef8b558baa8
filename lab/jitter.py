"""Runs tests as on a slow and busy machine: pytest's option ``--jitter SEED``.

Threads begin late and report late, a socket that is ready is seen some turns of the event loop later, and now and then
the loop's thread stands still. asyncio's promises hold: what has an order keeps it, and nothing is lost. A test that
fails only here waits for luck instead of an event, or criproxy has a defect that odd timing shows.
"""

import asyncio
import threading
import time
from asyncio.selector_events import BaseSelectorEventLoop
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from selectors import SelectorKey
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay that happens with a *probability*, of up to *longest_s*."""

    name: str
    probability: float
    longest_s: float


STANDSTILL = Delay("standstill", 0.008, 0.08)
"""Of the event loop's thread, before a callback."""
THREAD = Delay("thread", 0.4, 0.06)
"""Before work in a thread begins, and before a thread reports to the event loop."""
SOCKET = Delay("socket", 0.1, 0.02)
"""Until the event loop sees that a socket can be read or written."""


@dataclass(slots=True)
class Jitter:
    """Delays at random, the same for the same *seed* as far as the order of events is the same.

    Args:
        seed: a number and the name of a test, for example.
    """

    seed: str
    happened: Counter[str] = field(default_factory=Counter)
    """How many delays of each kind there were."""
    _random: Random = field(init=False)
    _hidden: dict[tuple[int, int], float] = field(default_factory=dict)
    """The loop and the descriptor that is not seen yet → until when."""

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Delay whatever begins within the block."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", self._standing_still(asyncio.Handle._run))
            patch.setattr(ThreadPoolExecutor, "submit", self._late(ThreadPoolExecutor.submit))
            reports = self._reported_late(asyncio.BaseEventLoop.call_soon_threadsafe)
            patch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", reports)
            seen = self._seen_late(BaseSelectorEventLoop._process_events)  # type: ignore[attr-defined]
            patch.setattr(BaseSelectorEventLoop, "_process_events", seen)
            yield

    def _length_s(self, delay: Delay) -> float:
        """How long to wait this time; mostly 0."""
        if self._random.random() >= delay.probability:
            return 0.0
        self.happened[delay.name] += 1
        return self._random.uniform(0.0, delay.longest_s)

    def _standing_still(self, run: Callable[[asyncio.Handle], None]) -> Callable[[asyncio.Handle], None]:
        def standing_still(handle: asyncio.Handle) -> None:
            time.sleep(self._length_s(STANDSTILL))
            run(handle)

        return standing_still

    def _late(self, submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
        def begin(work: Callable[..., Any], *args: Any, **keys: Any) -> Any:  # noqa: ANN401 (those of the work)
            time.sleep(self._length_s(THREAD))
            return work(*args, **keys)

        def late(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **keys: Any) -> Future[Any]:  # noqa: ANN401
            return submit(pool, begin, work, *args, **keys)

        return late

    def _reported_late(self, call: Callable[..., asyncio.Handle]) -> Callable[..., asyncio.Handle]:
        def reported_late(loop: Any, callback: Callable[..., Any], *args: Any, **keys: Any) -> asyncio.Handle:  # noqa: ANN401
            if loop._thread_id != threading.get_ident():
                time.sleep(self._length_s(THREAD))
            return call(loop, callback, *args, **keys)

        return reported_late

    def _seen_late(self, process: Callable[..., None]) -> Callable[..., None]:
        def seen_late(loop: BaseSelectorEventLoop, events: list[tuple[SelectorKey, int]]) -> None:
            seen = [event for event in events if self._is_seen(id(loop), event[0].fd)]
            if events and not seen:
                time.sleep(0.0005)  # the selector would return at once, again and again
            process(loop, seen)

        return seen_late

    def _is_seen(self, loop: int, descriptor: int) -> bool:
        now_s, place = time.monotonic(), (loop, descriptor)
        if place not in self._hidden:
            self._hidden[place] = now_s + self._length_s(SOCKET)
        if is_seen := self._hidden[place] <= now_s:
            del self._hidden[place]
        return is_seen
