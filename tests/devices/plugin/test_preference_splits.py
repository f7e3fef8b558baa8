"""The split of all free cards that keeps those together that belong together."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.plugin.preference import MAX_CARDS, Splits, near, together

MAX_STEPS = 1_000_000
"""Sixteen cards take up to 0.9 million: 0.1 s on a machine of 2020."""


def matrix(count: int, *pairs: tuple[int, int, int], other: int = 10) -> list[list[int]]:
    """Score *pairs* of cards, each with its score, and all others with *other*."""
    found = [[0 if one == two else other for two in range(count)] for one in range(count)]
    for one, two, score in pairs:
        found[one][two] = found[two][one] = score
    return found


def in_groups(count: int, *sizes: int) -> list[list[int]]:
    """Score cards by the smallest of the nested groups that holds both."""
    pairs = [
        (one, other, 10 + 10 * sum(one // size == other // size for size in sizes))
        for one, other in combinations(range(count), 2)
    ]
    return matrix(count, *pairs)


def every_split(cards: list[int], size: int) -> Iterator[list[tuple[int, ...]]]:
    """All splits, one of whose sets may be smaller."""
    if not cards:
        yield []
        return
    for length in {size if len(cards) >= size else 0, len(cards) % size} - {0}:
        for others in combinations(cards[1:], length - 1):
            chosen = (cards[0], *others)
            for rest in every_split([card for card in cards if card not in chosen], size):
                yield [chosen, *rest]


def answers(scores: list[list[int]], size: int, required: set[int]) -> set[tuple[int, ...]]:
    """Every set that is the best in one of the best splits, found by trying all."""

    def score(cards: tuple[int, ...]) -> int:
        return sum(scores[one][other] for one, other in combinations(cards, 2))

    most = -1
    found: set[tuple[int, ...]] = set()
    for split in every_split(list(range(len(scores))), size):
        whole = [cards for cards in split if len(cards) == size and required <= set(cards)]
        if not whole or (worth := sum(map(score, split))) < most:
            continue
        best = {cards for cards in whole if score(cards) == max(map(score, whole))}
        most, found = worth, best | (found if worth == most else set())
    return found


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[list[int]], int, list[int], list[int]]:
    """Scores, a size, cards that are required, and the NUMA nodes of all."""
    count = draw(st.integers(1, 8))
    points = st.sampled_from(draw(st.sampled_from([[10], [10, 20], [10, 20, 50, 150, 210]])))
    scores = matrix(count, *((one, other, draw(points)) for one, other in combinations(range(count), 2)))
    size = draw(st.integers(1, count))
    required = draw(st.lists(st.integers(0, count - 1), max_size=min(size, 2), unique=True))
    return scores, size, required, draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))


@given(questions())
def test_the_answer_is_the_preferred_one_of_all(question: tuple[list[list[int]], int, list[int], list[int]]) -> None:
    """The table finds what trying all splits finds, and of that the one on the fewest nodes with the lowest index."""
    scores, size, required, nodes = question
    possible = answers(scores, size, set(required))
    preferred = min(possible, key=lambda cards: (len({nodes[card] for card in cards}), cards))

    assert together(scores, size, required, near(nodes)) == list(preferred)


@given(questions())
def test_the_number_of_best_splits_does_not_matter(question: tuple[list[list[int]], int, list[int], list[int]]) -> None:
    """Trying favourites, as among many best splits, finds the same set as looking at all best splits."""
    scores, size, _, nodes = question
    rank = near(nodes)

    assert Splits(scores, size, many_steps=-1).best(0, rank) == Splits(scores, size, many_steps=1 << 30).best(0, rank)


@pytest.mark.parametrize("size", [1, 2, 3, 6, 8, 16])
@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(matrix(MAX_CARDS), id="all-equal"),
        pytest.param(in_groups(MAX_CARDS, 8), id="two-halves"),
        pytest.param(in_groups(MAX_CARDS, 2, 4, 8), id="nested"),
        pytest.param(in_groups(MAX_CARDS, 3), id="groups-that-do-not-fit"),
        pytest.param(
            matrix(
                MAX_CARDS,
                *((one, other, one * other * 7919 % 1009) for one, other in combinations(range(MAX_CARDS), 2)),
            ),
            id="all-different",
        ),
    ],
)
def test_sixteen_cards_take_few_steps(scores: list[list[int]], size: int) -> None:
    """The number of sets that a search looks at is bounded, whatever the cards and the size, required or not."""
    rank = near([card % 2 for card in range(MAX_CARDS)])
    for required in (0, 1 << MAX_CARDS - 1):
        splits = Splits(scores, size)

        assert splits.best(required, rank).bit_count() == size
        assert splits.steps <= MAX_STEPS


def test_more_cards_than_a_table_holds() -> None:
    """On larger machines a set grows from each card, and still holds what belongs together and what is required."""
    scores = in_groups(24, 4)

    assert together(scores, 4, [], near([None] * 24)) == [0, 1, 2, 3]
    assert together(scores, 4, [9], near([None] * 24)) == [8, 9, 10, 11]
    assert together(scores, 3, [2, 9], near([None] * 24)) == [0, 2, 9]
