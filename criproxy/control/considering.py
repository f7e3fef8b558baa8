"""Works out what `criproxy explain` shows of a decision beside its reasons: the candidates, and who is in the way.

Never on the way of a call: a node is a value that nobody changes, so the same question can be asked of the policy
later, in a thread, when nothing has been decided for a moment. The answer goes into the history as a record of its own.
What is lost where the process is killed before that is the table, not the decision or its reasons.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from time import time
from typing import Any

from criproxy.control.settings import Log
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerCreating, ContainerResized, Event
from criproxy.engine.guard import Guarded
from criproxy.engine.keeping import with_keepers
from criproxy.engine.leavers import Leavers, leavers
from criproxy.engine.step import placing
from criproxy.errors import NotEnough
from criproxy.model.node import Node
from criproxy.model.plain import to_plain
from criproxy.model.workload import Container
from criproxy.policy.api import Policy, candidates_of
from criproxy.policy.candidates import Candidates

QUIET_S, LATEST_S = 0.2, 2.0
"""Decisions are looked at again when none has been made for so long, but not later than that."""
MAX_WAITING = 256
"""Decisions that wait for it; of more the oldest are not looked at again."""
MAX_REMEMBERED = 32_000
"""Containers in the nodes that these hold, each counted once for each of them: it takes 80 bytes in each."""
TOGETHER = 16
"""So many are looked at by one visit to a thread."""
MAX_ROWS, MAX_FACTS = 12, 3_500
"""Candidates, and names of those who would have to leave, that are kept of a decision; and characters of them all."""
PATIENCE_S = 2.0
"""How long somebody who asks for the history waits for the last decisions to be looked at."""


class Decided(Enum):
    """What a decision was."""

    PLACED = "placed"
    REFUSED = "refused"
    RESIZED = "resized"
    NOT_RESIZED = "resize refused"
    NOW = "now"
    """None: it is what would be compared at this moment."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a decision was chosen from."""

    decided: Decided
    candidates: Candidates | None = None
    leavers: Leavers | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON says it, in at most `MAX_FACTS` characters."""
        for rows in range(MAX_ROWS, 0, -1):
            candidates, leaving = self.candidates, self.leavers
            kept = Choice(self.decided, candidates and candidates.first(rows), leaving and leaving.first(rows))
            facts: dict[str, Any] = to_plain(kept)
            if len(json.dumps(facts)) <= MAX_FACTS:
                return facts
        return to_plain(Choice(self.decided))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Considered:
    """A choice of one container."""

    about: Container
    at_s: float
    """When it was made, in seconds since the epoch."""
    choice: Choice


@dataclass(frozen=True, slots=True)
class _Question:
    """A decision to be looked at again."""

    before: Node
    event: ContainerCreating | ContainerResized
    policy: Policy
    at_s: float
    refused: bool


class Considering:
    """The decisions that have not been looked at again so far. For the event loop's thread.

    Args:
        told: gets what was found out.
        log: told of policies that fail at it.
    """

    def __init__(self, told: Callable[[Considered], None], log: Log) -> None:
        self._told = told
        self._log = log
        self._waiting: dict[tuple[str, str], _Question] = {}
        """Of a create that is tried again at once, the last try counts."""
        self._timer: asyncio.TimerHandle | None = None
        self._first_s = self._last_s = 0.0
        """When the first and the last of those that wait were heard of, on the loop's clock."""
        self._work: asyncio.Task[None] | None = None
        self._closing = False

    def hear(self, before: Node, event: Event, policy: Policy, result: Decision | Exception) -> None:
        """Remember a decision that *policy* made about one container; cheap, and nothing of other events."""
        refused = isinstance(result, NotEnough)
        if not isinstance(event, ContainerCreating | ContainerResized) or not (refused or isinstance(result, Decision)):
            return
        # `isinstance` with a protocol takes longer than all the rest here.
        if refused and isinstance(event, ContainerResized) and _was_refused(before, event):
            return  # the kubelet repeats it every second
        if before.released or not (refused or hasattr(policy, "candidates")):
            return
        name = _name(event)
        self._waiting.pop(name, None)
        self._waiting[name] = _Question(before, event, policy, time(), refused)
        room = min(MAX_WAITING, MAX_REMEMBERED // (len(before.containers) + 1))
        while len(self._waiting) > max(room, 1):
            del self._waiting[next(iter(self._waiting))]
        self._last_s = asyncio.get_running_loop().time()
        if self._timer is None:
            self._first_s = self._last_s
            self._when_quiet()

    async def settled(self) -> None:
        """Return when what has been heard so far is told, or after `PATIENCE_S`."""
        self._begin()
        if self._work is not None:
            await asyncio.wait([self._work], timeout=PATIENCE_S)

    async def close(self) -> None:
        """Tell what can be told quickly: nobody searches for who would have to leave any more."""
        self._closing = True
        self._begin()
        if self._work is not None:
            await self._work

    def _when_quiet(self) -> None:
        """Begin, unless something has been decided just now; who decides does not set a timer each time."""
        loop = asyncio.get_running_loop()
        due_s = min(self._last_s + QUIET_S, self._first_s + LATEST_S)
        if loop.time() < due_s:
            self._timer = loop.call_at(due_s, self._when_quiet)
        else:
            self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._work is None:
            self._work = asyncio.create_task(self._consider(), name="consider decisions")

    async def _consider(self) -> None:
        try:
            while self._waiting:
                some = [self._waiting.pop(key) for key in list(self._waiting)[:TOGETHER]]
                for answer in await asyncio.to_thread(self._answers, some):
                    if isinstance(answer, Considered):
                        self._told(answer)
                    else:
                        self._log.warning("a decision cannot be explained", exc_info=answer)
        finally:
            self._work = None

    def _answers(self, questions: Sequence[_Question]) -> list[Considered | Exception]:
        found = list[Considered | Exception]()
        for question in questions:
            try:
                answer = _answer(question, search=not self._closing)
            except Exception as error:  # noqa: BLE001 (whatever a policy does here, it has decided before)
                found.append(error)
            else:
                found += [answer] if answer else []
        return found


def _was_refused(before: Node, event: ContainerResized) -> bool:
    """Whether the same size has been refused before."""
    container = before.containers.get(event.key)
    return container is not None and container.desired is not None and container.desired.sizes == event.sizes


def _answer(question: _Question, *, search: bool) -> Considered | None:
    found = weighed(question.before, question.event, question.policy, refused=question.refused, search=search)
    return Considered(found[0], question.at_s, found[1]) if found else None


def weighed(
    before: Node, event: Event, policy: Policy, *, refused: bool, search: bool = True
) -> tuple[Container, Choice] | None:
    """What a decision was chosen from; None where nothing was chosen.

    Args:
        before: the node as it was.
        event: what was decided about.
        policy: who decided.
        refused: whether it refused.
        search: whether to look for those who would have to leave, if it did.
    """
    policy = policy.tried() if isinstance(policy, Guarded) else policy
    asked = placing(before, event, policy)
    if asked is None:
        return None
    candidates = candidates_of(policy, *asked)
    leaving = leavers(with_keepers(asked[0], before), asked[1], policy) if refused and search else None
    if candidates is None and leaving is None:
        return None
    return asked[1], Choice(_decided(event, refused=refused), candidates, leaving)


def _decided(event: Event, *, refused: bool) -> Decided:
    if isinstance(event, ContainerResized):
        return Decided.NOT_RESIZED if refused else Decided.RESIZED
    return Decided.REFUSED if refused else Decided.PLACED


def _name(event: ContainerCreating | ContainerResized) -> tuple[str, str]:
    if isinstance(event, ContainerCreating):
        return event.container.pod, event.container.name
    return event.key, ""
