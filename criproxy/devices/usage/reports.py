"""The watcher's reports about the use of cards: what is valid in one, and the use within the last hour.

Nothing that containers get depends on the reports.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.devices.plugin.published import MOST_CARDS, check_counts, parse_report
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, UsageReport
from criproxy.errors import UsageError

MOST_CLASSES = 64
"""In a report."""
MOST_CONTAINERS = 2048
"""Pairs of a container and one of its cards, in a report."""
MOST_MIB, MOST_PERCENT = 1 << 40, 1e6
"""More is a mistake."""
LONGEST_PERIOD_S = 300.0
"""Between two reports."""
MISSED, PATIENCE_S = 3, 5.0
"""How many periods, and how much longer, the last report counts."""
MINUTE_S = 60
POINTS = 60
"""The length of a series."""
MOST_SERIES = 4096
"""If there are more, the series whose last points are the oldest are dropped."""


def stale_after_s(report: UsageReport) -> float:
    """Return after how many seconds without another report the use is unknown."""
    return MISSED * report.period_s + PATIENCE_S


def read_usage(arguments: Mapping[str, Any]) -> UsageReport:
    """Parse the arguments of the command ``device-usage``.

    Raises:
        UsageError: the arguments are invalid, or have more parts or larger numbers than the daemon keeps.
    """
    report = parse_report(UsageReport, arguments)
    if not 0 < report.period_s <= LONGEST_PERIOD_S:
        raise UsageError(f"period_s: must be more than 0 and at most {LONGEST_PERIOD_S:g}, not {report.period_s!r}")
    classes = report.classes
    cards = sum(max(len(each.cards), len(each.others), len(each.unread)) for each in classes)
    containers = sum(len(each.containers) for each in classes)
    check_counts(
        classes=(len(classes), MOST_CLASSES), cards=(cards, MOST_CARDS), containers=(containers, MOST_CONTAINERS)
    )
    for number, each in enumerate(classes):
        _check(f"classes[{number}]", each)
    return report


def _check(where: str, use: ClassUse) -> None:
    """Check the class at *where*; raise UsageError."""
    if not use.kind:
        raise UsageError(f"{where}.kind: must not be empty")
    for number, card in enumerate(use.cards):
        _check_amounts(f"{where}.cards[{number}]", card, total_mib=card.total_mib)
    for name, entries in (("containers", use.containers), ("others", use.others)):
        for number, each in enumerate(entries):
            entry = f"{where}.{name}[{number}]"
            _check_amounts(entry, each)
            if (name == "containers") is not bool(each.container_id):
                raise UsageError(f"{entry}.container_id: must be set in containers, and nowhere else")


def _check_amounts(where: str, use: CardUse | ContainerUse, total_mib: int = 0) -> None:
    if not use.card:
        raise UsageError(f"{where}.card: must not be empty")
    for each in (use.memory_mib, total_mib):
        if not 0 <= each <= MOST_MIB:
            raise UsageError(f"{where}: must be an amount of MiB, not {each!r}")
    if use.cores_percent is not None and not 0 <= use.cores_percent <= MOST_PERCENT:  # also excludes NaN
        raise UsageError(f"{where}.cores_percent: must be a percentage, not {use.cores_percent!r}")


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
        while points and points[-1].minute > minute:  # the clock was set back
            points.pop()
        if not points or points[-1].minute < minute:
            points.append(Point(minute, 0))
        points[-1].add(memory_mib, cores_percent)

    def _is_old(self, minute: int) -> bool:
        """Whether the series whose last point is the oldest has none within the last hour."""
        return self._series[next(iter(self._series))][-1].minute <= minute - POINTS
