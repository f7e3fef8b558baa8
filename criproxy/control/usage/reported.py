"""The use of cards as the daemon knows it: the watcher's last report, and the hour before it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from criproxy.usage.history import UsageHistory
from criproxy.usage.report_validation import stale_after_s
from criproxy.usage.totals import UsageReport


@dataclass(slots=True, repr=False)
class CardUsage:
    """Keeps the last report; a restart of the daemon forgets it, and the watcher soon reports again."""

    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = time
    """Seconds since the epoch."""
    report: UsageReport | None = None
    """The last one; None: there was none since the daemon's start."""
    reported_s: float = 0.0
    """When, in seconds since the epoch."""
    history: UsageHistory = field(default_factory=UsageHistory)
    _at_s: float = 0.0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, report: UsageReport) -> None:
        """Keep *report* in place of the last one."""
        self.report, self.reported_s, self._at_s = report, self.wall_clock(), self.clock()
        self.history.add(self.reported_s, report)
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self) -> None:
        """Return after the next report."""
        await self._news.wait()

    @property
    def is_current(self) -> bool:
        """Whether the last report is recent."""
        return self.report is not None and self.clock() - self._at_s <= stale_after_s(self.report)

    @property
    def current(self) -> UsageReport | None:
        """The last report while it is recent."""
        return self.report if self.is_current else None
