"""Choosing between candidates by a sort key of named criteria, so that a choice can be explained.

The first criterion in which two candidates differ decides. The last one is a number that no two of them share, so
that the order is total and does not depend on the order of the input. `Candidates` is what `criproxy explain` shows as
a table: those without room come after all others, each with what it lacks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter
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
    note: str = ""
    """See `Row.note`."""

    @property
    def key(self) -> tuple[int, ...]:
        """What to sort by."""
        return (*[criterion.value for criterion in self.criteria], self.index)


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first."""
    return sorted(candidates, key=attrgetter("key"))


@dataclass(frozen=True, slots=True)
class Measure:
    """A criterion of a choice."""

    name: str
    unit: Unit = Unit.HOLDS


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate."""

    name: str
    values: tuple[int, ...] = ()
    """By criterion, smaller is better; none where it was not compared."""
    lacks: str = ""
    """What it lacks, such as ``2 CPUs``; empty where there is room."""
    note: str = ""
    """A remark, in a few words."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """All candidates of one choice."""

    of: str
    """What they are: ``pools``, ``balloons``."""
    measures: tuple[Measure, ...] = ()
    """The criteria by which those with room are compared, the most important first."""
    rows: tuple[Row, ...] = ()
    """Those with room, the best first, then those without."""
    chosen: str = ""
    """The name of the one that was taken: the first, unless none has room; empty where the container was refused."""
    note: str = ""
    """What was decided before, or instead: a sentence without its end."""
    omitted: int = 0
    """How many more there were than *rows*."""

    @property
    def decided_by(self) -> Measure | None:
        """In which criterion the chosen one is better than the next; None where it is the only one, or comes first."""
        fitting = [row for row in self.rows if not row.lacks]
        return self.between(fitting[0], fitting[1]) if self.chosen and len(fitting) > 1 else None

    def between(self, better: Row, worse: Row) -> Measure | None:
        """The criterion that put *better* before *worse*; None where they are alike, or one was not compared."""
        pairs = zip(self.measures, better.values, worse.values, strict=False)
        return next((measure for measure, one, other in pairs if one != other), None)

    def first(self, count: int) -> "Candidates":
        """The same with at most *count* rows, the chosen one among them."""
        kept = self.rows[:count]
        if self.chosen and all(row.name != self.chosen for row in kept):
            kept = (*kept[:-1], *(row for row in self.rows if row.name == self.chosen))
        return replace(self, rows=kept, omitted=self.omitted + len(self.rows) - len(kept))


def compared(
    of: str, order: Sequence[Candidate], lacking: Sequence[Row] = (), *, chosen: str | None = None, note: str = ""
) -> Candidates:
    """The candidates of a choice by sort keys.

    Args:
        of: what they are, in the plural.
        order: those with room, sorted as by `alloc.rank.ranked`.
        lacking: those without.
        chosen: the name of the one that was taken; None: the first of *order*, if there is one.
        note: see `Candidates.note`.
    """
    measures = tuple(Measure(criterion.name, criterion.unit) for criterion in order[0].criteria) if order else ()
    rows = [Row(each.name, tuple(criterion.value for criterion in each.criteria), note=each.note) for each in order]
    taken = chosen if chosen is not None else order[0].name if order else ""
    return Candidates(of, measures, (*rows, *lacking), taken, note)
