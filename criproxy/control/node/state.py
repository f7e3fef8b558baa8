"""The current state of the node, and the only way to change it: one event after the other, each at once, in memory.

What is told of that follows in the `Outbox`, and the `Persister` brings the newest node to the disk. Who may not act on
a decision before it is there awaits `Persister.durable`: docs/decisions/0038 says who that is, and why nobody else.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter, time

from criproxy.control.node.history import History
from criproxy.control.node.outbox import Heard, Outbox
from criproxy.control.node.persister import Persister
from criproxy.control.node.policy_failures import Asking
from criproxy.control.node.refusals import Refusals
from criproxy.engine.decision import Decision, Step
from criproxy.engine.events import (
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    Event,
    NodeEvent,
    PolicyChanged,
    can_be_refused,
    is_reservation,
    kind_of,
)
from criproxy.engine.fallback import Fallback
from criproxy.engine.history import Entry
from criproxy.engine.step import step
from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.notices import Refusal
from criproxy.model.record import Fact, Kind, Record
from criproxy.model.workload import Container, ContainerState, Miss, Missed
from criproxy.observe.counters import Counters
from criproxy.observe.ending import PART_S
from criproxy.observe.failures import Failures
from criproxy.observe.logger import Log
from criproxy.observe.tasks import OnDemand, Tasks
from criproxy.policy.api import Policy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import options_of

FULL_ID = 64
"""Characters of the ids that runtimes give: what is so long is no beginning of another."""
MANY = 50
"""With more containers, events about the whole node are worked out beside the event loop: they take milliseconds."""

Words = tuple[tuple[str, ...], dict[str, Fact]]
"""Sentences for people, and the same as facts for programs."""

Followed = Callable[[Event, Node, "asyncio.Future[Decision]"], None]
"""Gets an event, the node at which it was submitted, and its future, which is done."""


@dataclass(frozen=True, slots=True)
class _Job:
    """An event to be applied."""

    event: Event
    done: "asyncio.Future[Decision]"
    policy: Policy | None
    asking: Asking = field(default_factory=Asking)


class NodeState:
    """Steps the node: event in, decision out.

    Args:
        node: the state to begin with, as the store has it.
        policy: asked by the engine.
        persister: keeps each new state; `close` ends it.
        counters: decisions are counted here.
        log: told of each decision.
        failures: told of what fails here without being anybody's answer.
        tasks: those of *persister*, which ends them.
    """

    def __init__(
        self,
        node: Node,
        policy: Policy,
        persister: Persister,
        counters: Counters,
        log: Log,
        failures: Failures,
        tasks: Tasks,
    ) -> None:
        self.node = node
        self.bypassed = False
        """Newcomers share and nobody moves, without asking the policy or waiting for the disk."""
        self.policy = policy
        """Asked about what is submitted now, if nothing waits: another one comes into force in the order of events."""
        self.followed: Followed | None = None
        """Called when an event has been decided, to carry the decision out; set once, by who does that."""
        self._counters = counters
        self._failures = failures
        self._log = log
        self._persister = persister
        self._refusals = Refusals()
        self._history = History(self._refusals)
        self._outbox = Outbox(persister.add, self._history, log, failures, tasks)
        self._behind: deque[_Job] = deque()
        """An event about the whole node that is worked out in a thread, and those that came after it."""
        self._gate = OnDemand(tasks, "decide about the whole node", self._pass_gate)
        self._changed = asyncio.Event()

    def submit(self, event: Event, policy: Policy | None = None) -> "asyncio.Future[Decision]":
        """Step the node by *event*: at once, unless it, or one before it, is about a whole node with many containers.

        Args:
            event: what happened or is about to.
            policy: with a `PolicyChanged`: asked about this event and all that are submitted later.

        The future raises:
            Refused: the policy has no place, or does not understand what is asked; the node is as before.
            PolicyFailed: the policy is at fault; the node and the policy are as before. Only for what can still be
                refused, a new policy included.
            StoreError: the disk is known to fail, and nobody gets a place that cannot be stored; the node is as before.
        """
        job = _Job(event, asyncio.get_running_loop().create_future(), policy)
        if self.followed is not None:
            job.done.add_done_callback(partial(self.followed, event, self.node))
        if self._behind or self._is_large(event):
            self._behind.append(job)
            self._gate.now()
        else:
            self._book(job, self._stepped(job))
        return job.done

    async def apply(self, event: Event) -> Decision:
        """Submit *event* and wait for the decision, which comes even if this wait is cancelled."""
        done = self.submit(event)
        if not is_reservation(event):  # that is a call; of anything else there may be many in a row
            await asyncio.sleep(0)
        return done.result() if done.done() else await asyncio.shield(done)

    async def end(self, event: ContainerExited | ContainerGone, how: str) -> None:
        """Apply an end that no call told but *how* (as in `Counters.exits`); it is counted once, whoever else tells."""
        container = self.node.containers.get(event.key)
        if container and container.state is not ContainerState.EXITED and not self.is_ending(event.key):
            with self._failures.harmless("a count"):
                self._counters.exits[how] += 1
        await self.apply(event)

    def listen(self, heard: Heard | None) -> Node:
        """Let *heard* be told of every event and what came of it, in place of who was before; None ends that.

        Returns:
            The node before the first of the events that will be told.
        """
        self._outbox.drain()
        self._outbox.heard = heard
        return self.node

    async def settled(self, timeout_s: float | None = None) -> None:
        """Return when all events submitted so far have been done, or in time; what is only written does not count."""
        if self._behind:
            await asyncio.wait([self._behind[-1].done], timeout=timeout_s)

    def is_ending(self, key: str) -> bool:
        """Whether the end of the container *key* is on its way: submitted, and not done yet."""
        ends = (job.event for job in self._behind if isinstance(job.event, ContainerExited | ContainerGone))
        return any(event.key == key for event in ends)

    async def flush(self) -> None:
        """Return when everything has been done and told, and is on disk or the disk is known to fail."""
        await self.settled()
        self._outbox.drain()
        await self._persister.flush()

    async def close(self) -> None:
        """Return when everything has been done and, if that is possible, stored; nothing may come after."""
        await self.settled(PART_S)
        if self._behind:  # the runtime is asked at the next start
            self._log.error("decisions are lost: a policy has not decided", decisions=len(self._behind))
        await self._outbox.close()
        await self._persister.close()

    def note(self, about: Container | str | None, kind: Kind, /, *sentences: str, **facts: Fact) -> None:
        """Tell the history about a container; it is written soon.

        Args:
            about: the container or its key; one that is not known any more is left out. None: the whole node.
            kind: what happened.
            sentences: the same for people, without the container's name.
            facts: the same for programs: units in the names, sets in kernel notation.
        """
        container = self.node.containers.get(about) if isinstance(about, str) else about
        if container is not None or about is None:
            self._outbox.put(Entry(container, kind, sentences, facts, time()))

    def note_later(self, about: Container, kind: Kind, put_into_words: Callable[[], Words]) -> None:
        """The same for what a call must not wait for: *put_into_words* gives sentences and facts afterwards."""
        at_s = time()
        self._outbox.put(lambda: Entry(about, kind, *put_into_words(), at_s))

    def refusals(self) -> list[Refusal]:
        """Who cannot be created at present, the newest first."""
        self._outbox.drain()
        return self._refusals.listed()

    def refusals_omitted(self) -> int:
        """How many more cannot be created than `refusals` has."""
        self._outbox.drain()
        return self._refusals.omitted()

    def refused_in(self) -> set[str]:
        """The sandboxes of those who cannot be created at present."""
        self._outbox.drain()
        refused = set[str]()
        with self._failures.harmless("who was refused"):
            refused |= self._refusals.sandboxes()
        return refused

    def forget_refused(self, sandboxes: Collection[str]) -> None:
        """These *sandboxes* are gone, and whoever was refused in them with them."""
        self._outbox.drain()
        with self._failures.harmless("who was refused"):
            self._refusals.forget(sandboxes)

    async def find_history(self, text: str) -> list[Record]:
        """The history of all containers that *text* may mean; raises StoreError."""
        await self._outbox.settled()
        await self.flush()
        return await self._persister.find(text)

    async def history_since(self, after: int, without: Iterable[Kind]) -> tuple[list[Record], int]:
        """The newest records after number *after*, and the number of the last one; raises StoreError."""
        await self._outbox.settled()
        await self.flush()
        return await self._persister.since(after, without)

    async def changed(self) -> None:
        """Return after the next change of the node, or of what is known about it."""
        await self._changed.wait()

    def stir(self) -> None:
        """Let those who wait for a change look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def resolve(self, container_id: str) -> str:
        """The key of the container with that id or, as the runtime allows, with an id that begins so."""
        return _resolve(self.node.containers, container_id)

    def resolve_pod(self, sandbox_id: str) -> str:
        """The key of the pod with that id or beginning of an id."""
        return _resolve(self.node.pods, sandbox_id)

    def _is_large(self, event: Event) -> bool:
        return isinstance(event, NodeEvent) and len(self.node.containers) > MANY

    async def _pass_gate(self) -> None:
        """Apply what waits, in order; calls that are about no container pass meanwhile."""
        while self._behind:
            job = self._behind[0]
            large = self._is_large(job.event)
            self._book(job, await asyncio.to_thread(self._stepped, job) if large else self._stepped(job))
            self._behind.popleft()
            await asyncio.sleep(0)

    def _stepped(self, job: _Job) -> Step:
        """What comes of an event; the node is as before. May run in a thread."""
        node, event, begun_s, at_s = self.node, job.event, perf_counter(), time()
        result: Decision | Exception
        try:
            result = self._step(node, job)
            if self._persister.error is not None and not self.bypassed and is_reservation(event):
                result = StoreError(str(self._persister.error))
        except Exception as error:  # noqa: BLE001 (it is for whoever submitted the event)
            result = error
        return Step(event, node, result, perf_counter() - begun_s, at_s, None if self.bypassed else self.policy)

    def _book(self, job: _Job, one: Step) -> None:
        """Let everybody see what came of an event."""
        job.asking.report(self._counters, self._failures, self._log)
        if isinstance(one.result, Decision):
            self.policy = job.policy or self.policy
            if one.result.node is not one.before:
                self.node = one.result.node
                self._persister.put(self.node)
                self.stir()
            with self._failures.harmless("a count"):
                self._count(one, one.result)
        _end(job.done, one.result)
        self._outbox.put(one)

    def _count(self, one: Step, decision: Decision) -> None:
        if decision.node is not one.before:
            self._counters.decisions[kind_of(one.event)] += 1
        if can_be_refused(one.event):
            self._counters.decision_times.add(one.took_s)

    def _step(self, node: Node, job: _Job) -> Decision:
        """What the event of *job* leads to; what has happened already counts, whatever the policy does."""
        event = job.event
        if self.bypassed:
            return replace(step(node, _bypassed(event), Fallback(options_of(self.policy))), in_bypass=True)
        asked = job.policy or self.policy
        is_undone = node.released and isinstance(event, PolicyChanged) and not isinstance(asked, NonePolicy)
        if is_undone and self._persister.error is not None:  # nobody newly owns what cannot be stored
            return step(node, event, Fallback(options_of(asked)))
        return job.asking.step(node, event, asked, is_new=job.policy is not None)


def _bypassed(event: Event) -> Event:
    """The *event* during an automatic bypass: who comes, maybe after it waited since before, may be owed a place."""
    if not isinstance(event, ContainerCreating) or event.container.missed:
        return event
    return ContainerCreating(replace(event.container, missed=Missed(why=Miss.BYPASSED, since_s=time())))


def _end(done: "asyncio.Future[Decision]", result: Decision | Exception) -> None:
    if done.done():  # nobody waits any more, or it went on at once
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)


def _resolve(known: Mapping[str, object], given: str) -> str:
    if given in known or not given or len(given) >= FULL_ID:
        return given
    matches = [key for key in known if key.startswith(given)]
    return matches[0] if len(matches) == 1 else given
