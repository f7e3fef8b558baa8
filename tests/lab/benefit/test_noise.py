"""A noisy machine is told from a quiet one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.benefit.noise import (
    LIMITS,
    Calibration,
    complaints,
    distance,
    is_as_fast,
    some,
    spread,
    spread_of_cpus,
    usual,
    worse,
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], 0.0, id="none"),
        pytest.param([3.0], 0.0, id="one"),
        pytest.param([2.0, 2.0, 2.0], 0.0, id="equal"),
        pytest.param([1.0, 2.0, 3.0, 4.0, 5.0], 2 / 3, id="quartiles"),
        pytest.param([2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 90.0], 0.0, id="one-outlier-does-not-count"),
        pytest.param([0.0, 0.0, 0.0], 0.0, id="zero"),
    ],
)
def test_a_spread_is_that_of_the_quartiles(values: list[float], expected: float) -> None:
    """Divided by the median; a single round that went wrong does not decide."""
    assert spread(values) == pytest.approx(expected)


QUIET = [1.0, 1.01, 1.02, 0.99, 1.0]
NOISY = [1.0, 2.0, 3.0, 1.0, 4.0]


@pytest.mark.parametrize(
    ("calibrations_s", "direct", "neighbours", "stolen", "words"),
    [
        pytest.param(QUIET, {"a/b": QUIET}, {}, [0.0, 0.01], [], id="quiet"),
        pytest.param(NOISY, {"a/b": QUIET}, {}, [0.0], ["the same work on the empty machine"], id="calibration"),
        pytest.param(QUIET, {"a/b": NOISY, "c/d": QUIET}, {}, [0.0], ["a/b: figures without a manager"], id="direct"),
        pytest.param(QUIET, {"a/b": QUIET}, {"c/d": NOISY}, [0.0], ["c/d: what the neighbours did"], id="neighbours"),
        pytest.param(QUIET, {"a/b": QUIET}, {}, [0.1, 0.1, 0.0], ["the hypervisor took 10.0%"], id="stolen"),
        pytest.param(NOISY, {"a/b": NOISY}, {}, [0.5], ["the same", "hypervisor", "a/b"], id="all"),
    ],
)
def test_complaints_name_what_was_noisy(
    calibrations_s: list[float],
    direct: dict[str, list[float]],
    neighbours: dict[str, list[float]],
    stolen: list[float],
    words: list[str],
) -> None:
    """One sentence for each reason, with the limit."""
    found = complaints([(1.0, each) for each in calibrations_s], direct, neighbours, stolen)
    assert len(found) == len(words)
    for word, (sentence) in zip(sorted(words), sorted(found), strict=True):
        assert word in " ".join(found)
        assert "limit" in sentence


def test_limits_are_shares() -> None:
    """Each is above nothing and below everything."""
    assert all(0 < limit < 1 for limit in LIMITS.values())


FAST, SLOW = [0.058, 0.057, 0.059, 0.06], [0.1, 0.104, 0.098, 0.102, 0.101]


@pytest.mark.parametrize(
    ("calibrations_s", "expected"),
    [
        pytest.param([0.05], 0.05, id="one"),
        pytest.param(FAST, 0.0585, id="quiet"),
        pytest.param([*FAST[:2], *SLOW], 0.101, id="slow-more-often"),
        pytest.param([*FAST, *SLOW[:2]], 0.0585, id="fast-more-often"),
        pytest.param([*SLOW[:4], *FAST], 0.0585, id="as-often"),
        pytest.param([*FAST, 0.08, 0.07, *SLOW], 0.101, id="changed-in-between"),
        pytest.param([0.3, *FAST], 0.0585, id="outlier"),
    ],
)
def test_the_usual_speed_is_one_that_the_machine_has(calibrations_s: list[float], expected: float) -> None:
    """It is the one of most calibrations, and nothing between two speeds."""
    assert usual([(each,) for each in calibrations_s]) == pytest.approx((expected,))


def test_each_cpu_has_a_speed_of_its_own() -> None:
    """The CPUs are slow at different times: what counts is what they are together."""
    slow_first, slow_second = [(0.1, 0.058)] * 3, [(0.058, 0.1)] * 4
    assert usual([*slow_first, *slow_second]) == (0.058, 0.1)
    assert not is_as_fast((0.1, 0.058), (0.058, 0.1))
    assert not is_as_fast((0.1, 0.1), (0.058, 0.1))
    assert distance((1.1, 1.5), (1.0, 2.0)) == 0.25


@given(st.lists(st.tuples(st.sampled_from([*FAST, *SLOW]), st.sampled_from([*FAST, *SLOW])), min_size=1))
def test_the_machine_had_its_usual_speed(calibrations_s: list[Calibration]) -> None:
    """As often as any other speed, at least."""
    found = usual(calibrations_s)
    often = sum(is_as_fast(each, found) for each in calibrations_s)
    assert often >= max(sum(is_as_fast(each, other) for each in calibrations_s) for other in calibrations_s)


@pytest.mark.parametrize(
    ("calibration_s", "expected"),
    [(1.0, True), (1.09, True), (0.91, True), (1.11, False), (0.89, False)],
)
def test_a_machine_is_as_fast_within_the_limit(calibration_s: float, *, expected: bool) -> None:
    """A faster machine is another one, too."""
    assert is_as_fast((calibration_s, 2.0), (1.0, 2.0)) is expected


@pytest.mark.parametrize(
    ("before_s", "after_s", "expected"), [(1.0, 1.3, 1.3), (0.6, 1.1, 0.6), (1.0, 1.0, 1.0), (1.2, 0.9, 1.2)]
)
def test_the_worse_calibration_is_farther_from_the_usual_one(before_s: float, after_s: float, expected: float) -> None:
    """A sample is judged by that one."""
    assert worse((before_s,), (after_s,), (1.0,)) == (expected,)


@pytest.mark.parametrize(
    ("calibrations_s", "expected"),
    [
        pytest.param([], 0.0, id="none"),
        pytest.param([(1.0, 5.0), (2.0, 5.0), (3.0, 5.0), (4.0, 5.0), (5.0, 5.0)], 2 / 3, id="first"),
        pytest.param([(5.0, each) for each in (2.0, 2.0, 3.0, 4.0, 4.0)], 2 / 3, id="second"),
    ],
)
def test_the_cpu_that_differs_most_counts(calibrations_s: list[Calibration], expected: float) -> None:
    """One CPU whose speed changes is enough for a complaint."""
    assert spread_of_cpus(calibrations_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        pytest.param(range(1), [0], id="one"),
        pytest.param({3, 1}, [1, 3], id="two"),
        pytest.param(range(8), list(range(8)), id="eight"),
        pytest.param(range(9), [0, 2, 4, 6, 8], id="nine"),
        pytest.param(range(64), list(range(0, 64, 8)), id="many"),
    ],
)
def test_a_calibration_uses_eight_cpus_at_most(cpus: range | set[int], expected: list[int]) -> None:
    """They are spread over the machine."""
    assert some(cpus) == expected
