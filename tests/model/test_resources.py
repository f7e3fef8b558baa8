"""Every number that the kubelet sends is read back as what the pod asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.resources import (
    milli_to_quota,
    milli_to_shares,
    oom_score_adj_to_request,
    quota_to_milli,
    request_to_oom_score_adj,
    shares_to_milli,
)


def test_shares_are_exact_over_the_whole_range() -> None:
    """Each request of 2 to 256000 milli-CPU comes back exactly."""
    assert [m for m in range(2, 256_001) if shares_to_milli(milli_to_shares(m)) != m] == []


@pytest.mark.parametrize(
    ("shares", "cpu_milli"),
    [
        pytest.param(0, 0, id="none-sent"),
        pytest.param(-5, 0, id="nonsense"),
        pytest.param(2, 2, id="the-least-stands-for-0-to-2m"),
        pytest.param(1024, 1000, id="one-cpu"),
        pytest.param(262_144, 256_000, id="the-most-stands-for-256-cpus-and-more"),
        pytest.param(1 << 40, 256_000, id="beyond-the-most"),
    ],
)
def test_shares_at_the_ends(shares: int, cpu_milli: int) -> None:
    """Outside the exact range the nearest request is told."""
    assert shares_to_milli(shares) == cpu_milli


def test_quota_is_exact_at_the_usual_period() -> None:
    """Each limit of 10 to 256000 milli-CPU comes back exactly; smaller ones read as 10."""
    period_us = 100_000
    assert [m for m in range(10, 256_001) if quota_to_milli(milli_to_quota(m), period_us) != m] == []
    assert {quota_to_milli(milli_to_quota(m), period_us) for m in range(1, 10)} == {10}


@given(st.integers(1, 1_000_000), st.integers(1_000, 1_000_000))
def test_quota_is_exact_at_any_period(cpu_limit_milli: int, period_us: int) -> None:
    """At other periods too, as long as the kubelet's least quota is not reached."""
    quota_us = milli_to_quota(cpu_limit_milli, period_us)

    assert quota_us == 1000 or quota_to_milli(quota_us, period_us) == cpu_limit_milli


@pytest.mark.parametrize("quota_us", [0, -1])
def test_no_quota_is_no_limit(quota_us: int) -> None:
    """0 (none sent) and -1 (lifted) both mean that there is no limit."""
    assert quota_to_milli(quota_us, 100_000) is None
    assert milli_to_quota(0) == 0


capacities = st.integers(1 << 20, 1 << 44)


@given(capacities, st.floats(0, 1))
def test_request_lies_in_its_interval(capacity_bytes: int, part: float) -> None:
    """Whatever a Burstable container requests, the interval of its score holds the request."""
    request_bytes = min(int(capacity_bytes * part), capacity_bytes)
    interval = oom_score_adj_to_request(request_to_oom_score_adj(request_bytes, capacity_bytes), capacity_bytes)

    assert interval is not None
    assert interval.low <= request_bytes <= interval.high


@given(st.integers(3, 999), capacities)
def test_interval_is_tight(oom_score_adj: int, capacity_bytes: int) -> None:
    """The ends of an interval give its score, and what lies just outside gives another."""
    interval = oom_score_adj_to_request(oom_score_adj, capacity_bytes)

    assert interval is not None
    assert request_to_oom_score_adj(interval.low, capacity_bytes) == oom_score_adj
    assert request_to_oom_score_adj(interval.high, capacity_bytes) == oom_score_adj
    if interval.low:
        assert request_to_oom_score_adj(interval.low - 1, capacity_bytes) != oom_score_adj
    if oom_score_adj > 3:
        assert request_to_oom_score_adj(interval.high + 1, capacity_bytes) != oom_score_adj
