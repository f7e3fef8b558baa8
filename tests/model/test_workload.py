"""Containers tell who they are."""

import pytest

from criproxy.model.resources import MAX_MACHINE_MILLI, Interval
from criproxy.model.workload import Container, QosClass


@pytest.mark.parametrize(
    ("cpu_milli", "limit", "qos", "expected"),
    [
        pytest.param(0, None, QosClass.BEST_EFFORT, Interval(0, 0), id="none-sent"),
        pytest.param(2, None, QosClass.BEST_EFFORT, Interval(0, 2), id="the-least"),
        pytest.param(3, None, QosClass.BURSTABLE, Interval(3, 3), id="exact-from-here"),
        pytest.param(255_999, None, QosClass.BURSTABLE, Interval(255_999, 255_999), id="exact-up-to-here"),
        pytest.param(256_000, 300_000, QosClass.BURSTABLE, Interval(256_000, 300_000), id="the-limit-ends-it"),
        pytest.param(256_000, None, QosClass.BURSTABLE, Interval(256_000, MAX_MACHINE_MILLI), id="no-end-known"),
        pytest.param(300_000, 300_000, QosClass.GUARANTEED, Interval(300_000, 300_000), id="guaranteed"),
    ],
)
def test_cpu_request(cpu_milli: int, limit: int | None, qos: QosClass, expected: Interval) -> None:
    """A request is exact where CRI tells it exactly, else an interval that holds it."""
    container = Container(key="k", pod="s", name="c", cpu_milli=cpu_milli, cpu_limit_milli=limit, qos=qos)

    assert container.cpu_request_milli == expected
