"""What the watcher reports is checked and bounded; the last hour of use has a point for each minute."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from criproxy.devices.usage import reports
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, UsageReport
from criproxy.errors import UsageError

CARD = {"card": "GPU-a", "memory_mib": 9000, "total_mib": 16384}
USE = {"container_id": "c1", "kind": "nvidia", "card": "GPU-a", "memory_mib": 9000}
OTHER = {**USE, "container_id": ""}
Used = partial(ContainerUse, kind="nvidia", card="GPU-a")


def of(**parts: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """A report about one class."""
    return {"at_s": 5.0, "period_s": 2, "classes": [{"kind": "nvidia", **parts}]}


def test_a_report_is_read() -> None:
    """Its cards and containers have the values of its keys; what it does not say has its default."""
    report = reports.read_usage(of(cards=[CARD], containers=[USE], others=[OTHER], unread={"GPU-b": "lost"}))

    use, other = (Used(container_id=name, memory_mib=9000) for name in ("c1", ""))
    card = CardUse(card="GPU-a", memory_mib=9000, total_mib=16384)
    nvidia = ClassUse(kind="nvidia", cards=(card,), containers=(use,), others=(other,), unread={"GPU-b": "lost"})
    assert report == UsageReport(at_s=5.0, period_s=2, classes=(nvidia,))
    assert reports.stale_after_s(report) == 11.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"at_s": 5.0, "period_s": 0}, "period_s: must be more than 0", id="no-period"),
        pytest.param({"at_s": 5.0, "period_s": 1e9}, "period_s: must be more than 0 and at most 300", id="years"),
        pytest.param({"at_s": 5.0, "period_s": math.nan}, "period_s: must be", id="nan-period"),
        pytest.param({}, "UsageReport.at_s is missing", id="nothing"),
        pytest.param(of(cards="GPU-a"), "classes[0].cards must be a list", id="no-list"),
        pytest.param(of(cards=[{"card": "GPU-a"}]), "cards[0].memory_mib is missing", id="no-memory"),
        pytest.param(of(kind=""), "classes[0].kind: must not be empty", id="no-class"),
        pytest.param(of(cards=[{**CARD, "card": ""}]), "classes[0].cards[0].card: must not be empty", id="no-card"),
        pytest.param(of(cards=[{**CARD, "memory_mib": -1}]), "cards[0]: must be an amount of MiB", id="below-zero"),
        pytest.param(of(cards=[{**CARD, "total_mib": 1 << 80}]), "cards[0]: must be an amount of MiB", id="too-much"),
        pytest.param(of(cards=[{**CARD, "memory_mib": True}]), "memory_mib must be of the kind int", id="a-bool"),
        pytest.param(of(cards=[{**CARD, "cores_percent": math.nan}]), "must be a percentage", id="nan"),
        pytest.param(of(containers=[{**USE, "cores_percent": math.inf}]), "containers[0].cores_percent", id="inf"),
        pytest.param(of(containers=[OTHER]), "containers[0].container_id: must be set in containers", id="without-id"),
        pytest.param(of(others=[USE]), "others[0].container_id: must be set in containers", id="other-with-id"),
        pytest.param(of(containers=[USE] * (reports.MOST_CONTAINERS + 1)), "2049 are more than 2048", id="too-many"),
        pytest.param(of(unread={str(n): "" for n in range(1025)}), "cards: 1025 are more than 1024", id="unread"),
    ],
)
def test_a_bad_report(arguments: dict[str, Any], said: str) -> None:
    """It is refused with a sentence about the part that is wrong."""
    with pytest.raises(UsageError) as caught:
        reports.read_usage(arguments)

    assert said in str(caught.value)


def test_texts_are_bounded() -> None:
    """Ids and sentences are cut, and have nothing that a terminal would act on."""
    report = reports.read_usage(of(cards=[{**CARD, "card": "\x1b[31m" + "x" * 1000}]))

    (card,) = report.classes[0].cards
    assert len(card.card) < 550
    assert card.card.isprintable()


BEGIN_S = 1_700_000_040.0
"""The begin of a minute."""
KEY = reports.SeriesKey("nvidia", "GPU-a", "c1")


def used(
    memory_mib: int, cores_percent: float | None = None, container_id: str = "c1", problem: str = ""
) -> UsageReport:
    """A report about one container."""
    use = Used(container_id=container_id, memory_mib=memory_mib, cores_percent=cores_percent)
    return UsageReport(at_s=0, period_s=1, classes=(ClassUse(kind="nvidia", containers=(use,), problem=problem),))


def test_a_point_is_a_minute() -> None:
    """It has the most memory and the mean of the computing units of that minute."""
    history = reports.UsageHistory()
    for second, memory_mib, cores in ((0, 100, 10.0), (20, 300, 30.0), (59, 200, None), (60, 50, None)):
        history.add(BEGIN_S + second, used(memory_mib, cores))

    ((key, (first, second_point)),) = history.series(BEGIN_S + 60)
    assert key == KEY
    assert (first.memory_mib, first.cores_percent) == (300, 20.0)
    assert (second_point.memory_mib, second_point.cores_percent) == (50, None)


def test_an_hour_is_kept() -> None:
    """There are 60 points of each series; those older than an hour are not shown, and then forgotten."""
    history = reports.UsageHistory()
    for minute in range(100):
        history.add(BEGIN_S + 60 * minute, used(minute))
    newest_s = BEGIN_S + 60 * 99

    ((_, points),) = history.series(newest_s)
    assert [point.memory_mib for point in points] == list(range(100 - reports.POINTS, 100))
    ((_, points),) = history.series(newest_s + 60 * 59)
    assert [point.memory_mib for point in points] == [99]

    history.add(newest_s + 3600, used(1, container_id="c2"))
    assert [key.container_id for key, _ in history.series(newest_s)] == ["c2"]


def test_a_clock_that_was_set_back() -> None:
    """Points of minutes that are yet to come are dropped: use has the time of its report, and points stay in order."""
    history = reports.UsageHistory()
    for minutes in (0, 9, 10):
        history.add(BEGIN_S + 60 * minutes, used(500))
    history.add(BEGIN_S + 60, used(100))
    history.add(BEGIN_S + 120, used(200))

    ((_, points),) = history.series(BEGIN_S + 120)
    first = int(BEGIN_S // 60)
    assert [(point.minute - first, point.memory_mib) for point in points] == [(0, 500), (1, 100), (2, 200)]


def test_series_are_bounded() -> None:
    """Of more than are kept, those are forgotten that had their last point first; cards have their own."""
    history = reports.UsageHistory()
    cards = ClassUse(kind="nvidia", cards=(CardUse(card="GPU-a", memory_mib=1, total_mib=2),))
    for number in range(reports.MOST_SERIES + 10):
        report = used(1, container_id=f"{number:06}")
        history.add(BEGIN_S, replace(report, classes=(cards, *report.classes)))

    keys = [key.container_id for key, _ in history.series(BEGIN_S)]
    assert len(keys) == reports.MOST_SERIES
    assert keys[:2] == ["", "000011"]


def test_what_is_not_known_has_no_point() -> None:
    """A class with a problem reports what was known before: that is no use of this minute."""
    history = reports.UsageHistory()
    history.add(BEGIN_S, used(100, problem="NVML: unknown error"))

    assert list(history.series(BEGIN_S)) == []
