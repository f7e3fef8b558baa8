"""Updates of containers: bring the applied state in line with the desired state.

There is one worker for each container that differs from its grant. A worker reads the node again before every step, so
the newest grant counts, and it retries after every failure.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite
from criproxy.cri.runtime import RuntimeCallError, if_reported
from criproxy.errors import CriproxyError, StatusCode, StoreError, for_kubelet
from criproxy.model.attributes import agrees, as_facts, as_granted, in_place, to_read
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.text.notices import Trouble
from criproxy.model.workload import ContainerState
from criproxy.node.cgroups import LEFT_RUNNING, Seen
from criproxy.node.context import UPDATE_OTHERS, Context
from criproxy.node.reconcile.excess_cpus import ExcessCpus, blockers_of, rests
from criproxy.placement import events
from criproxy.placement.decision import Decision, target
from criproxy.placement.records.history import causes, instead_text, update_text
from criproxy.placement.rules.release import before_release
from criproxy.process.tasks import wait_at_most

_NO_TROUBLE = Trouble("", 0)


class UpdateLost(RuntimeCallError):
    """The runtime answered OK to an update, but the cgroup shows other values."""


@dataclass(slots=True)
class _Worker:
    """The state of one container's worker."""

    read: bool
    """Whether to read the cgroup first, because it may have changed."""
    trouble: Trouble = _NO_TROUBLE
    since_s: float = field(default_factory=monotonic)
    wake: asyncio.Event | None = None
    """Ends the pause after a failure; None before the first failure, since a thousand workers may wait for a slot."""


@dataclass(slots=True)
class Reconciler:
    """Sends criproxy's updates. Use only in the event loop's thread."""

    context: Context
    holds: set[str] = field(default_factory=set)
    """Why updates are suspended, if they are; the part that ends this enqueues what was decided meanwhile."""
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _causes: dict[str, str] = field(default_factory=dict)
    """Why containers have to move, for the history; from the decision to the end of their workers.

    Not in the worker, because a container may be enqueued for another reason before those that move for a create are.
    """
    _excess: ExcessCpus = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    """Acquired for each update, before the container's lock."""

    def __post_init__(self) -> None:
        self._excess = ExcessCpus(self.context.in_flight)
        self._slots = asyncio.Semaphore(self.context.settings.concurrent_updates)
        self.context.state.on_decided = self._decided

    def enqueue(self, keys: Sequence[str], *, read: bool = False) -> None:
        """Bring the containers *keys* in line with their grants; a pending retry starts now.

        If there are many, calls run in between: a new container may move a thousand.

        Args:
            keys: containers; those without a grant are ignored.
            read: whether to read their cgroups first, instead of relying on what was applied last.
        """
        if self.holds:
            return
        node, count = self.context.state.node, self.context.settings.concurrent_updates
        for key in keys[:count]:
            if worker := self._workers.get(key):
                worker.read |= read
                if worker.wake:
                    worker.wake.set()
            elif key in node.grants and (read or not rests(node, key, self.context.in_flight)):
                self._workers[key] = _Worker(read)
                self.context.tasks.spawn(f"update {key}", self._work(key, self._workers[key]))
            else:
                self._causes.pop(key, None)
        if rest := keys[count:]:
            asyncio.get_running_loop().call_soon(partial(self.enqueue, rest, read=read))

    @property
    def at_work(self) -> bool:
        """Whether any container is being read or updated, or waits for that."""
        return bool(self._workers)

    def trouble(self, key: str) -> Trouble:
        """Return how often the current update of *key* has failed, and the last error; empty if it has not failed."""
        worker = self._workers.get(key)
        return worker.trouble if worker else _NO_TROUBLE

    def troubles(self) -> dict[str, Trouble]:
        """Return the failures of all containers whose last update failed, by key."""
        return {key: worker.trouble for key, worker in self._workers.items() if worker.trouble.error}

    def misplaced_since_s(self) -> list[float]:
        """Return since when each container that differs from its grant is being updated, on the monotonic clock."""
        node = self.context.state.node
        at_work = ((worker, node.grants.get(key), node.applied.get(key)) for key, worker in self._workers.items())
        return [worker.since_s for worker, grant, applied in at_work if grant and not in_place(grant, applied)]

    def excess(self) -> ExcessCpus:
        """Return the CPUs beyond their grants on which containers may be running now."""
        return self._excess.of(self.context.state.node)

    def blockers(self, key: str) -> list[str]:
        """Return the keys of the containers that may run on CPUs which they must give up and *key* gets."""
        return blockers_of(self.context.state.node, key, self.excess())

    def now(self, key: str) -> Applied | None:
        """Return what *key* may have at this moment: its next step towards its grant, or what it has."""
        node = self.context.state.node
        return (self._target(key) or node.applied.get(key)) if key in node.grants else None

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Hold one of the few slots and the lock of *key*, which a call of the kubelet may hold for minutes."""
        await self.context.locks.free(key)  # before taking a slot: others need it
        async with self._slots, self.context.locks.of(key, "an update of criproxy"):
            yield

    def is_reading(self, key: str) -> bool:
        """Whether a worker is about to read the cgroup of *key*."""
        worker = self._workers.get(key)
        return worker is not None and worker.read

    async def read_cgroup(self, key: str) -> Seen:
        """Read what *key* has, and apply it to the node; the caller holds its lock.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        seen = await self.context.cgroups.read(key, to_read(self.context.state.node.grants.get(key)))
        node = self.context.state.node
        has = seen.applied and as_granted(seen.applied, node.grants.get(key), node.applied.get(key))
        await self._apply(key, seen, has)
        return replace(seen, applied=has)

    async def bring_into_place(self, key: str, why: str = "it had to be in its place before its start") -> None:
        """Bring a container in line with its grant, as far as CPUs are free; the caller holds its lock.

        Args:
            key: the container.
            why: the reason, for the history.

        Raises:
            RuntimeCallError: the runtime refuses an update.
        """
        while self._updatable(key) and (wanted := self._target(key)):
            await self._update(key, wanted, why)

    async def _work(self, key: str, worker: _Worker) -> None:
        try:
            while self._is_placed(key):
                if worker.read or self._target(key):
                    await self._attempt(key, worker)
                    continue
                node = self.context.state.node
                if not self._updatable(key) or in_place(node.grants[key], node.applied.get(key)):
                    return
                await self.context.state.changed()
        finally:
            del self._workers[key]
            self._causes.pop(key, None)
            if not self._workers:
                self.context.state.notify()

    async def _attempt(self, key: str, worker: _Worker) -> None:
        """Read or update once; pause after a failure."""
        try:
            async with self.turn(key):
                await self._step(key, worker)
        except Exception as error:  # noqa: BLE001 (after any error, the container still differs from its grant)
            worker.wake, worker.read = asyncio.Event(), True
            settings = self.context.settings
            self._failed(key, worker, error)
            pause_s = min(settings.retry_pause_s * 2 ** min(worker.trouble.failures - 1, 20), settings.retry_limit_s)
            await wait_at_most(pause_s, worker.wake.wait())

    def _failed(self, key: str, worker: _Worker, error: Exception) -> None:
        if not isinstance(error, RuntimeCallError):
            self.context.tasks.failed("background", f"update {key}", error)
        text = for_kubelet(error)  # a start that waits for this update may return it
        if worker.trouble.error != text:  # most retries fail with the same error
            self.context.state.note(key, Kind.LOST if isinstance(error, UpdateLost) else Kind.FAILED, text)
        worker.trouble = Trouble(text, worker.trouble.failures + 1)
        self.context.state.notify()
        self.context.log.warning("update failed", container=key, failures=worker.trouble.failures, error=str(error))

    async def _step(self, key: str, worker: _Worker) -> None:
        """Read or update under the lock; the node may have changed during the wait for it."""
        failures = worker.trouble.failures
        if not self._is_placed(key):
            return
        if worker.read:
            worker.read = False  # before the read: a change during it requires another read
            is_reported = await if_reported(self.read_cgroup(key)) is not None
            if not is_reported and self._updatable(key) and (ours := self.now(key)):
                await self._update(key, ours, "the runtime does not report what it has", failures=failures)
        elif wanted := self._target(key):
            await self._update(key, wanted, failures=failures)
            if failures:
                self.context.log.info("update succeeded after failures", container=key, failures=failures)
            worker.trouble = _NO_TROUBLE

    async def _update(self, key: str, wanted: Applied, why: str = "", *, failures: int = 0) -> None:
        """Send an update, read its effect and apply it to the node.

        Raises:
            RuntimeCallError: the runtime refuses the update, or (`UpdateLost`) the cgroup shows other values.
        """
        node, begun_s = self.context.state.node, monotonic()
        grant, had = node.grants[key], node.applied.get(key)
        await self._send(key, wanted, had)
        # If the cgroup cannot be read, the answer must suffice: other containers wait for these CPUs.
        seen = await if_reported(self.context.cgroups.read(key, to_read(grant))) or Seen(ContainerState.RUNNING)
        has = as_granted(seen.applied or wanted, self.context.state.node.grants.get(key), wanted)
        lost = seen.applied is not None and not agrees(grant, wanted, has)
        if not lost and seen.state in (ContainerState.RUNNING, ContainerState.CREATED):
            with self.context.failures.harmless("an update"):  # before the event, which is written to disk with it
                took_ms = round((monotonic() - begun_s) * 1000, 1)
                self._note_update(key, had, wanted, why, failures, took_ms, is_read=seen.applied is not None)
        await self._apply(key, seen, has)
        if lost:
            self.context.counters.updates_lost += 1
            processes = f": {LEFT_RUNNING}" if self.context.in_flight.is_lost(key) else ""
            text = f"answered OK, but the cgroup has {instead_text(has, wanted)}{processes}"
            raise UpdateLost("UpdateContainerResources", StatusCode.ABORTED, text)

    def _note_update(
        self, key: str, had: Applied | None, wanted: Applied, why: str, failures: int, took_ms: float, *, is_read: bool
    ) -> None:
        """Add an update that succeeded to the history; *is_read*: whether the cgroup shows its effect."""
        node = self.context.state.node
        why = why or self._causes.get(key, "")  # now: when it was sent, the cause may not have been known
        had = had or before_release(node, key, wanted)
        texts = [update_text(had, wanted, why, is_read)]
        texts += [f"after {failures} failures"] if failures else []
        facts = {**as_facts("", wanted), **as_facts("had_", had), "why": why, "failures": failures}
        kind = Kind.RELEASED if node.released else Kind.UPDATED
        self.context.state.note(key, kind, *texts, **facts, took_ms=took_ms)

    async def _send(self, key: str, wanted: Applied, had: Applied | None) -> None:
        """Send an update and wait for its answer; raise RuntimeCallError unless the runtime does not know *key*."""
        node, linux = self.context.state.node, api.LinuxContainerResources()
        rewrite.update(linux, wanted, node.grants[key], node.containers[key], had)
        self.context.in_flight.send(key, wanted.cpus)
        counters = self.context.counters
        counters.updates_sent += 1
        counters.updates_in_flight += 1
        try:
            await self.context.runtime.update_container_resources(key, linux)
        except RuntimeCallError as error:
            if not error.not_found:
                self.enqueue([key], read=True)  # it may have been applied nevertheless
                counters.updates_failed += 1
                raise
        finally:
            counters.updates_in_flight -= 1

    async def _apply(self, key: str, seen: Seen, has: Applied | None) -> None:
        """Apply to the node the state of *key* as it was *seen*, and what it *has* if known; no update is in flight.

        A container that was not started has no cgroup: the effect of an update is known when another one is answered.
        """
        if seen.state is None:
            await self.context.state.end(events.ContainerGone(key), "cgroups")
        elif seen.state is ContainerState.EXITED:
            await self.context.state.end(events.ContainerExited(key), "cgroups")
        elif has:
            await self.context.state.apply(events.UpdateApplied(key, has))
        if has or seen.state is not ContainerState.CREATED:
            self.context.in_flight.has_read(key)

    def _decided(self, event: events.Event, node: Node, done: "asyncio.Future[Decision]") -> None:
        try:
            self._forget(event)
        finally:  # even after a failure there, containers must move
            self._carry_out(event, node, done)

    def _forget(self, event: events.Event) -> None:
        """Drop the data of containers that ended with *event*."""
        context, node = self.context, self.context.state.node
        context.in_flight.retain(node)
        if isinstance(event, events.ContainerExited | events.ContainerGone):
            context.cgroups.forget(event.key)
            self._causes.pop(event.key, None)
        elif isinstance(event, events.PodStopped | events.PodGone):
            context.cgroups.keep(node.grants.keys() | node.applied.keys())
            for key in self._causes.keys() - node.grants.keys():
                del self._causes[key]

    def _carry_out(self, event: events.Event, node: Node, done: "asyncio.Future[Decision]") -> None:
        context, error = self.context, done.exception()
        if error is not None:
            if not isinstance(error, CriproxyError):
                context.log.error("event failed", error=str(error), exc_info=error)
        elif keys := [update.key for update in done.result().updates]:
            with context.failures.harmless("the cause of updates"):
                self._causes |= causes(event, node, done.result())
            if isinstance(event, events.ContainerCreating):
                context.tasks.spawn(UPDATE_OTHERS, self._enqueue_stored(keys))
            else:
                self.enqueue(keys)

    async def _enqueue_stored(self, keys: Sequence[str]) -> None:
        """Enqueue *keys* when the create for which they move is on disk: its call waits for that, and goes first."""
        try:
            with suppress(StoreError):  # then they do not have to move
                await self.context.durable()
        finally:
            self.enqueue(keys)

    def _is_placed(self, key: str) -> bool:
        """Whether the cgroup of *key* is worth reading: the runtime knows it, and criproxy has placed it."""
        node = self.context.state.node
        container = node.containers.get(key) if key in node.grants else None
        return container is not None and container.has_id and container.state is not ContainerState.CREATING

    def _updatable(self, key: str) -> bool:
        """Whether *key* may be updated, too: an update takes no card away from it, and meets no start."""
        node, created = self.context.state.node, self.context.settings.moves_created
        return self._is_placed(key) and node.containers[key].may_move(created=created)

    def _target(self, key: str) -> Applied | None:
        """Return the next step of *key* towards its grant, or what it should have already if that is uncertain."""
        node = self.context.state.node
        if not self._updatable(key):
            return None
        wanted = target(node, key, self.excess().others(key))
        if wanted is None and node.containers[key].state is ContainerState.CREATED:
            return node.applied.get(key) if self.context.in_flight.is_unread(key) else None
        return wanted
