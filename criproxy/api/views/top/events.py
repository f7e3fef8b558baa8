"""What has happened on the node between two answers of the daemon, and what the first one tells of before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from criproxy.api.views.top.snapshot import Row, Snapshot
from criproxy.model.cpuset import format_cpuset, numbered

MAX_EVENTS = 500
"""So many are kept."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that has happened."""

    time: str
    """In UTC, as in answers."""
    text: str
    wrong: bool = False


def earlier(first: Snapshot) -> list[Event]:
    """What the *first* answer tells of the time before it, the oldest first."""
    refused = [Event(time, f"REFUSED {text}", wrong=True) for _, time, text in first.refusals]
    return sorted([*refused, *_noticed(frozenset(), first)], key=lambda event: event.time)


def later(before: Snapshot, now: Snapshot) -> list[Event]:
    """What has happened between the two answers."""
    if before.source != now.source:  # what was stored is older than what is the case
        return []
    old, new = _by_key(before), _by_key(now)
    refused = {(title, time) for title, time, _ in before.refusals}
    found = [Event(time, f"REFUSED {text}", True) for title, time, text in now.refusals if (title, time) not in refused]
    found += _noticed(frozenset(text for _, text in before.notices), now)
    for key, row in old.items():
        if key not in new and row.is_alive:
            found.append(Event(now.time, f"{row.title} is gone"))
    for key, row in new.items():
        found += [Event(now.time, f"{row.title} {text}", wrong) for text, wrong in _changed(old.get(key), row)]
    return found


def _by_key(told: Snapshot) -> Mapping[str, Row]:
    return {row.key: row for row in told.rows}


def _noticed(known: frozenset[str], now: Snapshot) -> list[Event]:
    return [Event(now.time, text, wrong) for wrong, text in now.notices if text not in known]


def _changed(old: Row | None, row: Row) -> Iterator[tuple[str, bool]]:
    """What has happened to one container."""
    if old is None:
        if row.is_alive:
            yield f"is new, {place(row)}", False
        return
    if old.state != row.state:
        yield f"is {row.state} now, was {old.state}", row.state == "unknown"
    if row.is_alive and (old.cpus, old.exclusive) != (row.cpus, row.exclusive) and row.exclusive | old.exclusive:
        yield f"is {place(row)} now, was {place(old)}", False
    if row.error and row.error != old.error:
        yield f"cannot be updated: {row.error}", True


def place(row: Row) -> str:
    """Where a container runs, in words."""
    if row.exclusive:
        return f"exclusively on {numbered('CPU', row.exclusive)}"
    return f"on shared {numbered('CPU', row.cpus)}" if row.cpus else "without a place"


def cpus_of(row: Row) -> str:
    """The same for a column of a table."""
    if row.exclusive:
        more = "+shared" if row.cpus - row.exclusive else ""
        return format_cpuset(row.exclusive) + more
    return "shared" if row.placed else "not placed"
