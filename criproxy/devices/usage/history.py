"""The use of cards within the last hour: one point a minute for each card, and for each container on a card."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from criproxy.devices.usage.totals import UsageReport

MINUTE_S = 60
POINTS = 60
"""The length of a series."""
MOST_SERIES = 4096
"""If there are more, the series whose last points are the oldest are dropped."""


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """The card, or the container on a card, whose use a series has."""

    device_class: str
    card: str
    container_id: str = ""
    """Empty: the card as a whole."""


@dataclass(slots=True)
class Point:
    """One minute of one series."""

    minute: int
    """Minutes since the epoch."""
    memory_mib: int
    """The maximum reported in that minute."""
    cores_sum_percent: float = 0.0
    cores_count: int = 0

    @property
    def cores_percent(self) -> float | None:
        """The mean of that minute; None if it is unknown."""
        return self.cores_sum_percent / self.cores_count if self.cores_count else None

    def add(self, memory_mib: int, cores_percent: float | None) -> None:
        """Add the amounts of one more report."""
        self.memory_mib = max(self.memory_mib, memory_mib)
        if cores_percent is not None:
            self.cores_sum_percent += cores_percent
            self.cores_count += 1


@dataclass(slots=True, repr=False)
class UsageHistory:
    """All series, ordered by the time of their last points."""

    _series: dict[SeriesKey, deque[Point]] = field(default_factory=dict)

    def add(self, at_s: float, report: UsageReport) -> None:
        """Add a report.

        Args:
            at_s: when the report arrived, in seconds since the epoch.
            report: the use of all cards.
        """
        minute = int(at_s // MINUTE_S)
        for each in report.classes:
            if each.problem:  # its amounts are outdated
                continue
            for card in each.cards:
                self._add(SeriesKey(each.kind, card.card), minute, card.memory_mib, card.cores_percent)
            for use in each.containers:
                key = SeriesKey(each.kind, use.card, use.container_id)
                self._add(key, minute, use.memory_mib, use.cores_percent)
        while self._series and (len(self._series) > MOST_SERIES or self._is_old(minute)):
            del self._series[next(iter(self._series))]

    def series(self, at_s: float) -> Iterator[tuple[SeriesKey, list[Point]]]:
        """Yield each series of the hour before *at_s* (in seconds since the epoch), its oldest point first."""
        first = int(at_s // MINUTE_S) - POINTS + 1
        for key in sorted(self._series):
            if points := [point for point in self._series[key] if point.minute >= first]:
                yield key, points

    def _add(self, key: SeriesKey, minute: int, memory_mib: int, cores_percent: float | None) -> None:
        points = self._series.pop(key, None) or deque[Point](maxlen=POINTS)
        self._series[key] = points
        if not points or points[-1].minute < minute:  # a clock that was set back adds to the newest one
            points.append(Point(minute, 0))
        points[-1].add(memory_mib, cores_percent)

    def _is_old(self, minute: int) -> bool:
        """Whether the series whose last point is the oldest has none within the last hour."""
        return self._series[next(iter(self._series))][-1].minute <= minute - POINTS
