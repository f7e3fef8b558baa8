"""Measuring the lag of the event loop."""

import asyncio
import time

import pytest

from criproxy.process import heartbeat as module
from criproxy.process.heartbeat import LAG_BUCKETS_S, Heartbeat

LIMIT_S = 60.0


class Beats:
    """Counts beats, and lets a test wait for them."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def count_one(self) -> None:
        """Count one."""
        self.count += 1
        self._changed.set()

    async def until(self, count: int) -> None:
        """Wait until there have been *count*."""
        async with asyncio.timeout(LIMIT_S):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()


async def test_a_blocked_loop_is_seen() -> None:
    """A callback that blocks for 0.2 s makes a beat late by about as much."""
    beats = Beats()
    heartbeat = Heartbeat(beats.count_one, print, watchdog_interval_s=0.02)
    heartbeat.start()
    await beats.until(1)

    time.sleep(0.2)  # noqa: ASYNC251 - the fault under test
    overdue_s = heartbeat.overdue_s()
    await beats.until(2)
    heartbeat.stop()

    assert overdue_s >= 0.15
    assert heartbeat.lag_total_s >= 0.15
    assert sum(heartbeat.lag_counts[LAG_BUCKETS_S.index(0.1) + 1 :]) >= 1


async def test_the_watchdog_is_told_at_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats come as often as the watchdog wants, and each does what has to be done."""
    monkeypatch.setattr(module, "INTERVAL_S", 3600.0)  # our own pace
    beats = Beats()
    heartbeat = Heartbeat(beats.count_one, print, watchdog_interval_s=0.01)
    begin = time.monotonic()

    heartbeat.start()
    await beats.until(5)
    heartbeat.stop()

    assert 0.05 <= time.monotonic() - begin < LIMIT_S
    assert beats.count == sum(heartbeat.lag_counts)


async def test_a_beat_that_fails_is_not_the_last() -> None:
    """The watchdog would end a daemon that is well; what failed is logged."""
    beats, lines = Beats(), list[str]()

    def fails_first() -> None:
        beats.count_one()
        if beats.count < 3:
            raise OSError("no space left on device")

    heartbeat = Heartbeat(fails_first, lambda error: lines.append(str(error)), watchdog_interval_s=0.01)
    heartbeat.start()
    await beats.until(4)
    heartbeat.stop()

    assert lines == ["no space left on device"] * 2


async def test_a_loop_that_is_late_after_the_end_of_a_heartbeat_is_healthy() -> None:
    """A program that ends is not told to be unhealthy, however long that takes."""
    heartbeat = Heartbeat(lambda: None, print)
    heartbeat.start()
    heartbeat.stop()
    heartbeat._due_s -= 2 * module.STALE_S

    assert (heartbeat.overdue_s(), await heartbeat.healthy()) == (0.0, None)
