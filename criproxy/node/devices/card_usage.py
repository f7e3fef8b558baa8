"""The use of cards that the watcher reports."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, time

from criproxy.devices.usage.reports import UsageHistory, stale_after_s
from criproxy.devices.usage.values import ClassUse, UsageReport

BEGINS_S = 10.0
"""What reports use may need so long until its first reading."""


@dataclass(slots=True, repr=False)
class CardUsage:
    """The watcher's last report, and the history of the last hour.

    They are lost when the daemon restarts, and the watcher soon sends another report.
    """

    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = time
    """Seconds since the epoch."""
    report: UsageReport | None = None
    """The last report; None if there was none since the daemon's start."""
    reported_s: float = 0.0
    """When it arrived, in seconds since the epoch."""
    history: UsageHistory = field(default_factory=UsageHistory)
    _unknown: dict[tuple[str, str], float] = field(default_factory=dict)
    """By class and card whose use is unknown, since when, on the clock; an empty card is for the whole class."""
    _at_s: float = field(init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._at_s = self.clock()

    def publish(self, report: UsageReport) -> None:
        """Replace the last report with *report*."""
        self.report, self.reported_s, self._at_s = report, self.wall_clock(), self.clock()
        self.history.add(self.reported_s, report)
        unknown = [(each.kind, "") for each in report.classes if each.problem]
        unknown += [(each.kind, card) for each in report.classes for card in each.unread]
        self._unknown = {key: self._unknown.get(key, self._at_s) for key in unknown}
        self._news.set()
        self._news = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next report."""
        await self._news.wait()

    def unknown(self) -> dict[str, str]:
        """By class, why its use is not known, where that has been so for longer than a source takes to begin."""
        return {each.kind: each.problem for each in self._classes() if each.problem and self._lasts(each.kind)}

    def unread(self) -> dict[tuple[str, str], str]:
        """By class and card, why the use of a single card has not been known for as long."""
        read = [each for each in self._classes() if not each.problem]
        found = {(each.kind, card): reason for each in read for card, reason in each.unread.items()}
        return {key: reason for key, reason in found.items() if self._lasts(*key)}

    def _classes(self) -> tuple[ClassUse, ...]:
        return self.current.classes if self.current else ()

    def _lasts(self, kind: str, card: str = "") -> bool:
        return self.clock() - self._unknown[kind, card] > BEGINS_S

    @property
    def silent_s(self) -> float:
        """How long there has been no report: since the start of the daemon, if there never was one."""
        return self.clock() - self._at_s

    @property
    def is_current(self) -> bool:
        """Whether the last report is recent."""
        return self.report is not None and self.silent_s <= stale_after_s(self.report)

    @property
    def current(self) -> UsageReport | None:
        """The last report, or None if it is not recent."""
        return self.report if self.is_current else None
