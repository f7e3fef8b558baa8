"""The measurement of decisions measures what it says."""

import pytest

from criproxy.policy import BUILTIN
from tests.bench.steps import Row, rows


@pytest.mark.parametrize("policy", BUILTIN)
def test_rows(policy: str) -> None:
    """There is a row for every kind of event in the life of a container, with as many events as there were rounds."""
    found = {row.event: row.count for row in rows(policy, containers=5, rounds=3)}

    assert found == dict.fromkeys(("ContainerGone", "ContainerCreating", "ContainerCreated", "ContainerStarted"), 3)


@pytest.mark.parametrize(("median_ms", "p99_ms", "missed"), [(2.0, 5.0, False), (2.1, 3.0, True), (1.0, 5.1, True)])
def test_bars(median_ms: float, p99_ms: float, missed: bool) -> None:
    """Either bar can be missed."""
    assert Row("static", 500, "ContainerGone", 1, median_ms, p99_ms).missed is missed
