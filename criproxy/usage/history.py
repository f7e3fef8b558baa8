"""The use of cards within the last hour: a point for each minute, of each card and of each container on a card."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from criproxy.usage.totals import UsageReport

MINUTE_S = 60
POINTS = 60
"""Of each series."""
MOST_SERIES = 4096
"""Of more, those are forgotten that had their last point first."""


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """Whose use it is."""

    device_class: str
    card: str
    container_id: str = ""
    """Empty: of all together."""


@dataclass(slots=True)
class Point:
    """One minute of one series."""

    minute: int
    """Since the epoch."""
    memory_mib: int
    """The most that was reported in that minute."""
    cores_sum_percent: float = 0.0
    cores_count: int = 0

    @property
    def cores_percent(self) -> float | None:
        """The mean of that minute; None where it is not known."""
        return self.cores_sum_percent / self.cores_count if self.cores_count else None

    def add(self, memory_mib: int, cores_percent: float | None) -> None:
        """Take one more report into account."""
        self.memory_mib = max(self.memory_mib, memory_mib)
        if cores_percent is not None:
            self.cores_sum_percent += cores_percent
            self.cores_count += 1


@dataclass(slots=True, repr=False)
class UsageHistory:
    """All series, in the order in which they had their last points."""

    _series: dict[SeriesKey, deque[Point]] = field(default_factory=dict)

    def add(self, at_s: float, report: UsageReport) -> None:
        """Take a report into account.

        Args:
            at_s: when it came, in seconds since the epoch.
            report: what is used.
        """
        minute = int(at_s // MINUTE_S)
        for each in report.classes:
            if each.problem:  # what it has is from before
                continue
            for card in each.cards:
                self._add(SeriesKey(each.kind, card.card), minute, card.memory_mib, card.cores_percent)
            for use in each.containers:
                key = SeriesKey(each.kind, use.card, use.container_id)
                self._add(key, minute, use.memory_mib, use.cores_percent)
        while self._series and (len(self._series) > MOST_SERIES or self._is_old(minute)):
            del self._series[next(iter(self._series))]

    def series(self, at_s: float) -> Iterator[tuple[SeriesKey, list[Point]]]:
        """What is known of the hour before *at_s*, in seconds since the epoch; the oldest point of each comes first."""
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
        """Whether the series that had its last point first has none of the last hour."""
        return self._series[next(iter(self._series))][-1].minute <= minute - POINTS
