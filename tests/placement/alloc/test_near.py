"""CPUs next to things."""

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.placement.alloc.near import take_beside, take_near
from tests.placement.policies.shapes import n4c16

MACHINE = n4c16()


@pytest.mark.parametrize(
    ("free", "count", "hints", "expected"),
    [
        pytest.param("0-15", 4, ["0", "3"], "0-1,12-13", id="the-same-for-each"),
        pytest.param("0-15", 3, ["1", "2"], "4-5,8", id="one-each-and-the-rest-anywhere"),
        pytest.param("0-15", 2, ["1", "1"], "4-5", id="twice-the-same-place"),
        pytest.param("0-11", 2, ["1", "3"], "0-1", id="nothing-left-there"),
        pytest.param("0-15", 1, ["1", "2"], "0", id="more-things-than-cpus"),
        pytest.param("0-15", 2, [], "0-1", id="no-things"),
        pytest.param("0-15", 2, ["7", "1"], "0-1", id="an-unknown-node"),
    ],
)
def test_take_near(free: str, count: int, hints: list[str], expected: str) -> None:
    """Each thing gets its share of CPUs, if all can; otherwise the hints do not count."""
    taken = take_near(MACHINE, parse_cpuset(free), count, [parse_cpuset(hint) for hint in hints])
    assert format_cpuset(taken) == expected


def test_too_few() -> None:
    """There must be as many as are wanted."""
    with pytest.raises(NotEnough):
        take_near(MACHINE, parse_cpuset("0-1"), 3, [parse_cpuset("0")])


@pytest.mark.parametrize(
    ("free", "count", "hints", "expected"),
    [
        pytest.param("0-15", 4, ["0", "2"], "0-1,8-9", id="evenly"),
        pytest.param("0-15", 3, ["0", "2"], "0-1,8", id="the-first-has-one-more"),
        pytest.param("0-15", 4, ["0", "2", "2", "2"], "0,8-10", id="by-things"),
        pytest.param("0-15", 2, ["0", "0", "2", "2"], "0,8", id="fewer-than-things"),
        pytest.param("3-15", 4, ["0", "2"], "3,8-10", id="one-side-is-full"),
        pytest.param("4-15", 2, ["0"], "4-5", id="none-beside"),
        pytest.param("0-15", 6, ["1"], "0-1,4-7", id="more-than-there-is"),
        pytest.param("0-15", 2, ["7"], "0-1", id="no-such-node"),
    ],
)
def test_take_beside(free: str, count: int, hints: list[str], expected: str) -> None:
    """As many CPUs beside each thing; what one side lacks comes from the other, and then from the nearest."""
    taken = take_beside(MACHINE, parse_cpuset(free), count, [parse_cpuset(hint) for hint in hints])

    assert format_cpuset(taken) == expected
