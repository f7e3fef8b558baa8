"""The current state of the node, and the only way to change it: one event after the other."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from time import perf_counter, time
from typing import TypeGuard

from criproxy.control.counters import Counters
from criproxy.control.failures import Failures
from criproxy.control.node.decision_log import tell
from criproxy.control.node.explanations import Considered, Explanations
from criproxy.control.node.history import Entry, History, entries_of
from criproxy.control.node.persister import CannotBeStored, Change, NodeStore, Persister
from criproxy.control.settings import Log, StoreLimits
from criproxy.engine.decision import Decision
from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    ContainerResized,
    ContainerStarted,
    Event,
    NodeEvent,
    PodCreated,
    PodGone,
    PodStopped,
    PolicyChanged,
    Promoted,
    UnknownOutcome,
    UpdateApplied,
)
from criproxy.engine.fallback import Fallback
from criproxy.engine.guard import PolicyFault
from criproxy.engine.step import step
from criproxy.errors import CriproxyError, Fault, Refused, StoreError
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Miss, Missed
from criproxy.policy.api import Policy
from criproxy.policy.none import NonePolicy
from criproxy.policy.options import options_of
from criproxy.store.record import Fact, Kind, Record
from criproxy.store.writing import LeftOut
from criproxy.views.notices import Refusal


class PolicyFailed(Fault):
    """A policy raised what no policy may; the cause is what it raised. The node is as before."""

    briefly = "the policy failed"


LINGER_S = 0.02
"""How long what everybody sees already waits to be told, unless something else is to be done: until then runtime and
kubelet are at work on a create, and have the CPUs to themselves."""
FLUSH_S = 0.1
"""How long an entry of the history may wait for a change of the node, to be written together with it."""
FULL_ID = 64
"""Characters of the ids that runtimes give: what is so long is no beginning of another."""
MAX_TOGETHER = 32
"""Events that go to the disk in one transaction, if so many are waiting."""
MANY = 50
"""With more containers, events about the whole node are worked out beside the event loop: they take milliseconds."""

_HAPPENED = (
    PodCreated,
    PodStopped,
    PodGone,
    ContainerCreated,
    ContainerStarted,
    ContainerExited,
    ContainerGone,
    UnknownOutcome,
    UpdateApplied,
)
"""Events about one pod or container that nobody can refuse. They wait for no disk: what was not written is known again
after a restart by stamps, lists and cgroups."""

Words = tuple[tuple[str, ...], dict[str, Fact]]
"""Sentences for people, and the same as facts for programs."""

Followed = Callable[[Event, Node, "asyncio.Future[Decision]"], None]
"""Gets an event, the node at which it was submitted, and its future, which is done."""

Heard = Callable[[Event, Decision | Exception], None]
"""Gets an event and what came of it; must not fail."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One event that was applied."""

    event: Event
    before: Node
    decision: Decision
    took_s: float
    at_s: float
    """When, in seconds since the epoch."""


@dataclass(slots=True)
class _Job:
    """Something that waits for its turn."""

    event: Event | None
    """None: only write the history."""
    done: "asyncio.Future[Decision]"
    policy: Policy | None = None
    result: _Step | Exception | None = None
    """What it leads to, where that was worked out before its turn: nothing waited then."""
    seen: bool = False
    """Everybody sees that result already."""


class NodeState:
    """Steps the node: event in, decision out, stored before anybody acts on it where the runtime does not know it yet.

    Args:
        node: the state to begin with, as the store has it.
        policy: asked by the engine.
        store: keeps each new state.
        log: told of each decision.
        limits: how patient to be with the store.
        failures: told of what fails here without being anybody's answer.
    """

    def __init__(
        self,
        node: Node,
        policy: Policy,
        store: NodeStore,
        log: Log,
        limits: StoreLimits | None = None,
        failures: Failures | None = None,
    ) -> None:
        self.node = node
        self.counters = Counters()
        self.failures = failures or Failures(log=log)
        self.bypassed = False
        """Newcomers share and nobody moves, without asking the policy or waiting for the disk."""
        self.policy = policy
        """Asked about what is submitted now, if nothing waits: another one comes into force in the order of events."""
        self.followed: Followed | None = None
        """Called when an event has been decided, to carry the decision out; set once, by who does that."""
        self.heard: Heard | None = None
        """Told of every event when it has been applied or has failed, in their order."""
        self.told = node
        """The node after the events that were told: for a moment, `node` is ahead of it."""
        self._log = log
        self._checked = False
        self._keeper = Persister(node, store, limits or StoreLimits(), self.counters, log, self.failures)
        self._queue: deque[_Job] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._begin_at: asyncio.TimerHandle | None = None
        """When to begin with what everybody sees already, if nothing else comes."""
        self._unseen = 0
        """Events in the queue that nobody sees yet."""
        self._flushes = 0
        """Writes of the history alone that are in the queue."""
        self._looks = False
        """Whether the next of them is made even if there is nothing to write."""
        self._changed = asyncio.Event()
        self._journal = History(failed=self.failures.telling_failed)
        self._considering = Explanations(self._note_considered, log)
        self._flush_at: asyncio.TimerHandle | None = None

    @property
    def store_error(self) -> StoreError | None:
        """Why the last state could not be stored; None when the store is up to date."""
        return self._keeper.error

    @property
    def left_out(self) -> Sequence[LeftOut]:
        """What is not on disk although the disk works: rows whose values cannot be written."""
        return self._keeper.left_out

    @property
    def store_failing_since_s(self) -> float | None:
        """Since when the state on disk has been out of date, on the monotonic clock; None where it is not."""
        return self._keeper.failing_since_s

    def submit(self, event: Event, policy: Policy | None = None) -> "asyncio.Future[Decision]":
        """Step the node by *event* after all events before it; what was submitted is done, whoever waits for it.

        Args:
            event: what happened or is about to.
            policy: with a `PolicyChanged`: asked about this event and all that are submitted later.

        The future raises:
            Refused: the policy has no place, or does not understand what is asked; the node is as before.
            PolicyFailed: the policy is at fault; the node and the policy are as before. Only for what can still be
                refused, a new policy included.
            StoreError: a reservation could not be stored; the node is as before.
        """
        job = _Job(event, asyncio.get_running_loop().create_future(), policy)
        self._hurry(job)
        self._push(job)
        if self.followed is not None:
            job.done.add_done_callback(partial(self.followed, event, self.node))
        return job.done

    async def apply(self, event: Event) -> Decision:
        """Submit *event* and wait for the decision, which comes even if this wait is cancelled."""
        done = self.submit(event)
        return done.result() if done.done() else await asyncio.shield(done)

    async def end(self, event: ContainerExited | ContainerGone, how: str) -> None:
        """Apply an end that no call told but *how* (as in `Counters.exits`); it is counted once, whoever else tells."""
        container = self.node.containers.get(event.key)
        if container and container.state is not ContainerState.EXITED and not self.is_ending(event.key):
            with self.failures.harmless("a count"):
                self.counters.exits[how] += 1
        await self.apply(event)

    def listen(self, heard: Heard | None) -> Node:
        """Let *heard* be told of every event and what came of it, in place of who was before; None ends that.

        Returns:
            The node before the first of the events that will be told: what is decided already may be told yet.
        """
        self.heard = heard
        return self.told

    async def settled(self) -> None:
        """Return when all events submitted so far have been done; what is only written does not count."""
        last = next((job for job in reversed(self._queue) if job.event is not None), None)
        if last is not None and not last.done.done():
            await asyncio.wait([last.done])

    def is_ending(self, key: str) -> bool:
        """Whether the end of the container *key* is on its way: submitted, and not done yet."""
        ends = (job.event for job in self._queue if isinstance(job.event, ContainerExited | ContainerGone))
        return any(event.key == key for event in ends)

    async def close(self) -> None:
        """Return when everything has been done and, if that is possible, stored; nothing may come after."""
        await self.flush()
        await self._considering.close()
        await self.flush()
        await self._keeper.close()

    def note(self, about: Container | str | None, kind: Kind, /, *sentences: str, **facts: Fact) -> None:
        """Tell the history about a container; it is written with the next change of the node, or soon.

        Args:
            about: the container or its key; one that is not known any more is left out. None: the whole node.
            kind: what happened.
            sentences: the same for people, without the container's name.
            facts: the same for programs: units in the names, sets in kernel notation.
        """
        container = self.node.containers.get(about) if isinstance(about, str) else about
        if container is None and about is not None:
            return
        self._add(Entry(container, kind, sentences, facts))

    def note_later(self, about: Container, kind: Kind, put_into_words: Callable[[], Words]) -> None:
        """The same for what a call must not wait for: *put_into_words* gives sentences and facts; it must not fail.

        It is written with what comes of the call: the caller submits an event next, or notes why it does not.
        """
        with self.failures.harmless("an entry of the history"):
            self._journal.add_later(lambda: Entry(about, kind, *put_into_words()))

    def _note_considered(self, considered: Considered) -> None:
        said = (f"what was compared: {considered.choice.decided.value}",)
        self._add(Entry(considered.about, Kind.CONSIDERED, said, considered.choice.facts(), considered.at_s))

    def _add(self, entry: Entry) -> None:
        with self.failures.harmless("an entry of the history"):
            self._journal.add(entry)
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_at is None:
            loop = asyncio.get_running_loop()
            self._flush_at = loop.call_later(FLUSH_S, lambda: self._push(_Job(None, loop.create_future())))

    def refusals(self) -> list[Refusal]:
        """Who cannot be created at present, the newest first."""
        return self._journal.refusals()

    def refused_in(self) -> frozenset[str]:
        """The sandboxes of those who cannot be created at present."""
        with self.failures.harmless("who was refused"):
            return self._journal.refused_in()
        return frozenset()

    def forget_refused(self, sandboxes: Collection[str]) -> None:
        """These *sandboxes* are gone, and whoever was refused in them with them."""
        with self.failures.harmless("who was refused"):
            self._journal.forget_refused(sandboxes)

    async def flush(self) -> None:
        """Return when the history has been written, or the disk is known to fail."""
        job = _Job(None, asyncio.get_running_loop().create_future())
        self._push(job)
        await asyncio.shield(job.done)

    async def find_history(self, text: str) -> list[Record]:
        """The history of all containers that *text* may mean; raises StoreError."""
        await self.flush()  # all is told
        await self._considering.settled()
        await self.flush()
        return await self._keeper.find(text)

    async def newest(self, kind: Kind) -> list[Record]:
        """Of each container of the node the last record of that kind that is on disk; raises StoreError."""
        return await self._keeper.newest(kind, [container.life for container in self.node.containers.values()])

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

    def _push(self, job: _Job) -> None:
        """Let *job* be done after all that were pushed before."""
        self._queue.append(job)
        self._unseen += _is_unseen(job)
        self._flushes += job.event is None
        if not job.seen:
            self._begin()
        elif self._pump is None and self._begin_at is None:
            self._begin_at = asyncio.get_running_loop().call_later(LINGER_S, self._begin)

    def look_at_disk(self) -> None:
        """See whether the disk still takes what is written, in the background: a quiet node writes nothing else."""
        if self.store_error is None and self._pump is None:  # else it is tried or written to in any case
            self._looks = True
            self._push(_Job(None, asyncio.get_running_loop().create_future()))

    def _begin(self) -> None:
        if self._begin_at is not None:
            self._begin_at.cancel()
            self._begin_at = None
        if self._pump is None:
            self._pump = asyncio.create_task(self._work(), name="manager")

    def _hurry(self, job: _Job) -> None:
        """Decide about *job* now if nothing waits; if nothing has to be on disk first, everybody sees it at once.

        A call waits for each turn of the loop, and who only shares for no disk. What is to be told of it is told in its
        turn.
        """
        if self._unseen or not self._checked or self.store_error is not None or self.bypassed:
            return
        if job.event is None or not (_is_reservation(job.event) or self._waits_for_nothing(job.event)):
            return
        try:
            job.result = one = self._decided(self.node, job)
        except Exception as error:  # noqa: BLE001 (it is for whoever submitted the event)
            job.result = error
            return
        if _takes_nothing(one) or self._waits_for_nothing(job.event):
            job.seen = True
            self._see(one.decision.node)
            _end(job.done, one.decision)

    def _waits_for_nothing(self, event: Event) -> bool:
        """Whether *event* has happened in any case, and nobody shall wait for the disk because of it.

        What goes to the disk at once is waited for; what would wait for the history that is written before it is not.
        """
        return isinstance(event, ContainerCreated) or (self._flushes > 0 and isinstance(event, _HAPPENED))

    async def _work(self) -> None:
        try:
            if not self._checked:
                self._checked = True
                await self._keeper.check()
            while self._queue:
                if self._queue[0].event is None:
                    await self._flush(self._queue[0])
                else:
                    await self._apply(self._together())
        finally:
            self._pump = None

    async def _flush(self, job: _Job) -> None:
        try:
            await self._write_history()
        except Exception as error:  # noqa: BLE001 (it is for whoever asked for it)
            _end(job.done, error)
        else:
            _end(job.done, Decision(self.node))
        self._flushes -= 1
        self._queue.popleft()

    def _together(self) -> list[_Job]:
        """The first job of the queue, and those after it that go to the disk with it: what has happened already."""
        found: list[_Job] = []
        for job in self._queue:
            if job.event is None or (found and _stands_alone(job)):
                break
            found.append(job)
            if _stands_alone(job) or len(found) == MAX_TOGETHER:
                break
        return found

    async def _apply(self, jobs: Sequence[_Job]) -> None:
        """Step the node by the events of *jobs*, and end their futures once all of it is stored, or before."""
        steps = list[_Step]()
        results = list[Decision | Exception]()
        for job in jobs:
            try:
                steps.append(await self._decide(steps[-1].decision.node if steps else self.node, job))
                results.append(steps[-1].decision)
            except Exception as error:  # noqa: BLE001 (it is for whoever submitted the event)
                results.append(error)
        before, seen = steps[0].before if steps else self.node, jobs[0].seen
        early = seen or (len(steps) == len(jobs) == 1 and _takes_nothing(steps[0]) and self.store_error is None)
        try:
            if not early:
                try:
                    await self._publish(steps)
                except StoreError:
                    if not _ends_release(steps[0]):
                        raise
                    steps = [await self._decide(self.node, jobs[0])]  # otherwise, now that the disk is known to fail
                    results = [steps[0].decision]
                    await self._publish(steps)
            elif not seen:
                self._see(steps[0].decision.node)
        except Exception as error:  # noqa: BLE001 (it is for whoever submitted the events)
            steps, results = [], [error] * len(jobs)
        for job, result in zip(jobs, results, strict=True):
            self._unseen -= _is_unseen(job)
            _end(job.done, result)
        await _others_first()
        self.told = steps[-1].decision.node if steps else self.told
        if early:
            self._flush_soon()  # the node goes to the disk with that
        try:
            self._tell(before, jobs, results, steps)
            if early:
                self._note_all(self._entries(steps))
        finally:
            for _ in jobs:
                self._queue.popleft()

    def _hear(self, before: Node, event: Event, result: Decision | Exception) -> None:
        """Let those hear of an event who want to; *before* is the node that a decision about one container is of."""
        if self.heard:
            with self.failures.harmless("an event to a recording"):
                self.heard(event, result)
        if not self.bypassed:
            with self.failures.harmless("what a decision was chosen from"):
                self._considering.hear(before, event, self.policy, result)

    async def _decide(self, node: Node, job: _Job) -> _Step:
        if isinstance(job.result, Exception):
            raise job.result
        if job.result is not None:
            return job.result
        if isinstance(job.event, NodeEvent) and len(node.containers) > MANY:
            return await asyncio.to_thread(self._decided, node, job)
        return self._decided(node, job)

    def _decided(self, node: Node, job: _Job) -> _Step:
        event, begun_s = job.event, perf_counter()
        assert event is not None  # asked for by the caller
        decision = self._step(node, event, job.policy)
        self.policy = job.policy or self.policy
        return _Step(event, node, decision, perf_counter() - begun_s, time())

    async def _publish(self, steps: Sequence[_Step]) -> None:
        """Store the node after *steps*, then let everybody see it.

        A call waits for a reservation: its history is written after it, with the next change.

        Raises:
            StoreError: there is only one, a reservation or the end of a release, and nothing has come of it.
        """
        node, entries = steps[-1].decision.node if steps else self.node, self._entries(steps)
        if node is not self.node:
            needed = bool(steps) and (_is_reservation(steps[0].event) or _ends_release(steps[0])) and not self.bypassed
            await (self._reserve(node, steps[0]) if needed else self._save(node, entries))
            entries = entries if needed else []
            self._see(node)
        self._note_all(entries)

    def _entries(self, steps: Iterable[_Step]) -> list[Entry]:
        """What the history shall tell of *steps*."""
        found = list[Entry]()
        with self.failures.harmless("a decision"):
            found += _entries(steps)
        return found

    def _note_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._add(entry)

    def _see(self, node: Node) -> None:
        self.node = node
        self.stir()

    def _tell(
        self,
        before: Node,
        jobs: Sequence[_Job],
        results: "Sequence[Decision | Exception]",
        steps: Sequence[_Step],
    ) -> None:
        """Count and log, and let those hear of it who want to."""
        for job, result in zip(jobs, results, strict=True):
            if job.event:
                self._hear(before, job.event, result)
        for one in steps:
            with self.failures.harmless("a count"):
                self._count(one)
            with self.failures.harmless("a decision"):
                tell(self._log, one.event, one.before, one.decision, one.took_s)

    def _count(self, one: _Step) -> None:
        if one.decision.node is not one.before:
            self.counters.decisions[_kind(type(one.event).__name__)] += 1
        if _can_be_refused(one.event):
            self.counters.decision_times.add(one.took_s)

    async def _reserve(self, node: Node, one: _Step) -> None:
        """Write *node*; raises StoreError or CannotBeStored, and then what was about to happen did not."""
        try:
            await self._keeper.save(Change(node), needed=True, own=one.decision.key or "")
        except CannotBeStored:
            self._flush_soon()  # the rest of it is on disk, and did not happen
            raise

    async def _save(self, node: Node, entries: Iterable[Entry]) -> None:
        """Write *node* with everything that the history has been told."""
        records = list[Record]()
        with self.failures.harmless("the history"):
            records += self._journal.take()
            records += self._journal.records(entries)
        await self._keeper.save(Change(node, records), needed=False)

    async def _write_history(self) -> None:
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        looks, self._looks = self._looks, False
        if self.store_error is not None:
            return  # all of it goes to the disk with the next change
        if looks or self._journal or not self._keeper.has(self.node):
            await self._save(self.node, ())

    def _step(self, node: Node, event: Event, policy: Policy | None) -> Decision:
        """What *event* leads to; what has happened already counts, whatever the policy does."""
        if self.bypassed:
            return step(node, _bypassed(event), Fallback(options_of(self.policy)))
        asked = policy or self.policy
        is_undone = node.released and isinstance(event, PolicyChanged) and not isinstance(asked, NonePolicy)
        if is_undone and self.store_error is not None:  # nobody newly owns what cannot be stored
            return step(node, event, Fallback(options_of(asked)))
        try:
            decision = step(node, event, asked)
        except Exception as error:
            if isinstance(error, Refused) and isinstance(event, ContainerCreating | ContainerResized):
                raise  # an answer, and no failure
            self.counters.policy_failures += 1
            if isinstance(error, PolicyFault):
                self.counters.policy_faults += 1
                self.failures.add("policy", str(error))
            if not _can_be_refused(event) and policy is None:
                text = f"the policy failed{_about(node, event)}, and nobody moved: {error!r}"
                self.failures.add("policy", text)
                self._log.error("policy failed; nobody moves", event_kind=_kind(type(event).__name__), exc_info=error)
                return step(node, event, Fallback(options_of(self.policy)))
            if isinstance(error, CriproxyError):
                raise
            raise PolicyFailed(f"the policy failed: {error!r}") from error
        if decision.faults:
            self.counters.policy_faults += len(decision.faults)
            self.failures.add("policy", f"the policy failed{_about(node, event)}: {decision.faults[0]}")
        return decision


def _bypassed(event: Event) -> Event:
    """The *event* during an automatic bypass: who comes, maybe after it waited since before, may be owed a place."""
    if not isinstance(event, ContainerCreating) or event.container.missed:
        return event
    return ContainerCreating(replace(event.container, missed=Missed(why=Miss.BYPASSED, since_s=time())))


def _about(node: Node, event: Event) -> str:
    """Of which container or pod *event* tells, as an end of a sentence; empty where it is about the whole node."""
    container, key = getattr(event, "container", None), getattr(event, "key", "")
    known = container or node.containers.get(key) or node.pods.get(key)
    return f" at {known.title} ({_kind(type(event).__name__)})" if known else f" ({_kind(type(event).__name__)})"


def _is_unseen(job: _Job) -> bool:
    return job.event is not None and not job.seen


def _can_be_refused(event: Event) -> bool:
    """Whether it need not be: somebody waits for the answer; everything else tells what has happened."""
    return _is_reservation(event) or isinstance(event, ContainerResized | Promoted)


async def _others_first() -> None:
    """Let those whose futures have ended go on before anything else: a call waits for each turn of the loop.

    One for the shield around the future, one for who waits for that, and one for what it submits.
    """
    for _ in range(3):
        await asyncio.sleep(0)


def _entries(steps: Iterable[_Step]) -> list[Entry]:
    return [replace(entry, at_s=one.at_s) for one in steps for entry in entries_of(one.before, one.event, one.decision)]


def _takes_nothing(one: _Step) -> bool:
    """Whether a step only lets somebody share what is shared.

    Should we end before it is stored, its stamp tells who it is, and it is taken in where it runs: docs/decisions/0022.
    """
    decision, event = one.decision, one.event
    if not _is_reservation(event) or decision.node is one.before or decision.updates:
        return False
    if event.container.key != decision.key:
        return False  # a create is repeated: its place is known already, so it is not taken in where it runs
    return decision.grant is None or not decision.grant.exclusive


def _stands_alone(job: _Job) -> bool:
    """Whether *job* has a transaction of its own, since it can fail or takes long, or none, since it is seen."""
    return job.seen or (job.event is not None and _can_be_refused(job.event)) or isinstance(job.event, NodeEvent)


def _ends_release(one: _Step) -> bool:
    """Whether everybody is placed again after a release: as with a create, no CPU is owned that is not on disk."""
    ends = isinstance(one.event, PolicyChanged) and bool(one.before.released)
    return ends and one.decision.node.owned_cpus > one.before.owned_cpus


def _is_reservation(event: Event) -> TypeGuard[ContainerCreating]:
    """Whether nobody may act on *event* before it is on disk: a create that the runtime has not heard of."""
    return isinstance(event, ContainerCreating) and event.container.state is ContainerState.CREATING


@cache
def _kind(name: str) -> str:
    """``ContainerCreating`` → ``container_creating``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


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
