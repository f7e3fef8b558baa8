"""Events of Kubernetes: few of them, and never a storm.

Happenings with the same reason about the same object are one Event, whose count grows: it is written at most every ten
minutes, and all Events of a node together a few times a minute. What cannot be written waits, in a bounded queue; what
is an hour old is of no use any more, since the API server itself keeps Events no longer.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes.client import EVENTS, ApiClient
from criproxy.agent.kubernetes.request import ApiError, Conflict, NotFound, Object
from criproxy.agent.signs.event_texts import Happening
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from criproxy.model.text.notices import rfc3339
from criproxy.process.tasks import Backoff, wait_at_most

COMPONENT = "criproxy-agent"
NODES_NAMESPACE = "default"
"""Of Events about Nodes, which have none."""
MOST_NAME_CHARS = 200
MOST_COUNT = 2**31 - 1
"""The API server refuses larger ones; others may have written this one."""
FORBIDDEN, SERVER_FAILED = 403, 500
TERMINATING = "is being terminated"
"""In the refusal (403) of an object in a namespace that somebody deletes."""
LATER = frozenset({401, 408, 429})
"""Answers after which the same request may be accepted, beside those of a server that has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Times in seconds; tests have shorter ones."""

    again_s: float = 600.0
    """The shortest time between two writes of the same Event."""
    most_at_once: int = 5
    refill_s: float = 12.0
    """After which time another write is allowed, up to `most_at_once`."""
    stale_s: float = 3600.0
    most: int = 256
    """Events that are remembered, written or not."""
    retries_s: tuple[float, float] = (1.0, 60.0)


@dataclass(slots=True)
class _Series:
    """One Event: what it tells of, and what was written of it."""

    last: Happening
    first_s: float
    """When the first happening was, in seconds since the epoch."""
    pending: int = 0
    """Happenings that were not written yet."""
    written: int = 0
    written_s: float = float("-inf")
    """When it was written last, on the clock of the event loop."""
    exists: bool = False


@dataclass(slots=True, repr=False)
class EventWriter:
    """Writes Events.

    Args:
        client: of the API server.
        node_name: of the Node.
        troubles: gets why they cannot be written.
        limits: how many, and how often.
        clock: seconds since the epoch.
    """

    client: ApiClient
    node_name: str
    troubles: Troubles
    limits: EventLimits = field(default_factory=EventLimits)
    clock: Callable[[], float] = time.time
    dropped: int = 0
    """Happenings that were dropped: too many, too old, or not accepted."""
    _series: dict[tuple[str, str], _Series] = field(default_factory=dict)
    """The least recently used first."""
    _turns: dict[str, float] = field(default_factory=dict)
    """When an Event was written last, by namespace."""
    _tokens: float = field(init=False)
    _filled_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    _added: Changes = field(default_factory=Changes)
    _is_forbidden: bool = False
    """Whether the last Event was refused for want of rights."""

    def __post_init__(self) -> None:
        self._tokens = float(self.limits.most_at_once)

    def is_due(self, happening: Happening) -> bool:
        """Whether such a happening would be written soon, and not only counted."""
        known = self._series.get(happening.key)
        return known is None or self._now_s() >= known.written_s + self.limits.again_s

    def add(self, happening: Happening) -> None:
        """Tell of a happening, soon or later."""
        series = self._series.pop(happening.key, None) or _Series(happening, happening.at_s)
        series.last, series.pending = happening, series.pending + 1
        self._series[happening.key] = series
        if len(self._series) > self.limits.most:
            self._drop_one()
        self._added.notify()

    async def run(self) -> None:
        """Write for ever."""
        pauses = Backoff(*self.limits.retries_s)
        while True:
            seen = self._added.version
            since_s = self.clock() - self.limits.stale_s
            for key in [key for key, each in self._series.items() if each.last.at_s < since_s]:
                self.dropped += self._series.pop(key).pending
            due_s = self._due_s()
            if due_s is None and not self._is_forbidden:
                self.troubles.set("events", "")
            if due_s is None or due_s > 0:
                await wait_at_most(due_s, self._added.changed(seen))
                continue
            if await self._write_one():
                pauses.reset()
            else:
                await asyncio.sleep(pauses.pause_s())

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _drop_one(self) -> None:
        """Forget one that is written, or else one of the namespace that has most: no tenant pushes out others."""
        written = (key for key, each in self._series.items() if not each.pending)
        ((namespace, _),) = Counter(each.last.namespace for each in self._series.values()).most_common(1)
        crowded = (key for key, each in self._series.items() if each.last.namespace == namespace)
        self.dropped += self._series.pop(next(written, None) or next(crowded)).pending

    def _next(self) -> _Series | None:
        """Return the Event that may be written first: namespaces, and the Node, take turns."""
        waiting = [each for each in self._series.values() if each.pending]
        due = [each for each in waiting if each.written_s + self.limits.again_s <= self._now_s()]
        if due:
            return min(due, key=lambda each: self._turns.get(each.last.namespace, float("-inf")))
        return min(waiting, key=lambda each: each.written_s, default=None)

    def _due_s(self) -> float | None:
        """Return in how many seconds something may be written; None if nothing waits."""
        if (series := self._next()) is None:
            return None
        now_s = self._now_s()
        self._tokens += (now_s - self._filled_s) / self.limits.refill_s
        self._tokens, self._filled_s = min(self._tokens, float(self.limits.most_at_once)), now_s
        until_token_s = max(0.0, 1.0 - self._tokens) * self.limits.refill_s
        return max(0.0, until_token_s, series.written_s + self.limits.again_s - now_s)

    async def _write_one(self) -> bool:
        """Write the Event that is due; return False if there should be a pause."""
        series = self._next()
        assert series is not None
        self._tokens -= 1.0
        told, namespaces = series.pending, {each.last.namespace for each in self._series.values()}
        self._turns = {name: at_s for name, at_s in self._turns.items() if name in namespaces}
        self._turns[series.last.namespace] = self._now_s()
        try:
            await self._write(series, told)
        except CriproxyError as error:
            return self._failed(series, error)
        series.pending, series.written = series.pending - told, series.written + told
        series.written_s, self._is_forbidden = self._now_s(), False
        self.troubles.set("events", "")
        return True

    def _failed(self, series: _Series, error: CriproxyError) -> bool:
        """Drop an Event that the API server does not want, now or later; say so, unless only its namespace is gone."""
        about = f"{series.last.kind} {'/'.join(filter(None, (series.last.namespace, series.last.name)))}"
        text = f"Events cannot be written, such as {series.last.reason} about {about}: {error}"
        if not isinstance(error, ApiError) or error.status in LATER or error.status >= SERVER_FAILED:
            self.troubles.set("events", text)
            return False
        if error.status == FORBIDDEN and TERMINATING not in str(error):
            self._is_forbidden = True
            self.troubles.set("events", text)
        self.dropped += series.pending
        series.pending, series.written_s = 0, self._now_s()
        return True

    async def _write(self, series: _Series, told: int) -> None:
        """Write that so many more happenings are *told*; the Event may be there from an earlier run, or be gone."""
        namespace, name = _place(series.last), _name(series.last, self.node_name)
        if series.exists and await self._patched(series, told):
            return
        try:
            await self.client.create(EVENTS, self._event(series, series.written + told))
        except Conflict:
            found = await self.client.get(EVENTS, name, namespace)
            series.written = int((found or {}).get("count") or 0)
            await self._patched(series, told)
        series.exists = True

    async def _patched(self, series: _Series, told: int) -> bool:
        """Change an Event that exists; return False if it is gone, and forget what it said."""
        change = self._change(series, series.written + told)
        try:
            await self.client.merge_patch(EVENTS, _name(series.last, self.node_name), change, _place(series.last))
        except NotFound:
            series.exists, series.written, series.first_s = False, 0, series.last.at_s
            return False
        return True

    def _change(self, series: _Series, count: int) -> Object:
        return {
            "count": min(count, MOST_COUNT),
            "lastTimestamp": rfc3339(series.last.at_s),
            "message": series.last.message,
        }

    def _event(self, series: _Series, count: int) -> Object:
        happening, is_node = series.last, series.last.kind == "Node"
        about = {"apiVersion": "v1", "kind": happening.kind, "name": happening.name}
        about |= {"uid": happening.name} if is_node else {"namespace": happening.namespace, "uid": happening.uid}
        return {
            "metadata": {"name": _name(happening, self.node_name), "namespace": _place(happening)},
            "involvedObject": about,
            "reason": happening.reason,
            "type": "Warning" if happening.is_warning else "Normal",
            "source": {"component": COMPONENT, "host": self.node_name},
            "reportingComponent": COMPONENT,
            "reportingInstance": self.node_name,
            "firstTimestamp": rfc3339(series.first_s),
            **self._change(series, count),
        }


def _place(happening: Happening) -> str:
    return happening.namespace or NODES_NAMESPACE


def _name(happening: Happening, node_name: str) -> str:
    """Return the name of the Event: the same for all with one key, also after a restart of the agent."""
    digest = sha256("\n".join((*happening.key, node_name)).encode()).hexdigest()
    return f"{happening.name[:MOST_NAME_CHARS].rstrip('.-')}.{digest[:16]}"
