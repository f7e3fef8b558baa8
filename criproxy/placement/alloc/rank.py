"""Choosing between candidates by a sort key of named criteria, so that a choice can be explained.

The first criterion in which two candidates differ decides. The last one is a number that no two of them share, so
that the order is total and does not depend on the order of the input.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Unit(Enum):
    """What the value of a criterion is, so that people can be shown it."""

    HOLDS = "holds"
    """0 where what its name says is so, 1 where it is not."""
    FEWER = "fewer"
    """A number, the smaller the better."""
    MORE = "more"
    """A number, the larger the better: the value is that number times -1, as it is for the following."""
    MORE_MILLI = "more-milli"
    """Milli-CPU."""
    MORE_BYTES = "more-bytes"


class Criterion(NamedTuple):
    """One property by which candidates are compared."""

    name: str
    """What the better one has, for people: ``more free CPU``."""
    value: int
    """Smaller is better."""
    unit: Unit = Unit.HOLDS


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may be chosen. All candidates of a choice have the same criteria in the same order."""

    index: int
    """Which it is; unique."""
    name: str
    criteria: tuple[Criterion, ...]

    @property
    def key(self) -> tuple[int, ...]:
        """What to sort by."""
        return (*(criterion.value for criterion in self.criteria), self.index)


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first."""
    return sorted(candidates, key=lambda candidate: candidate.key)


def decider(better: Candidate, worse: Candidate) -> Criterion | None:
    """The criterion that put *better* before *worse*; None if they are alike and only their numbers did."""
    for one, other in zip(better.criteria, worse.criteria, strict=True):
        if one.value != other.value:
            return one
    return None
