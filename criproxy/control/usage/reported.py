"""The use of cards that the daemon knows: the watcher's last report, and the history of the last hour."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from criproxy.usage.history import UsageHistory
from criproxy.usage.report_validation import stale_after_s
from criproxy.usage.totals import UsageReport


@dataclass(slots=True, repr=False)
class CardUsage:
    """The last report. It is lost when the daemon restarts, and the watcher soon sends another one."""

    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = time
    """Seconds since the epoch."""
    report: UsageReport | None = None
    """The last report; None if there was none since the daemon's start."""
    reported_s: float = 0.0
    """When it arrived, in seconds since the epoch."""
    history: UsageHistory = field(default_factory=UsageHistory)
    _at_s: float = 0.0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, report: UsageReport) -> None:
        """Replace the last report with *report*."""
        self.report, self.reported_s, self._at_s = report, self.wall_clock(), self.clock()
        self.history.add(self.reported_s, report)
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next report."""
        await self._news.wait()

    @property
    def is_current(self) -> bool:
        """Whether the last report is recent."""
        return self.report is not None and self.clock() - self._at_s <= stale_after_s(self.report)

    @property
    def current(self) -> UsageReport | None:
        """The last report, or None if it is not recent."""
        return self.report if self.is_current else None
