"""Which of the free ids of a resource to allocate: replicas spread or packed, whole cards that belong together."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from criproxy.devices.offers import Offered, card_of, unique
from criproxy.devices.splits import MAX_CARDS, Rank, Scores, Splits, one_by_one, places

Spread = Literal["distributed", "packed"]
"""The card of which the fewest replicas are in use is next, or the one of which the most are."""


class NotEnoughOffered(ValueError):
    """More is asked than is available."""


def slots(
    offered: Mapping[str, Offered], available: Iterable[str], required: Sequence[str], size: int, spread: Spread
) -> tuple[str, ...]:
    """The *required* ids and those to add to them: *size* in all.

    Cards are counted by their replicas in use, to which *required* belongs. Among equal cards the one is next that has
    given the fewest so far, then the first in the order of *offered*; of a card, its first replica.

    Args:
        offered: all ids of the resource.
        available: those that are free; others are ignored.
        required: those that have to be in the answer, whether they are free or not.
        size: how many are asked.
        spread: over which cards.

    Raises:
        NotEnoughOffered: fewer are free.
    """
    free = set(available) & offered.keys() - set(required)
    if len(free) < size - len(required):
        raise NotEnoughOffered("not enough available devices to satisfy allocation")
    left: dict[str, list[str]] = {}
    for each in reversed(list(offered)):
        if each in free:
            left.setdefault(card_of(each), []).append(each)
    order = {card: place for place, card in enumerate(unique(map(card_of, offered)))}
    in_use = Counter(map(card_of, offered))
    in_use.subtract({card: len(ids) for card, ids in left.items()})
    given = Counter(map(card_of, required))
    sign = -1 if spread == "packed" else 1
    picks = []
    for _ in range(size - len(required)):
        card = min(
            (card for card in left if left[card]), key=lambda card: (sign * in_use[card], given[card], order[card])
        )
        picks.append(left[card].pop())
        in_use[card] += 1
        given[card] += 1
    return (*required, *picks)


def near(numa_nodes: Sequence[int | None], free_cpu_milli: Mapping[int, int] | None = None) -> Rank:
    """Which of two sets of cards is preferred, if their cards belong together equally well.

    That on fewer NUMA nodes; then that whose nodes have more free CPUs; then that with the lowest index.

    Args:
        numa_nodes: of each card; None counts as one more node, without CPUs.
        free_cpu_milli: by NUMA node, as far as that is known.
    """
    count, free = len(numa_nodes), free_cpu_milli or {}
    members = [
        (
            free.get(node, 0) if node is not None else 0,
            sum(1 << place for place in range(count) if numa_nodes[place] == node),
        )
        for node in set(numa_nodes)
    ]

    def rank(cards: int) -> tuple[int, ...]:
        there = [milli for milli, those in members if cards & those]
        first_is_largest = int(f"{cards:0{count}b}"[::-1], 2)
        return len(there), -sum(there), -first_is_largest

    return rank


def together(scores: Scores, size: int, required: Collection[int], rank: Rank) -> list[int]:
    """Which cards to allocate, by their places in *scores*; none where that is not possible.

    Args:
        scores: how well each two of the available cards belong together.
        size: how many are asked.
        required: those that have to be in the answer.
        rank: what decides among equals.
    """
    if not 0 < size <= len(scores) or len(required) > size:
        return []
    wanted = sum(1 << place for place in set(required))
    if len(scores) > MAX_CARDS:
        return places(one_by_one(scores, size, wanted, rank))
    return places(Splits(scores, size).best(wanted, rank))
