"""Chooses which free ids of a resource to allocate: replicas spread or packed, whole cards close to each other."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from criproxy.devices.classes.offers import Offered, card_of, unique

MAX_CARDS = 16
"""The table has an entry for every subset of so many cards."""
Scores = Sequence[Sequence[int]]
"""How close two cards are, by their indexes; symmetric and not negative."""
Rank = Callable[[int], tuple[int, ...]]
"""The rank of a set of cards: the smallest is preferred. It is unique."""
MANY_STEPS = 20_000
"""After so many steps, there are so many best splits that trying preferred sets is faster than finding all splits."""
_BYTE_BITS = 8
_BYTE = (1 << _BYTE_BITS) - 1
Spread = Literal["distributed", "packed"]
"""The next replica is of the card with the fewest replicas in use, or of the one with the most."""


class Splits:
    """All splits of some cards into sets of one size, to choose cards so that the remaining ones are close, too.

    The free cards are split into sets of the requested size, of which one may be smaller. The best split has the
    largest sum of the scores of all pairs within sets, and its best set is the result. Sixteen cards can be split into
    pairs in two million ways, so the search keeps a table with the value of the best split of each subset of cards.
    Sets of cards are bit masks: card 0 is 1, card 1 is 2.
    """

    def __init__(self, scores: Scores, size: int, *, many_steps: int = MANY_STEPS) -> None:
        """Score all sets.

        Args:
            scores: the score of each two cards.
            size: the size of the sets, from 1 to the number of cards.
            many_steps: the number of steps after which preferred sets are tried instead of finding all best splits.
        """
        self.size = size
        self.smaller = len(scores) % size
        """The size of the smaller set; 0: there is none."""
        self.steps = 0
        """The number of sets that the search has examined."""
        self._many_steps = many_steps
        self._everything = (1 << len(scores)) - 1
        self._score = _set_scores(scores, size)
        self._worth: list[int | None] = [None] * (1 << len(scores))
        for cards in (*subsets(self._everything, self.smaller), *subsets(self._everything, size), 0):
            self._worth[cards] = self._score[cards]

    def best(self, required: int, rank: Rank) -> int:
        """Return the preferred one of the best sets of the best splits; 0: there is none.

        Args:
            required: the cards that must be in the set.
            rank: the order of preference.
        """
        sets = [cards for cards in subsets(self._everything, self.size) if cards & required == required]
        if required:  # only one set of a split has them, and it is the result whatever the value of the others
            worth = {cards: self._score[cards] + self._best_worth(self._everything ^ cards) for cards in sets}
            most = max(worth.values(), default=0)
            return min((cards for cards in sets if worth[cards] == most), key=rank, default=0)
        most = self._best_worth(self._everything)
        candidates = self._in_best_splits()
        for cards in sorted(sets if candidates is None else candidates, key=rank):
            rest, score = self._everything ^ cards, self._score[cards]
            if score + self._best_worth(rest) == most and self._none_above(score, rest, set()):
                return cards
        return 0

    def _best_worth(self, cards: int) -> int:
        known = self._worth[cards]
        if known is None:
            known = max(self._worth_from(cards, size) for size in self._sizes(cards.bit_count()))
            self._worth[cards] = known
        return known

    def _sizes(self, count: int) -> Iterator[int]:
        """Yield the possible sizes of the first card's set if *count* cards are left."""
        if count >= self.size:
            yield self.size
        if self.smaller and count % self.size == self.smaller:
            yield self.smaller

    def _worth_from(self, cards: int, size: int) -> int:
        """Return the value of the best split of *cards* in which the first card's set has *size* cards."""
        first = cards & -cards
        others = cards ^ first
        chosen = subsets(others, size - 1)
        self.steps += len(chosen)
        score, worth = self._score, self._worth
        if others.bit_count() - size + 1 not in (self.size, self.smaller, 0):
            for each in chosen:
                if worth[others ^ each] is None:
                    self._best_worth(others ^ each)
        return max([score[first | each] + worth[others ^ each] for each in chosen])  # type: ignore[operator]

    def _tight(self, cards: int) -> Iterator[tuple[int, int, int]]:
        """Yield the beginnings of best splits of *cards*: the first card's set, the rest, and the size of the set."""
        most, first = self._best_worth(cards), cards & -cards
        for size in self._sizes(cards.bit_count()):
            for others in subsets(cards ^ first, size - 1):
                self.steps += 1
                chosen, rest = first | others, cards ^ first ^ others
                if self._score[chosen] + self._best_worth(rest) == most:
                    yield chosen, rest, size

    def _in_best_splits(self) -> set[int] | None:
        """Return all sets of the requested size in best splits; None if there are too many splits."""
        found: set[int] = set()
        seen, todo, limit = {self._everything}, [self._everything], self.steps + self._many_steps
        while todo:
            for chosen, rest, size in self._tight(todo.pop()):
                if size == self.size:
                    found.add(chosen)
                if rest and rest not in seen:
                    seen.add(rest)
                    todo.append(rest)
            if self.steps > limit:
                return None
        return found

    def _none_above(self, score: int, cards: int, failed: set[int]) -> bool:
        """Whether a best split of *cards* has no set of the requested size with a larger score."""
        if cards.bit_count() < self.size:
            return True
        if cards in failed:
            return False
        for chosen, rest, size in self._tight(cards):
            allowed = size != self.size or self._score[chosen] <= score
            if allowed and self._none_above(score, rest, failed):
                return True
        failed.add(cards)
        return False


def one_by_one(scores: Scores, size: int, required: int, rank: Rank) -> int:
    """Return a good set if there are too many cards for the table: grown from each card by adding the best next one."""
    count = len(scores)
    seeds = [required] if required else [1 << card for card in range(count)]
    grown = [_grown(scores, size, seed) for seed in seeds]
    return min(grown, key=lambda cards: (-_score(scores, cards), *rank(cards)))


def places(cards: int) -> list[int]:
    """Return the indexes of the cards in a set."""
    return [place for place in range(cards.bit_length()) if cards >> place & 1]


def subsets(cards: int, size: int) -> list[int]:
    """Return all subsets of *cards* with *size* cards."""
    low, high = _subsets_of_byte(cards & _BYTE), _subsets_of_byte(cards >> _BYTE_BITS)
    return [
        one | other << _BYTE_BITS
        for below in range(max(0, size - len(high) + 1), min(size, len(low) - 1) + 1)
        for other in high[size - below]
        for one in low[below]
    ]


@lru_cache(maxsize=1 << _BYTE_BITS)
def _subsets_of_byte(cards: int) -> tuple[tuple[int, ...], ...]:
    """Return the subsets of eight cards, by size."""
    within = [each for each in range(cards + 1) if each & cards == each]
    return tuple(tuple(each for each in within if each.bit_count() == size) for size in range(cards.bit_count() + 1))


def _set_scores(scores: Scores, size: int) -> list[int]:
    """Return the sum of the scores of all pairs, by set, for sets of at most *size* cards."""
    count = len(scores)
    found = [0] * (1 << count)
    layer = [1 << card for card in range(count)]
    below = [_sums(row[:_BYTE_BITS]) for row in scores]
    above = [_sums(row[_BYTE_BITS:]) for row in scores]
    for _ in range(size - 1):
        larger = []
        for cards in layer:
            for card in range(cards.bit_length(), count):
                new = cards | 1 << card
                found[new] = found[cards] + below[card][cards & _BYTE] + above[card][cards >> _BYTE_BITS]
                larger.append(new)
        layer = larger
    return found


def _sums(values: Sequence[int]) -> list[int]:
    """Return the sum of *values* for each subset."""
    found = [0]
    for value in values:
        found += [each + value for each in found]
    return found


def _grown(scores: Scores, size: int, cards: int) -> int:
    while cards.bit_count() < size:
        inside = places(cards)
        free = [card for card in range(len(scores)) if not cards >> card & 1]
        cards |= 1 << max(free, key=lambda card: (sum(scores[card][each] for each in inside), -card))
    return cards


def _score(scores: Scores, cards: int) -> int:
    inside = places(cards)
    return sum(scores[one][other] for one in inside for other in inside if one < other)


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
        cards = [card for card in left if left[card]]
        card = min(cards, key=lambda card: (sign * in_use[card], given[card], order[card]))
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
