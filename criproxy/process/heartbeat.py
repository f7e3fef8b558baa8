"""Measures the lag of the event loop, and lets periodic work wake up together."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from math import floor

INTERVAL_S = 1.0
LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
STALE_S = 5.0
"""A lag beyond this makes the daemon unhealthy: held calls of the kubelet would near their deadlines."""


def joint_s(pause_s: float) -> float:
    """Return *pause_s* without what goes beyond a whole second of the loop's clock: so pauses of seconds end together.

    At rest, waking up costs more than what is done then. Pauses of less than a second, and zero, stay as they are.
    """
    now_s = asyncio.get_running_loop().time()
    return floor(now_s + pause_s) - now_s if pause_s >= 1 else pause_s


class Heartbeat:
    """A timer of the loop; its lateness is the lag of everything else that runs there."""

    def __init__(
        self,
        on_beat: Callable[[], None],
        failed: Callable[[Exception], None],
        watchdog_interval_s: float | None = None,
    ) -> None:
        """Call *on_beat* at every beat, and *failed* if that raises; beat as often as the watchdog requires."""
        self._on_beat = on_beat
        self._failed = failed
        self._interval_s = min(INTERVAL_S, watchdog_interval_s or INTERVAL_S)
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self.lag_s = 0.0
        """The lag of the last beat."""
        self.lag_total_s = 0.0
        self.lag_counts = [0] * (len(LAG_BUCKETS_S) + 1)
        """Beats per bucket of `LAG_BUCKETS_S`, not cumulative; the last one is for what exceeds them all."""

    def start(self) -> None:
        """Begin to beat on the running loop."""
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop beating."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def overdue_s(self) -> float:
        """Return the lag of the loop: at the last beat, or of the beat that is overdue."""
        return max(self.lag_s, time.monotonic() - self._due_s) if self._handle is not None else 0.0

    async def healthy(self) -> str | None:
        """Return why the loop makes the program unhealthy; None if it does not."""
        overdue_s = self.overdue_s()
        return None if overdue_s < STALE_S else f"the event loop is {overdue_s:.1f} s late"

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not the loop's own clock: that of uvloop does not advance while a callback runs.
        pause_s = joint_s(self._interval_s)
        self._due_s = time.monotonic() + pause_s
        self._handle = loop.call_later(pause_s, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lag_s = max(0.0, time.monotonic() - self._due_s)
        self.lag_total_s += self.lag_s
        self.lag_counts[bisect_left(LAG_BUCKETS_S, self.lag_s)] += 1
        self._schedule(loop)  # first: a failure must not prevent the next beat
        try:
            self._on_beat()
        except Exception as error:  # noqa: BLE001 (as above)
            self._failed(error)
