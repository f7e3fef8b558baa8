"""Covering arrays: every pair, in few rows, the same ones each time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.matrix.covering import covering, pairs


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_every_pair_is_in_some_row(sizes: list[int]) -> None:
    """Whatever the sizes of the slots, rows have a value of each, and all pairs are there."""
    slots = [[f"{slot}.{value}" for value in range(size)] for slot, size in enumerate(sizes)]
    rows = covering(slots)
    assert all(value in values for row in rows for value, values in zip(row, slots, strict=True))
    assert pairs(slots) <= set().union(*(pairs([[value] for value in row]) for row in rows))
    assert covering(slots) == rows


@given(st.integers(3, 8))
def test_slots_with_the_same_values_never_repeat_one(size: int) -> None:
    """Three of some words: each row has three different ones, and every two words meet."""
    words = [f"w{number}" for number in range(size)]
    rows = covering([words] * 3)
    assert all(len(set(row)) == 3 for row in rows)
    assert {frozenset((a, b)) for a in words for b in words if a != b} <= set().union(
        *(pairs([[value] for value in row]) for row in rows)
    )


def test_it_needs_few_rows() -> None:
    """Four slots of four values, 96 pairs, six in each row: sixteen rows at the least, and not many more."""
    assert len(covering([[f"{slot}.{value}" for value in range(4)] for slot in range(4)])) <= 24
