"""A choice is a sort by named criteria, and can be explained."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from criproxy.placement.alloc.rank import Candidate, Criterion, decider, ranked


def candidate(index: int, *values: int) -> Candidate:
    """A candidate with a criterion for each value."""
    return Candidate(
        index, f"pool {index}", tuple(Criterion(f"criterion {i}", value) for i, value in enumerate(values))
    )


def test_the_first_difference_decides() -> None:
    """Later criteria count only among those that are alike in the earlier ones."""
    a, b, c = candidate(0, 1, 0), candidate(1, 0, 7), candidate(2, 0, 3)

    assert ranked([a, b, c]) == [c, b, a]
    assert decider(c, b) == Criterion("criterion 1", 3)
    assert decider(b, a) == Criterion("criterion 0", 0)


def test_ties_end_in_numbers() -> None:
    """Candidates that are alike come in the order of their numbers, and no criterion made it so."""
    a, b = candidate(3, 5), candidate(4, 5)

    assert ranked([b, a]) == [a, b]
    assert decider(a, b) is None


values = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@given(st.lists(values, max_size=5))
def test_it_is_a_total_order(rows: list[tuple[int, int, int]]) -> None:
    """Whatever the order of the input, the result is the same."""
    candidates = [candidate(index, *row) for index, row in enumerate(rows)]
    expected = ranked(candidates)

    assert all(ranked(order) == expected for order in permutations(candidates))
