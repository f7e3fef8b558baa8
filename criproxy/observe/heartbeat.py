"""Measures how late the event loop wakes up, and tells systemd's watchdog that it does."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable

INTERVAL_S = 0.5
LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
STALE_S = 5.0
"""A lag beyond this makes the daemon unhealthy: held calls of the kubelet would near their deadlines."""


class Heartbeat:
    """A timer of the loop; its lateness is the lag of everything else that runs there."""

    def __init__(self, alive: Callable[[], None], watchdog_interval_s: float | None = None) -> None:
        """Call *alive* at every beat if there is a watchdog; beat at least as often as it wants."""
        self._alive = alive if watchdog_interval_s is not None else None
        self._interval_s = min(INTERVAL_S, watchdog_interval_s or INTERVAL_S)
        self._handle: asyncio.TimerHandle | None = None
        self.lag_s = 0.0
        """Of the last beat."""
        self.lag_total_s = 0.0
        self.lag_counts = [0] * (len(LAG_BUCKETS_S) + 1)
        """Beats per bucket of `LAG_BUCKETS_S`, not cumulative; the last one is for what exceeds them all."""

    def start(self) -> None:
        """Begin to beat on the running loop."""
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Beat no more."""
        if self._handle is not None:
            self._handle.cancel()

    def overdue_s(self) -> float:
        """How late the loop is: at the last beat, or already before the next one."""
        if self._handle is None:
            return 0.0
        return max(self.lag_s, asyncio.get_running_loop().time() - self._handle.when())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due_s = loop.time() + self._interval_s
        self._handle = loop.call_at(due_s, self._beat, loop, due_s)

    def _beat(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self.lag_s = max(0.0, loop.time() - due_s)
        self.lag_total_s += self.lag_s
        self.lag_counts[bisect_left(LAG_BUCKETS_S, self.lag_s)] += 1
        if self._alive is not None:
            self._alive()
        self._schedule(loop)
