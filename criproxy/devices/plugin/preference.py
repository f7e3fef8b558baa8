"""Chooses which free ids of a resource to allocate: replicas spread or packed, whole cards close to each other."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

from criproxy.devices.classes.offers import Offered, card_of, unique
from criproxy.devices.plugin.splits import MAX_CARDS, Rank, Scores, Splits, one_by_one, places

Spread = Literal["distributed", "packed"]
"""The next replica is of the card with the fewest replicas in use, or of the one with the most."""


class NotEnoughOffered(ValueError):
    """More ids are requested than are available."""


def slots(
    offered: Mapping[str, Offered], available: Iterable[str], required: Sequence[str], size: int, spread: Spread
) -> tuple[str, ...]:
    """Choose replicas: return the *required* ids and others, *size* in all.

    Cards are compared by their replicas in use, including *required*. Among equal cards, the one with the fewest chosen
    replicas comes first, then the first one in the order of *offered*; of a card, its first replica.

    Args:
        offered: all ids of the resource.
        available: the free ids; others are ignored.
        required: the ids that must be in the result, whether they are free or not.
        size: the number of requested ids.
        spread: how to spread them over cards.

    Raises:
        NotEnoughOffered: not enough ids are free.
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
    """Return the order of preference among sets whose cards are equally close to each other.

    The set on fewer NUMA nodes comes first; then the one whose nodes have more free CPUs; then the one with the lowest
    index.

    Args:
        numa_nodes: the NUMA node of each card; None counts as another node, without CPUs.
        free_cpu_milli: the free CPUs by NUMA node, as far as they are known.
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
    """Choose whole cards: return their indexes in *scores*; none if that is impossible.

    Args:
        scores: how close each two of the available cards are.
        size: the number of requested cards.
        required: the cards that must be in the result.
        rank: the order of preference among equal sets.
    """
    if not 0 < size <= len(scores) or len(required) > size:
        return []
    wanted = sum(1 << place for place in set(required))
    if len(scores) > MAX_CARDS:
        return places(one_by_one(scores, size, wanted, rank))
    return places(Splits(scores, size).best(wanted, rank))
