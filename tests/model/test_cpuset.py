"""Kernel list notation is read and written exactly, and mistakes are named."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import MAX_ID, format_cpuset, parse_cpuset


@pytest.mark.parametrize(
    ("text", "cpus", "canonical"),
    [
        pytest.param("", set(), "", id="empty"),
        pytest.param(" \n", set(), "", id="white-space-only"),
        pytest.param("0", {0}, "0", id="one"),
        pytest.param("0-3,8\n", {0, 1, 2, 3, 8}, "0-3,8", id="as-in-sysfs"),
        pytest.param("8, 0 - 2", {0, 1, 2, 8}, "0-2,8", id="spaces-and-any-order"),
        pytest.param("1,2,3,2-3", {1, 2, 3}, "1-3", id="overlaps"),
        pytest.param("5-5", {5}, "5", id="range-of-one"),
        pytest.param("0,4095", {0, 4095}, "0,4095", id="sparse-and-largest"),
    ],
)
def test_reads_and_writes(text: str, cpus: set[int], canonical: str) -> None:
    """Any order and overlap is read; what is written is ascending with ranges joined."""
    assert parse_cpuset(text) == cpus
    assert format_cpuset(cpus) == canonical


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("a", "'a'", id="word"),
        pytest.param("0-", "'0-'", id="open-range"),
        pytest.param("-1", "'-1'", id="negative"),
        pytest.param("0,,2", "''", id="nothing-between-commas"),
        pytest.param("3-1", "backwards", id="backwards"),
        pytest.param("0-4096", "4096", id="beyond-the-largest-id"),
        pytest.param("9" * 5000, "is beyond the largest id, 4095", id="endless-number"),
        pytest.param("0-999999999999", "999999999999 in '0-999999999999' is beyond the largest id", id="endless-range"),
        pytest.param("x-999999999999", "neither an id nor a range", id="no-range"),
        pytest.param("0-9:1/3", "'0-9:1/3'", id="strides"),
        pytest.param("²", "'²'", id="digits-of-other-scripts"),
    ],
)
def test_names_the_wrong_part(text: str, named: str) -> None:
    """A text in another notation is refused with the part that is wrong."""
    with pytest.raises(ValueError, match=re.escape(named)):
        parse_cpuset(text)


@given(st.frozensets(st.integers(0, MAX_ID)))
def test_written_sets_read_back(cpus: frozenset[int]) -> None:
    """What is written is read back as the same set."""
    assert parse_cpuset(format_cpuset(cpus)) == cpus
