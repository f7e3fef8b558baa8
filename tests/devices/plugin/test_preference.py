"""Which free ids of a resource are preferred."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.classes.offers import Offered, replica_id
from criproxy.devices.plugin.preference import MAX_CARDS, NotEnoughOffered, Splits, Spread, near, slots, together


def shared(*replicas: int) -> dict[str, Offered]:
    """Offer cards ``0``, ``1``, … with so many replicas each."""
    return {
        replica_id(str(card), number): Offered(id=replica_id(str(card), number), index=str(card))
        for card, count in enumerate(replicas)
        for number in range(count)
    }


@pytest.mark.parametrize(
    ("spread", "free", "size", "expected"),
    [
        pytest.param("distributed", "0::1 1::0 1::1", 1, "1::0", id="the-card-with-the-fewest-in-use"),
        pytest.param("packed", "0::1 1::0 1::1", 1, "0::1", id="the-card-with-the-most-in-use"),
        pytest.param("distributed", "0::0 0::1 1::0 1::1", 2, "0::0 1::0", id="one-of-each"),
        pytest.param("packed", "0::0 0::1 1::0 1::1", 2, "0::0 0::1", id="both-of-one"),
        pytest.param("distributed", "1::1 1::0 0::1 0::0", 1, "0::0", id="the-order-of-the-question-does-not-matter"),
        pytest.param("packed", "0::0 0::1 1::1", 2, "1::1 0::0", id="a-full-card-is-followed-by-the-next"),
        pytest.param("packed", "x::0 1::1", 1, "1::1", id="unknown-ids"),
        pytest.param("packed", "1::1", 0, "", id="none"),
    ],
)
def test_replicas(spread: Spread, free: str, size: int, expected: str) -> None:
    """Cards are filled one after the other or side by side, by what is in use of each."""
    assert slots(shared(2, 2), free.split(), [], size, spread) == tuple(expected.split())


def test_too_few_are_free() -> None:
    """A question that cannot be answered is an error."""
    with pytest.raises(NotEnoughOffered, match=r"^not enough available devices to satisfy allocation$"):
        slots(shared(2), ["0::0"], [], 2, "packed")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_an_answer_is_what_was_asked(replicas: list[int], data: st.DataObject) -> None:
    """An answer has the asked size, no id twice, and only ids that are free; it is the same in whatever order."""
    offered = shared(*replicas)
    free = data.draw(st.permutations(sorted(data.draw(st.sets(st.sampled_from(sorted(offered)))))))
    size = data.draw(st.integers(0, len(free)))
    for spread in ("distributed", "packed"):
        found = slots(offered, free, [], size, spread)

        assert len(set(found)) == len(found) == size
        assert set(found) <= set(free)
        assert found == slots(offered, sorted(free), [], size, spread)


FLAT = [[0 if one == other else 10 for other in range(4)] for one in range(4)]


@pytest.mark.parametrize(
    ("nodes", "free", "expected"),
    [
        pytest.param([0, 1, 0, 1], {}, [0, 2], id="one-numa-node"),
        pytest.param([0, 1, 0, 1], {0: 1000, 1: 2000}, [1, 3], id="free-cpus"),
        pytest.param([0, 1, 0, 1], {0: 2000, 1: 2000}, [0, 2], id="the-lowest-index"),
        pytest.param([0, 0, 0, 1], {1: 9000}, [0, 1], id="fewer-nodes-before-free-cpus"),
        pytest.param([None, 0, None, 1], {}, [0, 2], id="no-node-known"),
        pytest.param([0, 1, 2, 3], {2: 1000, 3: 1000}, [2, 3], id="free-cpus-of-all-nodes"),
    ],
)
def test_equally_good_cards(nodes: list[int | None], free: dict[int, int], expected: list[int]) -> None:
    """Among sets that belong together equally well, NUMA nodes decide, then free CPUs, then the index."""
    assert together(FLAT, 2, [], near(nodes, free)) == expected


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


ALL_DIFFERENT = [(one, other, one * other * 7919 % 1009) for one, other in combinations(range(MAX_CARDS), 2)]


@pytest.mark.parametrize("size", [1, 6, 8])
@pytest.mark.parametrize(
    "scores",
    [
        pytest.param(matrix(MAX_CARDS), id="all-equal"),
        pytest.param(in_groups(MAX_CARDS, 8), id="two-halves"),
        pytest.param(in_groups(MAX_CARDS, 2, 4, 8), id="nested"),
        pytest.param(in_groups(MAX_CARDS, 3), id="groups-that-do-not-fit"),
        pytest.param(matrix(MAX_CARDS, *ALL_DIFFERENT), id="all-different"),
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
