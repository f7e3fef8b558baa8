"""Counters of the data plane: plain numbers, so that counting costs nothing; `api.metrics` turns them into metrics."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from criproxy.wire.calls import Rule, Table

HELD_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds in seconds of the histogram of held times."""

MAX_PATHS = 256
"""Distinct method paths that are counted by name; a client that invents more is counted under `OTHER`."""

OTHER = "other"
MANY_BROKEN = 3
"""So many connections that end within a minute because a peer broke the protocol are no accident."""


@dataclass(slots=True)
class Histogram:
    """Counts of values by bucket, not cumulative; the last count is of those above all *bounds*."""

    bounds: Sequence[float] = HELD_BUCKETS_S
    sum: float = 0.0
    counts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one value, in seconds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


@dataclass(slots=True, eq=False)
class Entry:
    """One method path: its rule and its counts."""

    method: str
    rule: Rule | None
    calls: int = 0
    """Calls that went the way of the rule."""
    bypassed: int = 0
    """Calls of a method with a rule that passed because of bypass."""
    last_s: float | None = None
    """When the last call began, on the monotonic clock; None before the first one."""
    held: Histogram = field(default_factory=Histogram)
    earlier: Counter[str] = field(default_factory=Counter)
    """Calls by the way that they went under rules that the method had before."""

    @property
    def way(self) -> str:
        """Label of `calls`."""
        return self.rule.way if self.rule else "pass"


class Stats:
    """Everything the data plane counts, over all connections of one proxy."""

    def __init__(self, table: Table) -> None:
        self.entries = {path.encode(): Entry(path, rule) for path, rule in table.items()}
        self.other = Entry(OTHER, None)
        self.bypass = False
        """While set, no new call is held, watched or edited."""
        self.bytes_from_kubelet = 0
        self.bytes_from_runtime = 0
        self.connected_s: float | None = None
        """When the last connection was accepted, on the monotonic clock."""
        self.connections_total = 0
        self.connections_open = 0
        self.dial_failures = 0
        self.refused = 0
        """Held calls ended with a status of ours."""
        self.cancelled_held = 0
        """Held calls that the kubelet or the runtime ended first."""
        self.handler_errors = 0
        self.unreadable = 0
        """Messages to be held or edited that could not be read."""
        self.protocol_errors = 0
        self.broken_s: deque[float] = deque(maxlen=MANY_BROKEN)
        """When the last connections ended because a peer broke the protocol, on the monotonic clock."""
        self.broken_why = ""
        """Which peer it was the last time, and how, as a part of a sentence."""
        self.kept_bytes = 0
        """Of held requests and of unfinished watched messages, on all connections now."""
        self.unknown_outcomes = 0

    @property
    def last_call_s(self) -> float | None:
        """When a client last called, or connected to call, on the monotonic clock; None if none did.

        While the runtime is away, connections end before they have a call.
        """
        begun_s = (self.connected_s, *(each.last_s for each in (*self.entries.values(), self.other)))
        return max((at_s for at_s in begun_s if at_s is not None), default=None)

    def use(self, table: Table) -> None:
        """Treat calls that begin from now on by *table*."""
        for path in self.entries.keys() | {path.encode() for path in table}:
            rule, known = table.get(path.decode("latin-1")), self.entries.get(path)
            if known is None:
                self.entries[path] = Entry(path.decode("latin-1"), rule)
            elif known.rule is not rule:
                earlier = known.earlier + Counter({known.way: known.calls})
                self.entries[path] = replace(known, rule=rule, calls=0, earlier=earlier)  # calls under way keep theirs

    def entry(self, path: bytes) -> Entry:
        """The entry of a method path; a new one while there are not too many."""
        entry = self.entries.get(path)
        if entry is None:
            if len(self.entries) >= MAX_PATHS:
                return self.other
            entry = self.entries[path] = Entry(path.decode("latin-1"), None)
        return entry


def last_call_s(stats: Iterable[Stats]) -> float | None:
    """When a client last called any of the proxies, or connected to one, as `Stats.last_call_s`."""
    return max((each.last_call_s for each in stats if each.last_call_s is not None), default=None)
