"""The current state of the node, and the only way to change it: one event after the other, each at once, in memory.

The `Outbox` logs and records the steps afterwards, and the `Persister` writes the newest node to disk. Callers that
must not act on a decision before it is on disk await `Persister.durable`: see docs/decisions/0038.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter, time

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.record import Fact, Kind, Record
from criproxy.model.text.notices import Refusal
from criproxy.model.workload import SHORT_ID, Container, ContainerState, Miss, Missed
from criproxy.node.counters import Counters
from criproxy.node.record.outbox import EventListener, Outbox
from criproxy.node.record.persister import Persister
from criproxy.node.record.policy_failures import GuardedStep
from criproxy.node.record.refusals import Refusals
from criproxy.placement import events
from criproxy.placement.answers.shortfalls import unplaced_s
from criproxy.placement.decision import Decision, Step
from criproxy.placement.engine import step
from criproxy.placement.options.policy_options import options_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback, NonePolicy
from criproxy.placement.records.history import Entry
from criproxy.process.failures import Failures
from criproxy.process.logger import Log
from criproxy.process.tasks import PART_S, Looks, OnDemand, Tasks
from criproxy.store.history import find, since

FULL_ID = 64
"""Characters of the ids that runtimes assign: an id of this length is not the prefix of another."""
MANY = 50
"""With more containers, events about the whole node are decided in a thread: they take milliseconds."""

Words = tuple[tuple[str, ...], dict[str, Fact]]
"""Sentences for people, and the same information as facts for programs."""

OnDecided = Callable[[events.Event, Node, "asyncio.Future[Decision]"], None]
"""Receives an event, the node as it was when the event was submitted, and the event's future, which is done."""


@dataclass(frozen=True, slots=True)
class _Job:
    """An event to apply."""

    event: events.Event
    done: "asyncio.Future[Decision]"
    policy: Policy | None
    guarded: GuardedStep = field(default_factory=GuardedStep)


@dataclass(repr=False, eq=False)
class NodeState:
    """Applies events to the node: event in, decision out.

    Args:
        node: the initial state, as it is in the store.
        policy: the policy in force.
        persister: stores each new state; `close` closes it.
        counters: count decisions.
        log: receives a line for each decision.
        failures: receives failures that are not the result of a call.
        tasks: those of *persister*, which ends them.
    """

    node: Node
    policy: Policy
    """The policy in force; if events are queued, one of them may bring another into force."""
    _persister: Persister
    _counters: Counters
    _log: Log
    _failures: Failures
    _tasks: Tasks
    bypassed: bool = False
    """Whether new containers share and no container moves, without asking the policy or waiting for the disk."""
    is_passing: bool = False
    """Whether an operator has switched the bypass on, so that no container is placed or moved."""
    passes_all: bool = False
    """The same, or there was no resync since then: no reply is edited."""
    on_decided: OnDecided | None = None
    """Called when an event has been decided, to carry the decision out; the reconciler sets it once."""
    _refusals: Refusals = field(default_factory=Refusals)
    _queue: deque[_Job] = field(default_factory=deque)
    """An event about the whole node that is decided in a thread, and the events submitted after it."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _is_awaited: bool = False

    def __post_init__(self) -> None:
        self._outbox = Outbox(self._persister.add, self._refusals, self._log, self._failures, self._tasks)
        self._queue_worker = OnDemand(self._tasks, "decide about the whole node", self._apply_queue)
        self.looks = Looks(self._tasks)
        """What looks at the node after each change of it, or of what is known about it."""

    def submit(self, event: events.Event, policy: Policy | None = None) -> "asyncio.Future[Decision]":
        """Apply *event* to the node: at once, unless it, or one before it, is about a whole node with many containers.

        Args:
            event: what happened or is about to happen.
            policy: with a `PolicyChanged`, the policy for this event and all later ones.

        The future raises:
            Refused: the policy has no place, or does not understand the request; the node is unchanged.
            PolicyFailed: the policy failed; the node and the policy are unchanged. Only for events that can be
                refused, including a new policy.
            StoreError: the disk is known to fail, and a place that cannot be stored is not granted; the node is
                unchanged.
        """
        job = _Job(event, asyncio.get_running_loop().create_future(), policy)
        if self.on_decided is not None:
            job.done.add_done_callback(partial(self.on_decided, event, self.node))
        if self._queue or self._is_large(event):
            self._queue.append(job)
            self._queue_worker.now()
        else:
            self._publish(job, self._stepped(job))
        return job.done

    async def apply(self, event: events.Event) -> Decision:
        """Submit *event* and wait for the decision, which is made even if this wait is cancelled."""
        done = self.submit(event)
        if not events.is_reservation(event):  # only calls are reservations; there may be many other events in a row
            await asyncio.sleep(0)
        return done.result() if done.done() else await asyncio.shield(done)

    async def end(self, event: events.ContainerExited | events.ContainerGone, how: str) -> None:
        """Apply an end that *how* (see `Counters.exits`), and no call, has reported; repeated reports count once."""
        container = self.node.containers.get(event.key)
        if container and container.state is not ContainerState.EXITED and not self.is_ending(event.key):
            with self._failures.harmless("a count"):
                self._counters.exits[how] += 1
        await self.apply(event)

    def set_listener(self, listener: EventListener | None) -> Node:
        """Call *listener* with every event and its result from now on, in place of the former one; None ends that.

        Returns:
            The node before the first event that *listener* will receive.
        """
        self._outbox.drain()
        self._outbox.listener = listener
        return self.node

    async def settled(self, timeout_s: float | None = None) -> None:
        """Wait until all events submitted so far are decided, at most *timeout_s*; they need not be on disk."""
        if self._queue:
            await asyncio.wait([self._queue[-1].done], timeout=timeout_s)

    def is_ending(self, key: str) -> bool:
        """Whether the end of the container *key* was submitted and is not decided yet."""
        ends = events.ContainerExited | events.ContainerGone
        return any(isinstance(job.event, ends) and job.event.key == key for job in self._queue)

    async def flush(self) -> None:
        """Wait until all events are decided and published, and are on disk or the disk is known to fail."""
        await self.settled()
        self._outbox.drain()
        await self._persister.flush()

    async def close(self) -> None:
        """Wait until all events are decided and, if possible, stored; submit nothing afterwards."""
        await self.settled(PART_S)
        if self._queue:  # the runtime is asked at the next start
            self._log.error("decisions are lost: a policy has not decided", decisions=len(self._queue))
        await self._outbox.settled(closing=True)
        await self._persister.close()

    def note(self, about: Container | str | None, kind: Kind, /, *sentences: str, **facts: Fact) -> None:
        """Add an entry about a container to the history; it is written soon.

        Args:
            about: the container or its key; None for the whole node. Unknown keys are ignored.
            kind: what happened.
            sentences: a description for people, without the container's name.
            facts: the same for programs: units in the names, sets in kernel notation.
        """
        container = self.node.containers.get(about) if isinstance(about, str) else about
        if container is not None or about is None:
            self._outbox.put(Entry(container, kind, sentences, facts, time()))
        if kind is Kind.REFUSED:
            self.notify()  # no change of the node, but of what is known about it

    def note_later(self, about: Container, kind: Kind, put_into_words: Callable[[], Words]) -> None:
        """Add an entry whose text a call must not wait for: *put_into_words* returns sentences and facts later."""
        at_s = time()
        self._outbox.put(lambda: Entry(about, kind, *put_into_words(), at_s))

    def unexplained(self) -> int:
        """Return how many decisions since the start have no explanation, because too many came at once."""
        return self._outbox.unexplained

    def refusals(self) -> tuple[list[Refusal], int]:
        """Return the containers that cannot be created at present, the newest first, and how many more there are."""
        self._outbox.drain()
        return self._refusals.listed(), self._refusals.omitted()

    def refused_in(self) -> set[str]:
        """Return the sandboxes of the containers that cannot be created at present."""
        self._outbox.drain()
        refused = set[str]()
        with self._failures.harmless("who was refused"):
            refused |= self._refusals.sandboxes()
        return refused

    def forget_refused(self, sandboxes: Collection[str]) -> None:
        """Forget the refusals of containers in *sandboxes*, which are gone."""
        self._outbox.drain()
        with self._failures.harmless("who was refused"):
            self._refusals.forget(sandboxes)

    async def find_history(self, text: str) -> list[Record]:
        """Return the history of all containers that *text* may mean; raise StoreError."""
        await self._outbox.settled()
        await self.flush()
        return await self._persister.read(find, text)

    async def history_since(self, after: int, without: Iterable[Kind], namespace: str = "") -> tuple[list[Record], int]:
        """Return what `history.since` returns; raise StoreError."""
        await self._outbox.settled()
        await self.flush()
        return await self._persister.read(since, after, without, namespace)

    @property
    def places_nobody(self) -> bool:
        """Whether a bypass is on, so that the policy is not asked."""
        return self.bypassed or self.is_passing

    async def changed(self) -> None:
        """Wait for the next change of the node, or of what is known about it."""
        self._is_awaited = True
        await self._changed.wait()

    def notify(self) -> None:
        """Wake all tasks that wait in `changed`, and call `looks` soon."""
        self.looks.soon()
        if self._is_awaited:
            self._is_awaited = False
            self._changed.set()
            self._changed = asyncio.Event()

    def resolve(self, container_id: str) -> str:
        """Return the key of the container with that id or, as runtimes allow, with that prefix of an id."""
        return _resolve(self.node.containers, container_id)

    def title_of(self, key: str) -> str:
        """Return the name of the container *key*; if it is unknown, the beginning of its id."""
        container = self.node.containers.get(key)
        return container.title if container else key[:SHORT_ID]

    def resolve_pod(self, sandbox_id: str) -> str:
        """Return the key of the pod with that id or prefix of an id."""
        return _resolve(self.node.pods, sandbox_id)

    def _is_large(self, event: events.Event) -> bool:
        return isinstance(event, events.NodeEvent) and len(self.node.containers) > MANY

    async def _apply_queue(self) -> None:
        """Apply the queued events in order; calls that are about no container pass meanwhile."""
        while self._queue:
            job = self._queue[0]
            large = self._is_large(job.event)
            self._publish(job, await asyncio.to_thread(self._stepped, job) if large else self._stepped(job))
            self._queue.popleft()
            await asyncio.sleep(0)

    def _stepped(self, job: _Job) -> Step:
        """Return the step for an event, and leave the node unchanged. May run in a thread."""
        node, event, begun_s, at_s = self.node, job.event, perf_counter(), time()
        result: Decision | Exception
        try:
            result = self._step(node, job)
            if self._persister.error is not None and not self.bypassed and events.is_reservation(event):
                result = StoreError(str(self._persister.error))
        except Exception as error:  # noqa: BLE001 (the submitter of the event gets it)
            result = error
        return Step(event, node, result, perf_counter() - begun_s, at_s, None if self.bypassed else self.policy)

    def _publish(self, job: _Job, one: Step) -> None:
        """Make the result of an event visible: the node, the counters, the future and the outbox."""
        job.guarded.report(self._counters, self._failures, self._log)
        if isinstance(one.result, Decision):
            self.policy = job.policy or self.policy
            if one.result.node is not one.before:
                self.node = one.result.node
                self._persister.put(self.node)
                self.notify()
            with self._failures.harmless("a count"):
                self._count(one, one.result)
        if job.done.done():  # the waiting task was cancelled or continued at once
            pass
        elif isinstance(one.result, Exception):
            job.done.set_exception(one.result)
        else:
            job.done.set_result(one.result)
        self._outbox.put(one)
        if _ends_a_mark(one, self.node):
            self._outbox.drain()  # how long it ran without a place is stored with the node that does not tell any more
            self._persister.keep_together()

    def _count(self, one: Step, decision: Decision) -> None:
        if decision.node is not one.before:
            self._counters.decisions[events.kind_of(one.event)] += 1
            self._counters.unplaced_s += unplaced_s(one.before, decision.node, events.happened_s(one.event, one.at_s))
        if events.can_be_refused(one.event):
            self._counters.decision_times.add(one.took_s)

    def _step(self, node: Node, job: _Job) -> Decision:
        """Return the decision about the event of *job*; what has already happened counts even if the policy fails."""
        event = job.event
        goes_back = isinstance(event, events.PolicyChanged) and event.back is not None  # from a try: a bypass ends, too
        if self.bypassed and not goes_back:
            return replace(step(node, _bypassed(event), Fallback(options_of(self.policy))), in_bypass=True)
        asked = job.policy or self.policy
        is_undone = node.released and isinstance(event, events.PolicyChanged) and not isinstance(asked, NonePolicy)
        if is_undone and self._persister.error is not None:  # no new exclusive CPUs that cannot be stored
            return step(node, event, Fallback(options_of(asked)))
        return job.guarded.step(node, event, asked, is_new=job.policy is not None)


def _ends_a_mark(one: Step, after: Node) -> bool:
    """Whether the event of *one* has placed a container that had not been placed, or is about the end of one."""
    match one.event:
        case events.Promoted(key) | events.ContainerExited(key) | events.ContainerGone(key):
            before = one.before.containers.get(key)
            return bool(before and before.missed) and after.containers.get(key) is not before
        case event:
            return isinstance(event, events.PolicyChanged)


def _bypassed(event: events.Event) -> events.Event:
    """Return *event* as it counts during an automatic bypass: a new container is marked as not placed by the policy.

    It may have waited since before the bypass.
    """
    if not isinstance(event, events.ContainerCreating) or event.container.missed:
        return event
    return events.ContainerCreating(replace(event.container, missed=Missed(why=Miss.BYPASSED, since_s=time())))


def _resolve(known: Mapping[str, object], given: str) -> str:
    if given in known or not given or len(given) >= FULL_ID:
        return given
    matches = [key for key in known if key.startswith(given)]
    return matches[0] if len(matches) == 1 else given
