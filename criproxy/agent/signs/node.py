"""Writes to this machine's Node object: the condition, the labels and the inventory; and removes the startup taint.

What others have written stays: the taint is removed only from the Node that was read, and labels are applied on the
server without force. A wiped API server makes the Node anew, with another UID: then everything is written again.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from math import inf

from criproxy.agent.changes import any_changed
from criproxy.agent.kubernetes.client import FIELD_MANAGER, NODES, ApiClient
from criproxy.agent.kubernetes.request import ApiError, Conflict, Object, Unreachable
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.signs.wanted import (
    TAINT,
    WELL,
    Condition,
    Metadata,
    condition_of,
    known_condition,
    metadata_of,
    owned_by,
    without_taint,
)
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from criproxy.model.text.notices import rfc3339
from criproxy.process.logger import Log
from criproxy.process.tasks import Backoff, wait_at_most

MOST_TRIES = 5
"""How often the taint is removed from a Node that others change meanwhile, before a pause."""
FORBIDDEN = 403
AT_ONCE = frozenset({WELL.reason, "Bypassed", "Released"})
"""Reasons of a condition that are written at once; others may be over after a restart of the daemon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOptions:
    """What is written, and how often, in seconds; tests have shorter times."""

    taint: bool = True
    """Whether the startup taint is removed."""
    labels: bool = True
    """Whether labels are written."""
    heartbeat_s: float = 300.0
    """How often an unchanged condition is written."""
    grace_s: float = 30.0
    """How long criproxy may seem unwell before the condition says so."""
    message_s: float = 60.0
    """How often a condition is written of which only the message changes."""
    repair_s: float = 60.0
    """When what somebody else has removed is written again."""
    conflict_s: float = 600.0
    """When labels of another manager are tried again."""
    gap_s: float = 5.0
    """The shortest time between two rounds of writes."""
    retries_s: tuple[float, float] = (1.0, 60.0)
    """The first and the longest pause after a failure."""


@dataclass(slots=True, repr=False)
class NodeSigns:
    """Keeps the Node object up to date.

    Args:
        client: of the API server.
        view: what the daemon says.
        node: the Node of this machine, its metadata.
        troubles: gets what cannot be written.
        log: a structlog logger.
        options: what is written, and how often.
        transitioned: called with a condition whose status differs from the former one, when it is written.
    """

    client: ApiClient
    view: NodeView
    node: Watched
    troubles: Troubles
    log: Log
    options: SignOptions = field(default_factory=SignOptions)
    transitioned: Callable[[Condition], None] = lambda _: None
    _uid: str = ""
    """Of the Node that was read; empty: none."""
    _taints: list[Object] = field(default_factory=list)
    _resource_version: str = ""
    _condition: tuple[Condition, str] | None = None
    """The one that the Node has, and since when it has its status."""
    _condition_s: float = -inf
    """When it was written, on the clock of the event loop, as are the following."""
    _unwell_s: float | None = None
    _owned: Metadata = field(default_factory=Metadata)
    """What was applied."""
    _owned_s: float = -inf
    _conflict_s: float = -inf
    """When labels of another manager were found."""
    _written_s: float = -inf
    """When anything was written."""
    _due_s: list[float] = field(default_factory=list)
    """When there is something to do although nothing changes."""

    async def run(self) -> None:
        """Write for ever."""
        pauses, loop = Backoff(*self.options.retries_s), asyncio.get_running_loop()
        while True:
            seen, self._due_s = (self.view.version, self.node.version), []
            if pause_s := await self._write(pauses):
                await asyncio.sleep(pause_s)
                continue
            pauses.reset()
            due_s = max(0.0, min(self._due_s) - loop.time()) if self._due_s else None
            await wait_at_most(due_s, any_changed((self.view, self.node), seen))
            gap_s = self.options.gap_s * random.uniform(0.5, 1.0)
            await asyncio.sleep(self._written_s + gap_s - loop.time())

    async def _write(self, pauses: Backoff) -> float:
        """Write what differs; return how long to pause because of a failure."""
        if not self.node.known:
            return 0.0
        name = self.view.node_name
        there = self.node.objects.get(name)
        self.troubles.set("node", "" if there else f"the API server has no Node {name}: nothing is written to it")
        if there is None:
            self._forget()
            return 0.0
        parts = {
            "read": lambda: self._read(str(there["metadata"].get("uid", ""))),
            "condition": self._write_condition,
            "taint": self._remove_taint,
            "labels": lambda: self._write_metadata(there),
        }
        failed = list[CriproxyError]()
        for part, work in parts.items():
            if error := await self._done(part, work):
                failed.append(error)
            if not self._uid or isinstance(error, Unreachable):
                break
        if any(isinstance(each, ApiError) and each.status == FORBIDDEN for each in failed):
            return self.options.retries_s[1] * random.uniform(0.5, 1.0)
        return pauses.pause_s() if failed else 0.0

    async def _done(self, part: str, work: Callable[[], Awaitable[None]]) -> CriproxyError | None:
        """Do a part of the work, and return why it failed."""
        try:
            await work()
        except CriproxyError as error:
            self.troubles.set(f"node-{part}", f"the Node {self.view.node_name} is not up to date ({part}): {error}")
            return error
        self.troubles.set(f"node-{part}", "")
        return None

    def _forget(self) -> None:
        self._uid, self._taints, self._condition, self._owned = "", [], None, Metadata()
        self.troubles.set("node-labels-of-others", "")
        self._condition_s = self._owned_s = self._conflict_s = -inf

    async def _read(self, uid: str) -> None:
        """Read the whole Node if it is another one than before."""
        if uid == self._uid:
            return
        self._forget()
        found = await self.client.get(NODES, self.view.node_name)
        if found is not None:
            self._take(found)
            self._condition, self._owned = known_condition(found), owned_by(found, FIELD_MANAGER) or Metadata()

    def _take(self, node: Object) -> None:
        self._uid = str(node["metadata"].get("uid", ""))
        self._resource_version = str(node["metadata"].get("resourceVersion", ""))
        self._taints = list((node.get("spec") or {}).get("taints") or ())

    async def _write_condition(self) -> None:
        now_s, wanted = asyncio.get_running_loop().time(), condition_of(self.view.last, self.view.problem)
        known, since = self._condition or (None, "")
        if self._may_recover(wanted, known, now_s):
            if known is None:
                return
            wanted = known
        if known and (wanted.status, wanted.reason) == (known.status, known.reason):
            pace_s = self.options.heartbeat_s if wanted == known else self.options.message_s
            if not self._is_due(self._condition_s + pace_s, now_s):
                return
        now, is_transition = rfc3339(time.time()), known is None or known.status != wanted.status
        if is_transition or not since:
            since = now
        body = {"status": {"conditions": [wanted.to_json(since, now)]}}
        answer = await self.client.strategic_patch(NODES, self.view.node_name, body, subresource="status")
        if is_transition:
            self.transitioned(wanted)
        self._condition, self._condition_s, self._written_s = (wanted, since), now_s, now_s
        self._due_s.append(now_s + self.options.heartbeat_s)
        self._take(answer)

    def _may_recover(self, wanted: Condition, known: Condition | None, now_s: float) -> bool:
        """Whether criproxy has seemed unwell for so short a time that the condition does not say so yet."""
        if wanted.reason in AT_ONCE or (known and known.status == wanted.status):
            self._unwell_s = None
            return False
        if self._unwell_s is None:
            self._unwell_s = now_s
        return not self._is_due(self._unwell_s + self.options.grace_s, now_s)

    def _is_due(self, at_s: float, now_s: float) -> bool:
        """Whether *at_s* has come; if not, everything is looked at again then."""
        if now_s < at_s:
            self._due_s.append(at_s)
        return now_s >= at_s

    async def _remove_taint(self) -> None:
        """Remove the startup taint if all is well; other taints that somebody sets meanwhile are not lost."""
        name = self.view.node_name
        if not self.options.taint or condition_of(self.view.last, self.view.problem) != WELL:
            return
        for tried in range(MOST_TRIES):
            if (others := without_taint(self._taints)) is None:
                return
            body = {"metadata": {"resourceVersion": self._resource_version}, "spec": {"taints": others or None}}
            try:
                self._take(await self.client.merge_patch(NODES, name, body))
                self._written_s = asyncio.get_running_loop().time()
                self.log.info("the startup taint is removed: pods may come to this node", taint=TAINT)
                return
            except Conflict:
                if tried == MOST_TRIES - 1:
                    raise
            await asyncio.sleep(self.options.retries_s[0] * random.uniform(0, 0.1 * (tried + 1)))
            if (found := await self.client.get(NODES, name)) is None:
                return
            self._take(found)

    async def _write_metadata(self, there: Object) -> None:
        """Apply labels and annotation; where another manager has one of the labels, it has all of them."""
        now_s = asyncio.get_running_loop().time()
        wanted = metadata_of(self.view.last, self._owned, there, labels=self.options.labels)
        if not wanted.labels:
            self.troubles.set("node-labels-of-others", "")
        elif not self._is_due(self._conflict_s + self.options.conflict_s, now_s):
            wanted = replace(wanted, labels={})
        repair_at_s = self._owned_s + self.options.repair_s
        if wanted == self._owned and (wanted.is_in(there) or not self._is_due(repair_at_s, now_s)):
            return
        metadata: Object = {"name": self.view.node_name, "uid": self._uid}  # with a UID, the server makes no Node
        for key, values in (("labels", wanted.labels), ("annotations", wanted.annotations)):
            metadata |= {key: dict(values)} if values else {}
        try:
            await self.client.apply(NODES, {"metadata": metadata}, force=False)
        except Conflict as error:
            if not wanted.labels:
                raise
            text = f"labels of the cards are not written to the Node, since others write them: {error}"
            self.troubles.set("node-labels-of-others", f"{text}; remove these labels, or use --no-labels")
            self._conflict_s = now_s
            self._due_s.append(now_s)
            return
        if wanted.labels:
            self.troubles.set("node-labels-of-others", "")
        self._owned, self._owned_s, self._written_s = wanted, now_s, now_s
