"""Brings the NodePolicy of this node into force: carries out what `decide` says, and tells how far it is."""

import asyncio
import operator
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, get_args

from criproxy.agent.changes import Changes, Changing, any_changed
from criproxy.agent.kubernetes.client import NODE_PLACEMENTS, NODE_POLICIES, NODES, ApiClient
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.objects.node_policy import MAX_TRY_S, NodePolicy, Object
from criproxy.agent.objects.placement import Phase, RolloutState
from criproxy.agent.rollout.choose import Choice, choose
from criproxy.agent.rollout.decide import decide, failed, learned
from criproxy.agent.rollout.situation import (
    SOURCE,
    Action,
    Daemon,
    Expected,
    Memory,
    Pace,
    Situation,
    Step,
    Turn,
    Verdict,
)
from criproxy.agent.rollout.slots import Turns
from criproxy.agent.rollout.status import StatusWriter
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded_text
from criproxy.process.logger import Log
from criproxy.process.tasks import wait_at_most

FRESH_S = 30.0
"""How long an object that this node has read or written itself may be newer than the watch."""
SHORTEST_WAIT_S = 0.01
"""More than the clock's resolution, so that a moment that is almost there is not waited for again and again."""
MOST_CHARACTERS = 500


class DaemonClient(Changing, Protocol):
    """`NodeView`, as far as a rollout needs it."""

    last: Mapping[str, Any] | None
    problem: str
    node_name: str

    async def ask(self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 60.0) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to a command; raise `CriproxyError`."""
        ...


class Sayings(Protocol):
    """`Troubles`, as far as a rollout needs it."""

    def set(self, part: str, sentence: str, *, wrong: bool = False) -> None:
        """Set what a part of the agent cannot do now."""
        ...


@dataclass(frozen=True, slots=True)
class Followed:
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

    def __init__(
        self,
        client: ApiClient,
        daemon: DaemonClient,
        followed: Followed,
        *,
        namespace: str,
        troubles: Sayings,
        log: Log,
        pace: Pace | None = None,
    ) -> None:
        super().__init__()
        self._client, self._daemon, self._followed = client, daemon, followed
        self._troubles, self._log, self._pace = troubles, log, pace or Pace()
        self._turns = Turns(client, namespace, daemon.node_name, self._pace)
        self._status = StatusWriter(client)
        self._memory = Memory()
        self._labels: Mapping[str, str] | None = None
        self._said: RolloutState | None = None
        self._ends: tuple[object, float] = (None, 0.0)
        """The try that goes on, and when it ends, on the monotonic clock."""
        self._fresh: dict[str, _Fresh] = {}
        self._chosen: tuple[Sequence[Object], object, Choice | None] = ((), None, None)
        """NodePolicies, labels, and what follows from them."""

    @property
    def state(self) -> RolloutState | None:
        """How far this node is; None before its NodePlacement was read, which must not be overwritten until then."""
        return self._memory.state if self._memory.has_read else None

    async def run(self) -> None:
        """Follow the NodePolicies, for ever."""
        sources: tuple[Changing, ...] = (
            self._daemon,
            self._followed.policies,
            self._followed.node,
            self._followed.placement,
        )
        while True:
            seen = [each.version for each in sources]
            now = self._situation()
            step = decide(now, self._memory, self._pace)
            self._remember(step.memory)
            if step.action is Action.WAIT:
                wait_s = None if step.wake_s is None else max(SHORTEST_WAIT_S, step.wake_s - _now_s())
                await wait_at_most(wait_s, any_changed(sources, seen))
            else:
                await self._act(step, now)

    def _situation(self) -> Situation:
        policies, node, placement = self._followed.policies, self._followed.node, self._followed.placement
        now_s, name = _now_s(), self._daemon.node_name
        metadata = (node.objects.get(name) or {}).get("metadata") or {}
        if metadata and (labels := metadata.get("labels") or {}) != self._labels:
            self._labels = labels
        if self._said is None and placement.known:
            self._said = _said_by(placement.objects.get(name))
        known = policies.known and self._labels is not None
        return Situation(
            now_s=now_s,
            node=name,
            daemon=self._daemon_now(now_s),
            choice=self._choice(now_s) if known else None,
            is_current=known and policies.served and node.known and not (policies.problem or node.problem),
            node_uid=str(metadata.get("uid") or ""),
            said=self._said,
        )

    def _daemon_now(self, now_s: float) -> Daemon | None:
        """Return what the daemon says, with the time that is left of a try: what was said first of it counts down."""
        if self._daemon.last is None or self._daemon.problem:
            return None
        daemon = Daemon.read(self._daemon.last)
        if daemon.try_left_s is None:
            self._ends = (None, 0.0)
            return daemon
        this, ends_s = (daemon.source, daemon.hash, daemon.try_until), now_s + daemon.try_left_s
        self._ends = (this, min(ends_s, self._ends[1]) if self._ends[0] == this else ends_s)
        return replace(daemon, try_left_s=max(0.0, self._ends[1] - now_s))

    def _objects(self, now_s: float) -> dict[str, Object]:
        """Return the NodePolicies; of each the newer one of what the watch has and what this node has read itself."""
        objects = dict(self._followed.policies.objects)
        for name, fresh in list(self._fresh.items()):
            watched = objects.get(name)
            if now_s >= fresh.until_s or not (watched is fresh.instead_of or _is_older(watched, fresh.obj)):
                del self._fresh[name]
            elif fresh.obj is None:
                objects.pop(name, None)
            else:
                objects[name] = fresh.obj
        return objects

    def _choice(self, now_s: float) -> Choice:
        """Return which NodePolicy is for this node; it is worked out only once for the same objects and labels."""
        objects, labels = [*self._objects(now_s).values()], self._labels or {}
        before, of_labels, choice = self._chosen
        same = of_labels is labels and len(before) == len(objects) and all(map(operator.is_, before, objects))
        if not same or choice is None:
            choice = choose(objects, labels)
            self._chosen = (objects, labels, choice)
        return choice

    def _use(self, name: str, obj: Object | None) -> None:
        """Take *obj* for the NodePolicy *name*, until the watch has something newer."""
        watched = self._followed.policies.objects.get(name)
        self._fresh[name] = _Fresh(obj, watched, _now_s() + FRESH_S)

    def _remember(self, memory: Memory) -> None:
        before, self._memory = self._memory, memory
        state = memory.state
        sentence, wrong = _trouble(memory)
        self._troubles.set("rollout", sentence, wrong=wrong)
        if (state, memory.has_read) != (before.state, before.has_read):
            if state.phase != before.state.phase:
                names = {"policy": state.policy_name, "generation": state.generation, "hash": state.hash}
                self._log.info("rollout", phase=state.phase, **names, reason=state.message)
            self.notify()

    async def _act(self, step: Step, now: Situation) -> None:
        """Carry out what was decided, and remember the outcome."""
        actions: Mapping[Action, Callable[[Step, Situation], Awaitable[Verdict | Turn | Expected | None]]] = {
            Action.CHECK: self._check,
            Action.BEGIN: self._begin,
            Action.TAKE: self._take,
            Action.CONFIRM: self._confirm,
            Action.TRY: self._try,
            Action.KEEP: self._keep,
            Action.BACK: self._back,
            Action.TO_FILE: self._to_file,
            Action.RECORD: self._record,
            Action.LEAVE: self._leave,
        }
        try:
            answer = await actions[step.action](step, now)
        except CriproxyError as error:
            self._turns.forget()
            text = bounded_text(str(error), MOST_CHARACTERS)
            self._log.warning("rollout: a step has failed", step=step.action.value, reason=text)
            luck = random.random()  # noqa: S311 (no secret)
            self._remember(failed(self._memory, step.action, text, _now_s(), self._pace, luck))
        else:
            self._remember(learned(self._memory, answer, step.action))

    async def _check(self, _: Step, now: Situation) -> Verdict:
        policy, daemon = _policy(now), now.daemon
        assert daemon is not None
        found = await self._daemon.ask("reload-dry-run", _file(policy))
        mistakes = [] if found["accepted"] else found["mistakes"] or ["the daemon does not say why"]
        return Verdict(
            about=(policy.hash, daemon.hash, daemon.instance),
            until_s=_now_s() + self._pace.again_s,
            refusal=bounded_text("; ".join(map(str, mistakes)), MOST_CHARACTERS),
            is_same=bool(found["same"]),
        )

    async def _begin(self, _: Step, now: Situation) -> None:
        policy = _policy(now)
        self._use(policy.name, await self._status.begin(policy))

    async def _take(self, step: Step, now: Situation) -> Turn:
        return await self._turns.take(_policy(now), step.memory.turn.excused)

    async def _confirm(self, step: Step, now: Situation) -> Turn:
        policy = _policy(now)
        self._use(policy.name, await self._client.get(NODE_POLICIES, policy.name))
        return replace(step.memory.turn, confirmed=(policy.generation, policy.hash))

    async def _try(self, _: Step, now: Situation) -> Expected:
        policy = _policy(now)
        time_s = min(policy.spec.rollout.try_s + self._pace.keep_before_s, MAX_TRY_S)
        self._log.info("rollout: a NodePolicy is tried", policy=policy.name, hash=policy.hash, for_s=time_s)
        await self._daemon.ask("reload-try", {**_file(policy), "time_s": time_s})
        return self._expected(policy.hash, is_trying=True)

    async def _keep(self, _: Step, now: Situation) -> Expected:
        assert now.daemon is not None
        await self._daemon.ask("reload-keep", {"hash": now.daemon.hash})
        return self._expected(now.daemon.hash, is_trying=False)

    async def _back(self, _: Step, now: Situation) -> Expected:
        assert now.daemon is not None
        await self._daemon.ask("reload-back", {"hash": now.daemon.hash})
        return self._expected("", is_trying=False)

    async def _to_file(self, _: Step, __: Situation) -> Expected:
        await self._daemon.ask("reload")
        return self._expected("", is_trying=False)

    def _expected(self, hash_: str, *, is_trying: bool) -> Expected:
        return Expected(hash_, is_trying, _now_s() + self._pace.settle_s)

    async def _record(self, step: Step, now: Situation) -> Turn | None:
        policy = _policy(now)
        if step.about != now.node and await self._is_excused(policy, step.about):
            return replace(step.memory.turn, excused=step.about)
        self._use(policy.name, await self._status.record(policy, step.about, step.text))
        return None

    async def _is_excused(self, policy: NodePolicy, node: str) -> bool:
        """Whether a node need not give up its turn: it does not exist any more, or has kept the policy."""
        said = _said_by(await self._client.get(NODE_PLACEMENTS, node))
        if (said.phase, said.generation, said.hash) == ("Applied", policy.generation, policy.hash):
            return True
        return await self._client.get(NODES, node, metadata_only=True) is None

    async def _leave(self, _: Step, now: Situation) -> Turn:
        return await self._turns.leave(now.choice.policy if now.choice else None)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _said_by(placement: Object | None) -> RolloutState:
    """Return what this node had written before the agent started; nothing is said by what cannot be read."""
    said = ((placement or {}).get("status") or {}).get("rollout") or {}
    generation = said.get("generation")
    phase: Phase | None = next((each for each in get_args(Phase) if each == said.get("phase")), None)
    if not isinstance(generation, int) or phase is None:
        return RolloutState()
    texts = {key: str(said.get(key) or "") for key in ("policy", "hash", "message")}
    return RolloutState(texts["policy"], generation, texts["hash"], phase, texts["message"])


def _policy(now: Situation) -> NodePolicy:
    assert now.choice is not None
    assert now.choice.policy is not None
    return now.choice.policy


def _file(policy: NodePolicy) -> dict[str, str]:
    """Return a policy as the daemon takes it."""
    return {"text": policy.text, "source": SOURCE + policy.name}


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
