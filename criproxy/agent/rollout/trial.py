"""Brings the NodePolicy of this node into force: carries out what `decide` says, and tells how far it is."""

import operator
import random
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NamedTuple

from criproxy.agent.changes import Changes, any_changed
from criproxy.agent.kubernetes.client import ApiClient
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.objects.node_policy import Object
from criproxy.agent.objects.placement import RolloutState
from criproxy.agent.rollout.choose import Choice, choose
from criproxy.agent.rollout.decide import decide, failed, learned
from criproxy.agent.rollout.situation import Action, Daemon, Memory, Pace, Situation, Step
from criproxy.agent.rollout.slots import Turns
from criproxy.agent.rollout.steps import MOST_CHARACTERS, Steps, now_s, said_by
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded_text
from criproxy.process.logger import Log
from criproxy.process.tasks import wait_at_most

FRESH_S = 30.0
"""How long an object that this node has read or written itself may be newer than the watch."""
SHORTEST_WAIT_S = 0.01
"""More than the clock's resolution, so that a moment that is almost there is not waited for again and again."""


class Followed(NamedTuple):
    """The objects that a rollout follows."""

    policies: Watched
    """All NodePolicies."""
    node: Watched
    """The Node of this machine, its metadata."""
    placement: Watched
    """The NodePlacement of this node."""


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A NodePolicy that this node has read or written itself."""

    obj: Object | None
    """None: it was deleted."""
    instead_of: Object | None
    """What the watch had then."""
    until_s: float


@dataclass(slots=True, repr=False, eq=False)
class Rollout(Changes):
    """Brings NodePolicies into force on one node.

    Args:
        client: of the API server.
        daemon: what the daemon says, and takes.
        followed: the objects that matter.
        namespace: of the Leases.
        troubles: gets what cannot be done now.
        log: a structlog logger.
        pace: times and rates.
    """

    client: ApiClient
    daemon: NodeView
    followed: Followed
    _: KW_ONLY
    namespace: str
    troubles: Troubles
    log: Log
    pace: Pace = field(default_factory=Pace)
    _steps: Steps = field(init=False)
    _memory: Memory = field(default_factory=Memory)
    _labels: Mapping[str, str] | None = None
    _said: RolloutState | None = None
    _ends: tuple[object, float] = (None, 0.0)
    """The try that goes on, and when it ends, on the monotonic clock."""
    _fresh: dict[str, _Fresh] = field(default_factory=dict)
    _chosen: tuple[Sequence[Object], object, Choice | None] = ((), None, None)
    """NodePolicies, labels, and what follows from them."""

    def __post_init__(self) -> None:
        turns = Turns(self.client, self.namespace, self.daemon.node_name, self.pace)
        self._steps = Steps(self.client, self.daemon, turns, self._use, self.pace, self.log)

    @property
    def state(self) -> RolloutState | None:
        """How far this node is; None before its NodePlacement was read, which must not be overwritten until then."""
        return self._memory.state if self._memory.has_read else None

    def why_back(self, policy_hash: str) -> str:
        """Return why the policy with this hash was rolled back on this node; empty if it was not."""
        state = self._memory.state
        return state.message if (state.phase, state.hash) == ("RolledBack", policy_hash) else ""

    async def run(self) -> None:
        """Follow the NodePolicies, for ever."""
        sources: tuple[Changes, ...] = (self.daemon, *self.followed)
        while True:
            seen = [each.version for each in sources]
            now = self._situation()
            step = decide(now, self._memory, self.pace)
            self._remember(step.memory)
            if step.action is Action.WAIT:
                wait_s = None if step.wake_s is None else max(SHORTEST_WAIT_S, step.wake_s - now_s())
                await wait_at_most(wait_s, any_changed(sources, seen))
            else:
                await self._act(step, now)

    def _situation(self) -> Situation:
        policies, node, placement = self.followed
        at_s, name = now_s(), self.daemon.node_name
        metadata = (node.objects.get(name) or {}).get("metadata") or {}
        if metadata and (labels := metadata.get("labels") or {}) != self._labels:
            self._labels = labels
        if self._said is None and placement.known:
            self._said = said_by(placement.objects.get(name))
        known = policies.known and self._labels is not None
        return Situation(
            now_s=at_s,
            node=name,
            daemon=self._daemon_now(at_s),
            choice=self._choice(at_s) if known else None,
            is_current=known and policies.served and node.known and not (policies.problem or node.problem),
            node_uid=str(metadata.get("uid") or ""),
            said=self._said,
        )

    def _daemon_now(self, at_s: float) -> Daemon | None:
        """Return what the daemon says, with the time that is left of a try: what was said first of it counts down."""
        if self.daemon.last is None or self.daemon.problem:
            return None
        daemon = Daemon.read(self.daemon.last)
        if daemon.try_left_s is None:
            self._ends = (None, 0.0)
            return daemon
        this, ends_s = (daemon.source, daemon.hash, daemon.try_until), at_s + daemon.try_left_s
        self._ends = (this, min(ends_s, self._ends[1]) if self._ends[0] == this else ends_s)
        return replace(daemon, try_left_s=max(0.0, self._ends[1] - at_s))

    def _objects(self, at_s: float) -> dict[str, Object]:
        """Return the NodePolicies; of each the newer one of what the watch has and what this node has read itself."""
        objects = dict(self.followed.policies.objects)
        for name, fresh in list(self._fresh.items()):
            watched = objects.get(name)
            if at_s >= fresh.until_s or not (watched is fresh.instead_of or _is_older(watched, fresh.obj)):
                del self._fresh[name]
            elif fresh.obj is None:
                objects.pop(name, None)
            else:
                objects[name] = fresh.obj
        return objects

    def _choice(self, at_s: float) -> Choice:
        """Return which NodePolicy is for this node; it is worked out only once for the same objects and labels."""
        objects, labels = [*self._objects(at_s).values()], self._labels or {}
        before, of_labels, choice = self._chosen
        same = of_labels is labels and len(before) == len(objects) and all(map(operator.is_, before, objects))
        if not same or choice is None:
            choice = choose(objects, labels)
            self._chosen = (objects, labels, choice)
        return choice

    def _use(self, name: str, obj: Object | None) -> None:
        """Take *obj* for the NodePolicy *name*, until the watch has something newer."""
        watched = self.followed.policies.objects.get(name)
        self._fresh[name] = _Fresh(obj, watched, now_s() + FRESH_S)

    def _remember(self, memory: Memory) -> None:
        before, self._memory = self._memory, memory
        state = memory.state
        mistakes = "; ".join(choice.mistakes) if (choice := self._chosen[2]) else ""
        sentence, wrong = _trouble(memory)
        self.troubles.set("rollout", "" if sentence == mistakes else sentence, wrong=wrong)
        self.troubles.set("nodepolicies", mistakes, wrong=True)
        if (state, memory.has_read) != (before.state, before.has_read):
            if state.phase != before.state.phase:
                names = {"policy": state.policy_name, "generation": state.generation, "hash": state.hash}
                self.log.info("rollout", phase=state.phase, **names, reason=state.message)
            self.notify()

    async def _act(self, step: Step, now: Situation) -> None:
        """Carry out what was decided, and remember the outcome."""
        try:
            answer = await self._steps.take(step, now)
        except CriproxyError as error:
            text = bounded_text(str(error), MOST_CHARACTERS)
            self.log.warning("rollout: a step has failed", step=step.action.value, reason=text)
            luck = random.random()
            self._remember(failed(self._memory, step.action, text, now_s(), self.pace, luck))
        else:
            self._remember(learned(self._memory, answer, step.action))


def _is_older(watched: Object | None, fresh: Object | None) -> bool:
    """Whether the watch has an earlier version of the same object."""
    if watched is None or fresh is None or watched["metadata"].get("uid") != fresh["metadata"].get("uid"):
        return False
    versions = [str(each["metadata"].get("resourceVersion")) for each in (watched, fresh)]
    return all(map(str.isdecimal, versions)) and int(versions[0]) < int(versions[1])


def _trouble(memory: Memory) -> tuple[str, bool]:
    """Return what to say on the node, and whether the node is not well because of it."""
    state = memory.state
    of = f"NodePolicy {state.policy_name}"
    if state.phase == "Refused":
        return f"{of} cannot be used on this node: {state.message}", True
    if state.phase == "RolledBack":
        return f"{of} was tried on this node, and the former configuration is back: {state.message}", False
    if memory.failed not in (None, Action.CHECK, Action.TRY):
        return f"{of}: {memory.error}" if state.policy_name else memory.error, False
    return ("", False) if state.phase else (state.message, False)
