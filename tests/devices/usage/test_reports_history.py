"""The last hour of use: a point for each minute, and no more series than are kept."""

from dataclasses import replace

from criproxy.devices.usage.reports import MOST_SERIES, POINTS, SeriesKey, UsageHistory
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, UsageReport

BEGIN_S = 1_700_000_040.0
"""The begin of a minute."""
KEY = SeriesKey("nvidia", "GPU-a", "c1")


def used(
    memory_mib: int, cores_percent: float | None = None, container_id: str = "c1", problem: str = ""
) -> UsageReport:
    """A report about one container."""
    use = ContainerUse(
        container_id=container_id, kind="nvidia", card="GPU-a", memory_mib=memory_mib, cores_percent=cores_percent
    )
    return UsageReport(at_s=0, period_s=1, classes=(ClassUse(kind="nvidia", containers=(use,), problem=problem),))


def test_a_point_is_a_minute() -> None:
    """It has the most memory and the mean of the computing units of that minute."""
    history = UsageHistory()
    for second, memory_mib, cores in ((0, 100, 10.0), (20, 300, 30.0), (59, 200, None), (60, 50, None)):
        history.add(BEGIN_S + second, used(memory_mib, cores))

    ((key, (first, second_point)),) = history.series(BEGIN_S + 60)
    assert key == KEY
    assert (first.memory_mib, first.cores_percent) == (300, 20.0)
    assert (second_point.memory_mib, second_point.cores_percent) == (50, None)


def test_an_hour_is_kept() -> None:
    """There are 60 points of each series; those older than an hour are not shown, and then forgotten."""
    history = UsageHistory()
    for minute in range(100):
        history.add(BEGIN_S + 60 * minute, used(minute))
    newest_s = BEGIN_S + 60 * 99

    ((_, points),) = history.series(newest_s)
    assert [point.memory_mib for point in points] == list(range(100 - POINTS, 100))
    ((_, points),) = history.series(newest_s + 60 * 59)
    assert [point.memory_mib for point in points] == [99]

    history.add(newest_s + 3600, used(1, container_id="c2"))
    assert [key.container_id for key, _ in history.series(newest_s)] == ["c2"]


def test_a_clock_that_was_set_back() -> None:
    """What comes before the newest point is added to it: points stay in order."""
    history = UsageHistory()
    history.add(BEGIN_S, used(100))
    history.add(BEGIN_S - 600, used(300))

    ((_, (point,)),) = history.series(BEGIN_S)
    assert point.memory_mib == 300


def test_series_are_bounded() -> None:
    """Of more than are kept, those are forgotten that had their last point first; cards have their own."""
    history = UsageHistory()
    cards = ClassUse(kind="nvidia", cards=(CardUse(card="GPU-a", memory_mib=1, total_mib=2),))
    for number in range(MOST_SERIES + 10):
        report = used(1, container_id=f"{number:06}")
        history.add(BEGIN_S, replace(report, classes=(cards, *report.classes)))

    keys = [key.container_id for key, _ in history.series(BEGIN_S)]
    assert len(keys) == MOST_SERIES
    assert keys[:2] == ["", "000011"]


def test_what_is_not_known_has_no_point() -> None:
    """A class with a problem reports what was known before: that is no use of this minute."""
    history = UsageHistory()
    history.add(BEGIN_S, used(100, problem="NVML: unknown error"))

    assert list(history.series(BEGIN_S)) == []
