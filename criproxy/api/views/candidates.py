"""The candidates of decisions as JSON values: a part of the answer of `criproxy explain`."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from criproxy.api.views.situation import identity, in_order
from criproxy.model.attributes import granted, shown
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.text.plain import from_plain
from criproxy.placement.alloc.rank import Candidates, Measure, Row, Unit
from criproxy.placement.answers.choice import Choice
from criproxy.placement.answers.leavers import Leavers
from criproxy.placement.decision import Decision


def recorded(records: Iterable[Record]) -> Iterator[Values]:
    """Yield the records of the kind `CONSIDERED`, except those that another version has written in another format."""
    for record in records:
        with suppress(ValueError):
            yield values(from_plain(Choice, record.facts), timestamp(record.at_s))


def values(choice: Choice, time: str) -> Values:
    """Return a choice as JSON values; *time* is when it was made, or empty if it is computed now."""
    return {
        "time": time,
        "decision": choice.decided.value,
        "candidates": _candidates(choice.candidates) if choice.candidates else None,
        "leavers": _leavers(choice.leavers) if choice.leavers else None,
    }


def _candidates(candidates: Candidates) -> Values:
    return {
        "of": candidates.of,
        "chosen": candidates.chosen,
        "decided_by": _name(candidates.decided_by),
        "note": candidates.note,
        "criteria": [{"name": measure.name, "unit": measure.unit.value} for measure in candidates.measures],
        "rows": [_row(candidates, row) for row in candidates.rows],
        "omitted": candidates.omitted,
    }


def _row(candidates: Candidates, row: Row) -> Values:
    first = candidates.rows[0]
    measures = zip(candidates.measures, row.values, strict=False)
    return {
        "name": row.name,
        "values": [_natural(measure, value) for measure, value in measures],
        "loses_by": _name(candidates.between(first, row)) if row is not first else None,
        "lacks": row.lacks,
        "note": row.note,
    }


def _natural(measure: Measure, value: int) -> int | bool:
    """Return the value for people: in the sort keys, smaller is better."""
    if measure.unit is Unit.HOLDS:
        return not value
    return value if measure.unit is Unit.FEWER else -value


def _name(measure: Measure | None) -> str | None:
    return measure.name if measure else None


def _leavers(leaving: Leavers) -> Values:
    return {
        "containers": list(leaving.containers),
        "omitted": leaving.omitted,
        "shortest": leaving.shortest,
        "steps": leaving.steps,
        "text": _sentence(leaving),
    }


def _sentence(leaving: Leavers) -> str:
    count = len(leaving.containers) + leaving.omitted
    if not count and leaving.shortest:
        return "it would not fit even without the containers of all other pods"
    if not count:
        return f"a search of {leaving.steps} steps found no list of containers whose removal makes room"
    whom = "this container" if count == 1 else f"these {count} containers"
    sure = "no shorter list makes room" if leaving.shortest else "a shorter list may exist: the search was cut short"
    return f"it would fit without {whom}; {sure}"


def moved(before: Node, decision: Decision) -> Iterator[Values]:
    """Yield the containers that would get other CPUs or other memory than on the node *before*, ordered by name."""
    updates = {update.key: update for update in decision.moving(before)}
    for container in in_order(before.containers[key] for key in updates):
        update, had = updates[container.key], before.grants.get(container.key)
        yield {**identity(container), **shown("from_", had and granted(had)), **shown("", granted(update.grant))}
