"""Updates to other containers: bring what is applied to what was granted.

One worker for each container that is not where it belongs. A worker reads the node again before every step, so the
newest grant counts, and whatever fails is tried again.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from criproxy.control.containers.cgroups import Seen
from criproxy.control.context import Context
from criproxy.control.reconcile.lost_updates import UpdateLost
from criproxy.control.reconcile.start_blockers import ExcessCpus, in_the_way
from criproxy.cri import rewrite
from criproxy.cri.runtime import RuntimeCallError, if_reported
from criproxy.engine.decision import Decision
from criproxy.engine.events import (
    ContainerCreating,
    ContainerExited,
    ContainerGone,
    Event,
    PodGone,
    PodStopped,
    UpdateApplied,
)
from criproxy.engine.history import cause, sets, told_update
from criproxy.engine.release import before_release
from criproxy.engine.target import quota_for, target
from criproxy.errors import CriproxyError, StoreError, for_kubelet
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied, CpuQuota, in_place
from criproxy.model.node import Node
from criproxy.model.notices import Trouble
from criproxy.model.record import Kind
from criproxy.model.workload import ContainerState

_NO_TROUBLE = Trouble("", 0)


@dataclass(slots=True)
class _Worker:
    """What one container's worker remembers."""

    read: bool
    """Read the cgroup before anything else: it may have changed."""
    trouble: Trouble = _NO_TROUBLE
    since_s: float = field(default_factory=monotonic)
    wake: asyncio.Event | None = None
    """Ends the pause after a failure; there is none before: a thousand workers may wait for their first turn."""


@dataclass(slots=True)
class Reconciler:
    """Sends updates of ours; everything here runs on the event loop's thread."""

    context: Context
    holds: bool = False
    """Whether nothing is to be updated now: what is decided meanwhile is enqueued by whoever set this."""
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _causes: dict[str, str] = field(default_factory=dict)
    """What brought containers out of their places, for the history; from the decision to the end of their workers.

    Not kept by the worker: anybody may enqueue a container before those who move for a create are enqueued.
    """
    _excess: ExcessCpus = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    """Taken, before the container's lock, for each update."""

    def __post_init__(self) -> None:
        self._excess = ExcessCpus(self.context.in_flight)
        self._slots = asyncio.Semaphore(self.context.settings.concurrent_updates)
        self.context.state.followed = self._decided

    def enqueue(self, keys: Sequence[str], *, read: bool = False) -> None:
        """Give the containers *keys* what they were granted; one that is tried again later is tried now.

        Where they are many, calls are let through in between: a new container may move a thousand.

        Args:
            keys: containers; those that have no grant are left out.
            read: read their cgroups first, instead of believing what was applied last.
        """
        count = 0 if self.holds else self.context.settings.concurrent_updates
        for key in keys[:count]:
            if worker := self._workers.get(key):
                worker.read |= read
                if worker.wake:
                    worker.wake.set()
            elif key in self.context.state.node.grants:
                self._workers[key] = _Worker(read)
                self.context.tasks.spawn(f"update {key}", self._work(key, self._workers[key]))
            else:
                self._causes.pop(key, None)
        if not self.holds and (rest := keys[count:]):
            asyncio.get_running_loop().call_soon(partial(self.enqueue, rest, read=read))

    @property
    def at_work(self) -> bool:
        """Whether any container is being read or updated, or waits for that."""
        return bool(self._workers)

    def trouble(self, key: str) -> Trouble:
        """How often the update of *key* that is in flight has failed, and why the last time; empty if it has not."""
        worker = self._workers.get(key)
        return worker.trouble if worker else _NO_TROUBLE

    def troubles(self) -> dict[str, Trouble]:
        """The containers whose last update failed, and how."""
        return {key: worker.trouble for key, worker in self._workers.items() if worker.trouble.error}

    def misplaced_since_s(self) -> list[float]:
        """For each container that has not what it was granted: since when it is being updated (monotonic clock)."""
        node = self.context.state.node
        at_work = ((worker, node.grants.get(key), node.applied.get(key)) for key, worker in self._workers.items())
        return [worker.since_s for worker, grant, applied in at_work if grant and not in_place(grant, applied)]

    def excess(self) -> ExcessCpus:
        """The CPUs beyond their grants that containers may be running on now."""
        return self._excess.of(self.context.state.node)

    def blockers(self, key: str) -> list[str]:
        """Keys of the containers that may run on CPUs which they must give up and *key* gets."""
        return in_the_way(self.context.state.node, key, self.excess())

    def now(self, key: str) -> Applied | None:
        """What *key* may have at this moment: its next step towards its grant, or what it has."""
        node = self.context.state.node
        return (self._target(key) or node.applied.get(key)) if key in node.grants else None

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """One of the few slots, and the lock of *key*, which a call of the kubelet may have for minutes."""
        await self.context.locks.free(key)  # before: others need the slot
        async with self._slots, self.context.locks.of(key, "an update of criproxy"):
            yield

    def is_reading(self, key: str) -> bool:
        """Whether a worker is about to read the cgroup of *key*."""
        worker = self._workers.get(key)
        return worker is not None and worker.read

    async def read_cgroup(self, key: str) -> Seen:
        """Read what *key* has and apply it to the node; the caller holds its lock.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        seen = await self.context.cgroups.read(key)
        has = self._known(key, seen, None)
        await self._apply(key, seen, has)
        return replace(seen, applied=has)

    async def bring_into_place(self, key: str, why: str = "it had to be in its place before its start") -> None:
        """Bring a container to its grant, as far as others have made room; the caller holds its lock.

        Args:
            key: the container.
            why: for the history.

        Raises:
            RuntimeCallError: if the runtime refused.
        """
        while self._updatable(key) and (wanted := self._target(key)):
            await self._update(key, wanted, why)

    async def _work(self, key: str, worker: _Worker) -> None:
        try:
            while self._updatable(key):
                if worker.read or self._target(key):
                    await self._attempt(key, worker)
                elif in_place(self.context.state.node.grants[key], self.context.state.node.applied.get(key)):
                    return
                else:
                    await self.context.state.changed()
        finally:
            del self._workers[key]
            self._causes.pop(key, None)
            if not self._workers:
                self.context.state.stir()

    async def _attempt(self, key: str, worker: _Worker) -> None:
        """Read or update once; after a failure, pause."""
        try:
            async with self.turn(key):
                await self._step(key, worker)
        except Exception as error:  # noqa: BLE001 (whatever it was: the container is not where it belongs)
            worker.wake, worker.read, settings = asyncio.Event(), True, self.context.settings
            self._failed(key, worker, error)
            pause_s = min(settings.retry_pause_s * 2 ** min(worker.trouble.failures - 1, 20), settings.retry_limit_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await worker.wake.wait()

    def _failed(self, key: str, worker: _Worker, error: Exception) -> None:
        if not isinstance(error, RuntimeCallError):
            self.context.tasks.failed("background", f"update {key}", error)
        told = for_kubelet(error)  # by a start that waits for this update
        if worker.trouble.error != told:  # every one is tried again, and most fail as the one before
            self.context.state.note(key, Kind.LOST if isinstance(error, UpdateLost) else Kind.FAILED, told)
        failures = worker.trouble.failures + 1
        worker.trouble = Trouble(told, failures)
        self.context.state.stir()
        self.context.log.warning("update failed", container=key, failures=failures, error=str(error))

    async def _step(self, key: str, worker: _Worker) -> None:
        """The lock is ours now, and the node may have changed while we waited for it."""
        failures = worker.trouble.failures
        if not self._updatable(key):
            return
        if worker.read:
            worker.read = False  # before: whatever happens while it is read needs another reading afterwards
            if await if_reported(self.read_cgroup(key)) is None and (ours := self.now(key)):
                await self._update(key, ours, "the runtime does not report what it has", failures=failures)
        elif wanted := self._target(key):
            await self._update(key, wanted, failures=failures)
            if failures:
                self.context.log.info("update succeeded after failures", container=key, failures=failures)
            worker.trouble = _NO_TROUBLE

    async def _update(self, key: str, wanted: Applied, why: str = "", *, failures: int = 0) -> None:
        had, begun_s = self.context.state.node.applied.get(key), monotonic()
        await self._send(key, wanted, had)
        # Where the cgroup cannot be read, the answer has to do: others wait for these CPUs.
        seen = await if_reported(self.context.cgroups.read(key)) or Seen(ContainerState.RUNNING)
        has = self._known(key, seen, wanted)
        reached = has and has.has_sets_of(wanted, wanted.mems) and has.lifted == wanted.lifted
        lost = seen.applied is not None and not reached
        if not lost and seen.state in (ContainerState.RUNNING, ContainerState.CREATED):
            with self.context.failures.harmless("an update"):  # before the event that goes to the disk with it
                why = why or self._causes.get(key, "")  # now: the decision may not have been followed when it was sent
                had = had or before_release(self.context.state.node, key, wanted)
                texts = [told_update(had, wanted, why, seen.applied is not None)]
                texts += [f"after {failures} failures"] if failures else []
                facts = {**sets("", wanted), **sets("had_", had), "why": why, "failures": failures}
                kind = Kind.RELEASED if self.context.state.node.released else Kind.UPDATED
                took_ms = round((monotonic() - begun_s) * 1000, 1)
                self.context.state.note(key, kind, *texts, **facts, took_ms=took_ms)
        await self._apply(key, seen, has)
        if lost and has:
            self.context.counters.updates_lost += 1
            raise UpdateLost.of(has, wanted, is_lost=self.context.in_flight.is_lost(key))

    async def _send(self, key: str, wanted: Applied, had: Applied | None) -> None:
        """Send an update and wait for its answer; raises RuntimeCallError unless the runtime does not know *key*."""
        quota = None if had and had.lifted == wanted.lifted else quota_for(self.context.state.node, key, wanted)
        linux = rewrite.update(format_cpuset(wanted.cpus), format_cpuset(wanted.mems), quota)
        self.context.in_flight.send(key, wanted.cpus)
        counters = self.context.counters
        counters.updates_sent += 1
        counters.updates_in_flight += 1
        try:
            await self.context.runtime.update_container_resources(key, linux)
        except RuntimeCallError as error:
            if not error.not_found:
                self.enqueue([key], read=True)  # it may have been done all the same
                counters.updates_failed += 1
                raise
        finally:
            counters.updates_in_flight -= 1

    async def _apply(self, key: str, seen: Seen, has: Applied | None) -> None:
        """Apply to the node that *key* was *seen*, and *has* this as far as that is known: no update is in flight.

        One that was not started has no cgroup: what an update did to it is known from the answer to another one.
        """
        if seen.state is None:
            await self.context.state.end(ContainerGone(key), "cgroups")
        elif seen.state is ContainerState.EXITED:
            await self.context.state.end(ContainerExited(key), "cgroups")
        elif has:
            await self.context.state.apply(UpdateApplied(key, has.cpus, has.mems, has.lifted))
        if has or seen.state is not ContainerState.CREATED:
            self.context.in_flight.has_read(key)

    def _known(self, key: str, seen: Seen, sent: Applied | None) -> Applied | None:
        """What *key* has; where that cannot be read, the runtime has what was *sent*."""
        applied, node = seen.applied or sent, self.context.state.node
        if applied is None:
            return None
        grant, lifted = node.grants.get(key), False
        if grant and grant.quota is not CpuQuota.LEFT:
            believed = sent or node.applied.get(key)
            lifted = seen.lifted if seen.lifted is not None else bool(believed and believed.lifted)
        # The same object where it is the same set: that makes comparing a thousand of them cheap.
        return Applied(grant.cpus if grant and grant.cpus == applied.cpus else applied.cpus, applied.mems, lifted)

    def _decided(self, event: Event, node: Node, done: "asyncio.Future[Decision]") -> None:
        try:
            self._forget(event)
        finally:  # whatever fails there: who has to move moves
            self._carry_out(event, node, done)

    def _forget(self, event: Event) -> None:
        """Drop what is remembered of those that ended with *event*."""
        context = self.context
        context.in_flight.retain(context.state.node)
        if isinstance(event, ContainerExited | ContainerGone):
            context.cgroups.forget(event.key)
        elif isinstance(event, PodStopped | PodGone):
            now = context.state.node
            context.cgroups.keep(now.grants.keys() | now.applied.keys())

    def _carry_out(self, event: Event, node: Node, done: "asyncio.Future[Decision]") -> None:
        context, error = self.context, done.exception()
        if error is None:
            if updates := done.result().updates:
                keys = [update.key for update in updates]
                with context.failures.harmless("the cause of updates"):
                    if why := cause(event, node):
                        self._causes |= dict.fromkeys(keys, why)
                if isinstance(event, ContainerCreating):
                    self.context.tasks.spawn("update others", self._enqueue_stored(keys))
                else:
                    self.enqueue(keys)
        elif not isinstance(error, CriproxyError):
            context.log.error("event failed", error=str(error), exc_info=error)

    async def _enqueue_stored(self, keys: Sequence[str]) -> None:
        """Enqueue *keys* when the create for which they move is on disk: its call waits for that, and goes first."""
        try:
            with suppress(StoreError):  # then they have not to move
                await self.context.persister.durable()
        finally:
            self.enqueue(keys)

    def _updatable(self, key: str) -> bool:
        """Whether the runtime can update *key*: it is known there, alive, and placed by us."""
        container = self.context.state.node.containers.get(key)
        if container is None or container.stays or key not in self.context.state.node.grants:
            return False
        return container.has_id and container.state is not ContainerState.CREATING

    def _target(self, key: str) -> Applied | None:
        """The next step of *key* towards its grant; what it should have already where that may not be in force."""
        node = self.context.state.node
        wanted = target(node, key, self.excess().others(key))
        if wanted is None and node.containers[key].state is ContainerState.CREATED:
            return node.applied.get(key) if self.context.in_flight.is_unread(key) else None
        return wanted
