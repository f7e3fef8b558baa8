"""When the program that watches GPUs is replaced, since a new process sees them otherwise."""

from itertools import pairwise
from unittest.mock import Mock

import pytest

from criproxy.deviceplugin.health.health_monitor import LONGEST_PAUSE_S, StaleView

LOST, WORKS = {"GPU-0": "GPU is lost", "GPU-1": ""}, {"GPU-0": "", "GPU-1": ""}
BOTH = {"GPU-0", "GPU-1"}


@pytest.mark.parametrize(
    ("faults", "working", "answered_s", "expected"),
    [
        pytest.param(LOST, BOTH, 1001.0, ("GPU-0",), id="contradicted"),
        pytest.param(LOST, BOTH, 999.0, (), id="an-answer-before-the-loss"),
        pytest.param(LOST, {"GPU-1"}, 1001.0, (), id="lost-in-a-new-process-as-well"),
        pytest.param(LOST, BOTH, None, (), id="no-answer"),
        pytest.param(WORKS, BOTH, 1001.0, (), id="works"),
    ],
)
def test_a_contradiction(
    faults: dict[str, str], working: set[str], answered_s: float | None, expected: tuple[str, ...]
) -> None:
    """Only an answer to a query that began after the program had called the GPU lost contradicts it."""
    view = StaleView(clock := Mock(return_value=1000.0))
    view.contradicted(LOST, {"GPU-1"}, 1.0)
    clock.return_value = 1005.0

    assert view.contradicted(faults, working, answered_s) == expected


def test_replacements_become_rarer() -> None:
    """They are at most as far apart as the longest pause; once all GPUs work, the next one is early again."""
    view, times = StaleView(clock := Mock(return_value=1000.0)), list[float]()
    while clock.return_value < 5000.0:
        if view.contradicted(LOST, BOTH, clock.return_value - 1.0):
            times.append(clock.return_value)
        clock.return_value += 5.0
    pauses = [after - before for before, after in pairwise(times)]
    view.contradicted(WORKS, BOTH, clock.return_value)
    clock.return_value += LONGEST_PAUSE_S
    found = list[str]()
    for _ in range(20):
        clock.return_value += 5.0
        found += view.contradicted(LOST, BOTH, clock.return_value - 1.0)

    assert 5 <= len(times) <= 12
    assert pauses[0] <= 65.0 < pauses[1]
    assert max(pauses) <= LONGEST_PAUSE_S + 5.0
    assert len(found) == 2
