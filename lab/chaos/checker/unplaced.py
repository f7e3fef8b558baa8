"""Containers that started without a place, because the runtime did not ask criproxy: what is allowed to them.

They may be on CPUs of others, and others on theirs, while criproxy is away or not asked, and for `PLACED_WITHIN_S`
after it is back; no longer, and at no time that criproxy does not list as one in which they ran without a place. Each
that started is listed. Who starts when criproxy is back is asked about, and meets no owner on its CPUs.

The same holds for who was created on CPUs that others got since, and starts while nobody asks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

PLACED_WITHIN_S = 2.0
SLACK_S = 0.5
"""Between the end of a connection and the line about it in the journal, or between a question that was lost with it and
the start."""
ASKED_S = 0.3
"""Between the moment at which the runtime would have asked about a start, and the first look that sees the container
execute."""
MOMENT_S = 0.1
"""Between a change and the look that sees it, or between the decision about a place and the move."""
STARTED_S = 0.5
"""Between the first look that sees a container execute and the time at which the runtime says that it has started: that
is the end of its start, on a busy machine much later."""

Time = tuple[float, float]
"""From when to when, in seconds since the epoch."""


@dataclass(slots=True)
class Gap:
    """A time in which the runtime did not ask criproxy."""

    since_s: float
    until_s: float = inf
    forgets: bool = False
    """Criproxy lost its database in it."""


@dataclass(slots=True)
class Start:
    """A container that started without a place."""

    title: str
    """POD/NAME."""
    begun_s: float
    """When it was first seen to execute something."""
    former_s: float = 0.0
    """When the one before of that title began; 0 if there was none."""
    is_excused: bool = False
    """Nobody could tell of it: it came and went while criproxy was away, or criproxy lost its database."""


@dataclass(slots=True)
class Overlap:
    """A container on CPUs of an owner."""

    pair: tuple[str, str]
    """The ids of the owner and of the other."""
    titles: tuple[str, str]
    sentence: str
    time: Time
    """When it was first and last seen."""


@dataclass(frozen=True, slots=True)
class Told:
    """What criproxy says of a container that ran without a place."""

    title: str
    """NAMESPACE/POD/NAME."""
    time: Time


def told_in(events: Iterable[Mapping[str, Any]]) -> Iterator[Told]:
    """What the events of ``criproxy events`` say."""
    for event in events:
        if since_s := event["facts"].get("unplaced_since_s"):
            until_s = event["facts"].get("unplaced_until_s") or datetime.fromisoformat(event["time"]).timestamp()
            yield Told(event["container"], (since_s, until_s))


def unlisted(starts: Iterable[Start], gaps: Sequence[Gap], told: Sequence[Told]) -> Iterator[str]:
    """Those that are not listed, or got their place too late."""
    for start in starts:
        if start.is_excused:
            continue
        said = f"{start.title} began without a place at {_clock(start.begun_s)}"
        if not (listed := _listed(start, told)):
            others = ", ".join(f"{_clock(since_s)} to {_clock(until_s)}" for since_s, until_s in _times(start, told))
            yield f"not listed: {said}{_since_back(gaps, start.begun_s)}; it is listed {others or 'at no time'}"
        elif late := _outside(
            (start.begun_s, max(until_s for _, until_s in listed)), [*_allowed(start, gaps), _own(start)]
        ):
            yield f"placed late: {said}, and had none until {_clock(late[1])}{_since_back(gaps, late[0])}"


def too_long(
    overlaps: Iterable[Overlap],
    starts: Mapping[str, Start],
    gaps: Sequence[Gap],
    told: Sequence[Told],
    gone: Collection[str] = (),
) -> Iterator[str]:
    """Overlaps at a time at which neither of the two may be on CPUs of others, or a placed owner may not meet anyone.

    Its start would have been refused, or that of the other.

    Args:
        overlaps: all of them.
        starts: those who started without a place, by their ids.
        gaps: when criproxy was away.
        told: what it says.
        gone: ids of others of whom it cannot say anything, as `Start.is_excused`.
    """
    for overlap in overlaps:
        ways, is_met = list[str](), False
        for key, title in zip(overlap.pair, overlap.titles, strict=True):
            placed = Start(title, overlap.time[0], is_excused=key in gone)
            start = starts.get(key, placed)
            times = [*_allowed(start, gaps), *([_own(start)] if key in starts and key == overlap.pair[0] else [])]
            if late := _outside(overlap.time, times):
                ways.append(f"{title} may not at {_clock(late[0])}{_since_back(gaps, late[0])}")
                is_met |= late[0] == overlap.time[0] and key == overlap.pair[0] and key not in {*starts, *gone}
            elif not start.is_excused and not any(_covers(time, overlap.time) for time in _listed(start, told)):
                listed = ", ".join(f"{_clock(time[0])} to {_clock(time[1])}" for time in _listed(start, told))
                ways.append(f"{title} is listed {listed or 'at no time'}")
        if is_met or len(ways) == len(overlap.pair):
            yield f"{overlap.sentence}, from {_clock(overlap.time[0])} to {_clock(overlap.time[1])}: {'; '.join(ways)}"


def _allowed(start: Start, gaps: Iterable[Gap]) -> list[Time]:
    """When *start* may be on CPUs of others. Of a gap that had ended before, the barrier was back, too."""
    there = (gap for gap in gaps if start.begun_s <= max(gap.until_s + ASKED_S, gap.since_s + SLACK_S))
    return [(gap.since_s - SLACK_S, gap.until_s + PLACED_WITHIN_S) for gap in there]


def _own(start: Start) -> Time:
    """When it may lack CPUs of its own if it was created in a gap and starts after it: it shares until then."""
    return start.begun_s, start.begun_s + PLACED_WITHIN_S


def _listed(start: Start, told: Iterable[Told]) -> list[Time]:
    """The times that criproxy lists for *start*, and not for an earlier container of that name."""
    return [time for time in _times(start, told) if start.former_s < time[0] <= start.begun_s + STARTED_S]


def _times(start: Start, told: Iterable[Told]) -> list[Time]:
    """The times that criproxy lists for containers of the name of *start*."""
    return [each.time for each in told if each.title.endswith(f"/{start.title}")]


def _covers(listed: Time, time: Time) -> bool:
    return listed[0] - STARTED_S <= time[0] and time[1] <= listed[1] + MOMENT_S


def _outside(time: Time, windows: Iterable[Time]) -> Time | None:
    """The first part of *time* that no window covers."""
    at_s = time[0]
    for since_s, until_s in sorted(windows):
        if since_s > at_s:
            return at_s, min(since_s, time[1])
        at_s = max(at_s, until_s)
        if at_s >= time[1]:
            return None
    return at_s, time[1]


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M:%S.%f}"[:-3]


def _since_back(gaps: Iterable[Gap], at_s: float) -> str:
    """How long before criproxy was back, for people."""
    before = [gap for gap in gaps if gap.since_s <= at_s]
    if not before:
        return " (criproxy has not been away before)"
    if before[-1].until_s >= at_s:
        return f" (criproxy was away since {_clock(before[-1].since_s)})"
    return f" (criproxy was back since {_clock(before[-1].until_s)})"
