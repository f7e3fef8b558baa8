"""A machine is cut in order: each part in the first place that has room for it."""

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.placement.policies.pools.plan import cut
from tests.placement.policies.shapes import n4c16, n4c32


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        pytest.param("2-15", 1, "2", id="first-node"),
        pytest.param("3-15", 2, "4-5", id="first-whole-core"),
        pytest.param("3,5,8-11", 2, "8-9", id="a-core-rather-than-two-threads"),
        pytest.param("1,3,5,7", 2, "1,3", id="threads-where-there-are-no-cores"),
        pytest.param("0-15", 6, "0-5", id="first-package"),
        pytest.param("3-15", 6, "8-13", id="the-package-with-whole-cores"),
        pytest.param("3-15", 10, "4-13", id="the-machine"),
    ],
)
def test_first_place_with_room(free: str, count: int, expected: str) -> None:
    """A node, else a package, else the machine; of each kind those first that have whole cores."""
    assert format_cpuset(cut(n4c16(), parse_cpuset(free), count)) == expected


def test_dies_come_before_packages() -> None:
    """Two NUMA nodes of one die rather than of two."""
    assert format_cpuset(cut(n4c32(), parse_cpuset("2-31"), 8)) == "8-15"


def test_too_few() -> None:
    """More than there are is refused."""
    with pytest.raises(NotEnough, match="3 CPUs wanted, 2 free"):
        cut(n4c16(), parse_cpuset("0-1"), 3)
