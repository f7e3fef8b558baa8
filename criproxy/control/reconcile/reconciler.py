"""Updates to other containers: brings what is applied to what was granted, and lets starts wait for it.

One worker per container that is not where it belongs. A worker reads the node again before every step, so the newest
grant counts, and whatever fails is simply tried again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic

from criproxy.control.containers.cgroups import LEFT_RUNNING, Seen, if_told
from criproxy.control.context import Context
from criproxy.control.node.history import cause, told_quota, told_update
from criproxy.control.reconcile.target import ExcessCpus, in_the_way, is_in_the_way, quota_for, target
from criproxy.cri import rewrite
from criproxy.cri.runtime import RuntimeCallError
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
from criproxy.errors import CriproxyError, StatusCode, StoreError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied, CpuQuota, in_place
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.store.record import Kind
from criproxy.views.notices import Trouble

_NAMED_BLOCKERS = 3
"""How many blockers a refused start names; the status of a call has little room."""


class UpdateLost(RuntimeCallError):
    """The runtime answered OK to an update, and the cgroup says otherwise."""


class Blocked(Exception):
    """Others did not give up CPUs in time; the text names them."""


@dataclass(slots=True)
class _Worker:
    """What one container's worker remembers."""

    look: bool
    """Read the cgroup before anything else: somebody may have changed it."""
    why: str = ""
    """What brought the container out of its place, for the history."""
    failures: int = 0
    error: str = ""
    since_s: float = field(default_factory=monotonic)
    wake: asyncio.Event | None = None
    """Ends the pause after a failure; there is none before: a thousand workers may wait for their first turn."""


@dataclass(slots=True)
class Reconciler:
    """Sends updates of ours; everything here runs on the event loop's thread."""

    context: Context
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _excess: ExcessCpus = field(default_factory=ExcessCpus)
    _slots: asyncio.Semaphore = field(init=False)
    """Taken, before the container's lock, by whoever updates."""

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.context.settings.concurrent_updates)
        self.context.state.followed = self._decided

    def enqueue(self, keys: Iterable[str], *, look: bool = False, why: str = "") -> None:
        """See to it that the containers *keys* get what they were granted; one that is tried again later is tried now.

        Args:
            keys: containers; those that have no grant are left out.
            look: read what they have first, instead of believing what was applied last.
            why: what brought them out of their places, for the history.
        """
        for key in keys:
            if worker := self._workers.get(key):
                worker.look |= look
                worker.why = why or worker.why
                if worker.wake:
                    worker.wake.set()
            elif key in self.context.state.node.grants:
                self._workers[key] = _Worker(look, why)
                self.context.tasks.spawn(f"update {key}", self._work(key, self._workers[key]))

    @property
    def at_work(self) -> bool:
        """Whether any container is being looked at or updated, or waits for that."""
        return bool(self._workers)

    def error(self, key: str) -> str:
        """Why the last update of *key* failed; empty if it did not."""
        worker = self._workers.get(key)
        return worker.error if worker else ""

    def troubles(self) -> dict[str, Trouble]:
        """The containers whose last update failed, and how."""
        return {key: Trouble(each.error, each.failures) for key, each in self._workers.items() if each.error}

    def misplaced_since_s(self) -> list[float]:
        """For each container that has not what it was granted: since when it is being updated (monotonic clock)."""
        node = self.context.state.node
        at_work = ((worker, node.grants.get(key), node.applied.get(key)) for key, worker in self._workers.items())
        return [worker.since_s for worker, grant, applied in at_work if grant and not in_place(grant, applied)]

    def failures(self, key: str) -> int:
        """How often the update of *key* that is under way has failed."""
        worker = self._workers.get(key)
        return worker.failures if worker else 0

    async def clear(self, key: str) -> None:
        """Return when no other container can still be running on CPUs that it must give up and *key* gets.

        Raises:
            Blocked: after ``barrier_timeout_s``.
        """
        enqueued: set[str] = set()
        try:
            async with asyncio.timeout(self.context.settings.barrier_timeout_s):
                while blockers := self.blockers(key):
                    for blocker in set(blockers) - enqueued:
                        self.enqueue([blocker], look=self.context.in_flight.unseen(blocker))
                    enqueued.update(blockers)
                    await self._gives_way(blockers[-1], key)
        except TimeoutError:
            raise Blocked(self._describe(key)) from None

    async def _gives_way(self, other: str, key: str) -> None:
        """Return when *other* blocks *key* no longer: so long the rest need not be looked at, and they may be many."""
        while is_in_the_way(self.context.state.node, key, self._excess_cpus(), other):
            await self.context.state.changed()

    def blockers(self, key: str) -> list[str]:
        """Keys of the containers that `clear` would wait for."""
        return in_the_way(self.context.state.node, key, self._excess_cpus())

    def now(self, key: str) -> Applied | None:
        """What *key* may have at this moment: its next step towards its grant, or what it has."""
        node = self.context.state.node
        return (self._target(key) or node.applied.get(key)) if key in node.grants else None

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """One of the few `slots`, and the lane of *key*, which a call of the kubelet may have for minutes."""
        await self.context.locks.free(key)  # before: others need the slot
        async with self._slots, self.context.locks.of(key):
            yield

    def looking(self, key: str) -> bool:
        """Whether a worker is about to read what *key* has."""
        worker = self._workers.get(key)
        return worker is not None and worker.look

    async def look(self, key: str) -> Seen:
        """Read what *key* has and tell the node; the caller holds its lane.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        seen = await self.context.cgroups.look(key)
        has = self._known(key, seen, None)
        await self._note(key, seen, has)
        self.context.in_flight.seen(key)
        return replace(seen, applied=has)

    async def settle(self, key: str, why: str = "it had to be in its place before its start") -> None:
        """Bring a container to its grant, as far as others have made room; the caller holds its lane.

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
                if worker.look or self._target(key):
                    await self._attempt(key, worker)
                elif in_place(self.context.state.node.grants[key], self.context.state.node.applied.get(key)):
                    return
                else:
                    await self.context.state.changed()
        finally:
            del self._workers[key]
            if not self._workers:
                self.context.state.stir()

    async def _attempt(self, key: str, worker: _Worker) -> None:
        """Look or update once; after a failure, pause."""
        try:
            async with self.turn(key):
                await self._step(key, worker)
        except Exception as error:  # noqa: BLE001 (whatever it was: the container is not where it belongs)
            if not isinstance(error, RuntimeCallError):
                self.context.tasks.failed("background", f"update {key}", error)
            worker.failures += 1
            if worker.error != str(error):  # every one is tried again, and most fail as the one before
                self.context.state.note(key, Kind.LOST if isinstance(error, UpdateLost) else Kind.FAILED, str(error))
            worker.error = str(error)
            self.context.state.stir()
            self.context.log.warning("update failed", container=key, failures=worker.failures, error=worker.error)
            worker.wake = asyncio.Event()
            pause_s = min(
                self.context.settings.retry_pause_s * 2 ** min(worker.failures - 1, 20),
                self.context.settings.retry_limit_s,
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(worker.wake.wait(), pause_s)

    async def _step(self, key: str, worker: _Worker) -> None:
        """The lane is ours now, and the node may have changed while we waited for it."""
        if not self._updatable(key):
            return
        if worker.look:
            worker.look = False  # before: who asks while we look wants to have seen what is there afterwards
            try:
                if await if_told(self.look(key)) is None and (ours := self.now(key)):
                    await self._update(key, ours, "the runtime does not tell what it has", worker.failures)
            except BaseException:
                worker.look = True
                raise
        elif wanted := self._target(key):
            await self._update(key, wanted, worker.why, worker.failures)
            if worker.failures:
                self.context.log.info("update went through at last", container=key, failures=worker.failures)
            worker.failures, worker.error = 0, ""

    async def _update(self, key: str, wanted: Applied, why: str, failures: int = 0) -> None:
        had, begun_s = self.context.state.node.applied.get(key), monotonic()
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
                self.enqueue([key], look=True)  # it may have been done all the same
                counters.updates_failed += 1
                raise
        finally:
            counters.updates_in_flight -= 1
        told = await if_told(self.context.cgroups.look(key))  # else the answer has to do: others wait for these CPUs
        seen = told or Seen(ContainerState.RUNNING)
        has = self._known(key, seen, wanted)
        lost = seen.applied is not None and has is not None and not _reached(has, wanted)
        if not lost:  # before the event that goes to the disk with it
            took_s = monotonic() - begun_s
            with self.context.failures.harmless("an update"):
                self._tell(key, seen, had, wanted, took_s=took_s, failures=failures, why=why)
        await self._note(key, seen, has)
        self.context.in_flight.seen(key)
        if lost and has:
            counters.updates_lost += 1
            raise self._lost(key, has, wanted)

    def _lost(self, key: str, has: Applied, wanted: Applied) -> UpdateLost:
        text = (
            f"answered OK, but the cgroup has CPUs {format_cpuset(has.cpus)} and memory nodes "
            f"{format_cpuset(has.mems)}{told_quota(has, wanted)} instead of {format_cpuset(wanted.cpus)} and "
            f"{format_cpuset(wanted.mems)}"
        )
        why = f": {LEFT_RUNNING}" if self.context.cgroups.is_lost(key) else ""
        return UpdateLost("UpdateContainerResources", StatusCode.ABORTED, text + why)

    def _tell(
        self, key: str, seen: Seen, had: Applied | None, has: Applied, *, took_s: float, failures: int, why: str
    ) -> None:
        """Tell the history that an update went through."""
        if seen.state not in (ContainerState.RUNNING, ContainerState.CREATED):
            return
        sentence = told_update(had, has, why, seen.applied is not None)
        after = (f"after {failures} failures",) if failures else ()
        self.context.state.note(
            key,
            Kind.RELEASED if self.context.state.node.released else Kind.UPDATED,
            sentence,
            *after,
            cpus=format_cpuset(has.cpus),
            mems=format_cpuset(has.mems),
            had_cpus=format_cpuset(had.cpus) if had else "",
            had_mems=format_cpuset(had.mems) if had else "",
            why=why,
            failures=failures,
            took_ms=round(took_s * 1000, 1),
        )

    async def _note(self, key: str, seen: Seen, has: Applied | None) -> None:
        """Tell the node that *key* was *seen*, and *has* this as far as that is known."""
        if seen.state is None:
            await self.context.state.end(ContainerGone(key), "cgroups")
        elif seen.state is ContainerState.EXITED:
            await self.context.state.end(ContainerExited(key), "cgroups")
        elif has:
            await self.context.state.apply(UpdateApplied(key, has.cpus, has.mems, has.lifted))

    def _known(self, key: str, seen: Seen, sent: Applied | None) -> Applied | None:
        """What *key* has; where that cannot be seen, the runtime has what was *sent*."""
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
        if isinstance(event, ContainerExited | ContainerGone):
            self.context.cgroups.forget(event.key)
            self.context.in_flight.keep(self.context.state.node.grants.keys())
        elif isinstance(event, PodStopped | PodGone):
            self.context.cgroups.keep(self.context.state.node.grants.keys())
            self.context.in_flight.keep(self.context.state.node.grants.keys())
        error = done.exception()
        if error is None:
            if updates := done.result().updates:
                why = ""
                with self.context.failures.harmless("the cause of updates"):
                    why = cause(event, node)
                keys = [update.key for update in updates]
                if isinstance(event, ContainerCreating):
                    self.context.tasks.spawn("update others", self._enqueue_stored(keys, why))
                else:
                    self._enqueue_by_and_by(keys, why)
        elif not isinstance(error, CriproxyError):
            self.context.log.error("event failed", error=str(error), exc_info=error)

    async def _enqueue_stored(self, keys: Sequence[str], why: str) -> None:
        """Enqueue *keys* when the create for which they move is on disk: its call waits for that, and goes first."""
        with suppress(StoreError):  # then they have not to move
            await self.context.state.durable()
        self._enqueue_by_and_by(keys, why)

    def _enqueue_by_and_by(self, keys: Sequence[str], why: str) -> None:
        """Enqueue *keys*, but let calls through in between: a new container may move a thousand."""
        count = self.context.settings.concurrent_updates
        self.enqueue(keys[:count], why=why)
        if rest := keys[count:]:
            asyncio.get_running_loop().call_soon(self._enqueue_by_and_by, rest, why)

    def _updatable(self, key: str) -> bool:
        """Whether the runtime can be told something about *key*: it is known there, alive, and placed by us."""
        container = self.context.state.node.containers.get(key)
        if container is None or container.stays or key not in self.context.state.node.grants:
            return False
        return key != container.reservation and container.state is not ContainerState.CREATING

    def _target(self, key: str) -> Applied | None:
        return target(self.context.state.node, key, self._excess_cpus())

    def _excess_cpus(self) -> ExcessCpus:
        return self._excess.of(self.context.state.node, self.context.in_flight.starting, self.context.in_flight)

    def _describe(self, key: str) -> str:
        node = self.context.state.node
        blockers = self.blockers(key)
        named = [
            f"{node.containers[other].title} ({self.error(other) or 'its update is under way'})"
            for other in blockers[:_NAMED_BLOCKERS]
        ]
        timeout_s = self.context.settings.barrier_timeout_s
        more = f" and {len(blockers) - len(named)} others" if len(blockers) > len(named) else ""
        return (
            f"container {node.containers[key].title} cannot start on CPUs {format_cpuset(node.grants[key].cpus)} yet: "
            f"after {timeout_s:g} s some of them are still used by {', '.join(named)}{more}"
        )


def _reached(seen: Applied, wanted: Applied) -> bool:
    same_sets = seen.cpus == wanted.cpus and (not wanted.mems or seen.mems == wanted.mems)
    return same_sets and seen.lifted == wanted.lifted
