"""Containers tell who they are."""

from dataclasses import replace

import pytest

from criproxy.model.resources import MAX_MACHINE_MILLI, CfsQuota, Interval
from criproxy.model.workload import Container, QosClass, Sizes


@pytest.mark.parametrize(
    ("container", "title"),
    [
        pytest.param(Container(key="k", pod="s", name="c", pod_name="web", namespace="shop"), "shop/web/c", id="full"),
        pytest.param(Container(key="k", pod="s", name="c"), "c", id="no-kubelet-labels"),
        pytest.param(Container(key="k", pod="s", name=""), "k", id="nameless"),
    ],
)
def test_title(container: Container, title: str) -> None:
    """People see namespace, pod and container, as far as somebody sent them."""
    assert container.title == title


def test_identity_is_that_of_a_retry() -> None:
    """Two creates of the same attempt have one identity, another attempt has another."""
    first = Container(key="r1", pod="s", name="c", attempt=1)

    assert first.identity == Container(key="r2", pod="s", name="c", attempt=1).identity
    assert first.identity != Container(key="r2", pod="s", name="c", attempt=2).identity


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


def test_resized_keeps_who_it_is() -> None:
    """A resize changes all sizes and nothing else."""
    before = Container(key="k", pod="s", name="c", attempt=3, reservation="r", cpu_milli=5)
    sizes = Sizes(cpu_milli=1, cpu_limit_milli=10, memory_limit_bytes=3, memory_request_bytes=Interval(0, 3))
    sizes = replace(sizes, cpu_quota=CfsQuota(1000))

    after = before.resized(sizes)

    assert (after.sizes, after.resized(before.sizes)) == (sizes, before)
    assert (after.identity, after.reservation) == (before.identity, "r")
