"""Rows that cover pairs: a small greedy covering array of strength two, the same in every run."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

Pair = frozenset[str]


def pairs(slots: Sequence[Sequence[str]]) -> set[Pair]:
    """Every two values that can stand together: of two different slots, and not the same."""
    return {frozenset((a, b)) for one, other in combinations(slots, 2) for a in one for b in other if a != b}


def covering(slots: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Rows of a value for each slot, such that every one of `pairs` is in some row.

    Slots with the same values are alike: within a row their values differ, and their order says nothing to `pairs`.
    """
    wanted, used, rows = pairs(slots), Counter[str](), list[tuple[str, ...]]()
    while wanted:
        row = _begun(slots, min(wanted, key=sorted))
        for place, values in enumerate(slots):
            if not row[place]:
                row[place] = _best(values, row, wanted, used)
        wanted -= pairs([[value] for value in row])
        used.update(row)
        rows.append(tuple(row))
    return rows


def _begun(slots: Sequence[Sequence[str]], pair: Pair) -> list[str]:
    """A row with *pair* in the first slots that have its values."""
    row = [""] * len(slots)
    for value in sorted(pair):
        row[next(place for place, values in enumerate(slots) if value in values and not row[place])] = value
    return row


def _best(values: Sequence[str], row: Sequence[str], wanted: set[Pair], used: Counter[str]) -> str:
    """The value that covers most with what is in the row; of several, one of which most is left to cover."""
    there = [value for value in row if value]
    free = [value for value in values if value not in there]

    def gain(value: str) -> tuple[int, int, int]:
        covers = sum(frozenset((value, other)) in wanted for other in there)
        return covers, sum(value in pair for pair in wanted), -used[value]

    return max(free, key=gain)
