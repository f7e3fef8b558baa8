"""Updates to other containers: brings what is applied to what was granted, and lets starts wait for it.

One worker per container that is not where it belongs. A worker reads the node again before every step, so the newest
grant counts, and whatever fails is simply tried again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from criproxy.control.containers.cgroups import LEFT_RUNNING, Kernel, Seen, if_told
from criproxy.control.containers.in_flight import Doubts
from criproxy.control.containers.locks import Lanes
from criproxy.control.containers.refused_resizes import RefusedResizes
from criproxy.control.counters import Counters
from criproxy.control.node.history import cause, told_quota, told_update
from criproxy.control.node.state import Manager
from criproxy.control.reconcile.bypass_times import Spans
from criproxy.control.reconcile.target import Overhang, in_the_way, is_in_the_way, quota_for, target
from criproxy.control.settings import Log, Settings
from criproxy.control.tasks import Tasks
from criproxy.cri import rewrite
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.engine.decision import Decision
from criproxy.engine.events import ContainerExited, ContainerGone, Event, PodGone, PodStopped, UpdateApplied
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied, CpuQuota, in_place
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.policy.api import Policy
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
class Followups:
    """Sends updates of ours; everything here runs on the event loop's thread."""

    manager: Manager
    runtime: RuntimeClient
    kernel: Kernel
    lanes: Lanes
    tasks: Tasks
    settings: Settings
    log: Log
    starting: set[str] = field(default_factory=set)
    """Keys of containers whose StartContainer the runtime has and has not answered."""
    _workers: dict[str, _Worker] = field(default_factory=dict)
    _over: Overhang = field(default_factory=Overhang)
    spans: Spans = field(default_factory=Spans)
    """When calls went by us on somebody's order."""
    refused: RefusedResizes = field(default_factory=RefusedResizes)
    """What the kubelet was told about resizes without room."""
    slots: asyncio.Semaphore = field(init=False)
    """Taken, before the container's lane, by whoever updates."""
    doubts: Doubts = field(init=False)
    """Where containers may be running beside what is applied."""

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.settings.concurrent_updates)
        self.doubts = Doubts(self.manager.stir)

    @property
    def counters(self) -> Counters:
        """What everybody counts."""
        return self.manager.counters

    def kick(self, keys: Iterable[str], *, look: bool = False, why: str = "") -> None:
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
            elif key in self.manager.node.grants:
                self._workers[key] = _Worker(look, why)
                self.tasks.spawn(f"update {key}", self._work(key, self._workers[key]))

    def submit(self, event: Event, policy: Policy | None = None) -> "asyncio.Future[Decision]":
        """Step the node and start the updates that follow; the future is that of `Manager.submit`."""
        done = self.manager.submit(event, policy)
        done.add_done_callback(partial(self._decided, event, self.manager.node))
        return done

    async def apply(self, event: Event) -> Decision:
        """Submit *event* and wait for the decision, which comes even if this wait is cancelled."""
        done = self.submit(event)
        return done.result() if done.done() else await asyncio.shield(done)

    async def ended(self, event: ContainerExited | ContainerGone, how: str) -> None:
        """Apply an end that no call told but *how* (as in `Counters.exits`); it is counted once, whoever else tells."""
        container = self.manager.node.containers.get(event.key)
        if container and container.state is not ContainerState.EXITED and not self.manager.is_ending(event.key):
            with self.manager.failures.harmless("a count"):
                self.counters.exits[how] += 1
        await self.apply(event)

    def error(self, key: str) -> str:
        """Why the last update of *key* failed; empty if it did not."""
        worker = self._workers.get(key)
        return worker.error if worker else ""

    def troubles(self) -> dict[str, Trouble]:
        """The containers whose last update failed, and how."""
        return {key: Trouble(each.error, each.failures) for key, each in self._workers.items() if each.error}

    def misplaced_since_s(self) -> list[float]:
        """For each container that has not what it was granted: since when it is being updated (monotonic clock)."""
        node = self.manager.node
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
        kicked: set[str] = set()
        try:
            async with asyncio.timeout(self.settings.barrier_timeout_s):
                while blockers := self.blockers(key):
                    for blocker in set(blockers) - kicked:
                        self.kick([blocker], look=self.doubts.unseen(blocker))
                    kicked.update(blockers)
                    await self._gives_way(blockers[-1], key)
        except TimeoutError:
            raise Blocked(self._describe(key)) from None

    async def _gives_way(self, other: str, key: str) -> None:
        """Return when *other* blocks *key* no longer: so long the rest need not be looked at, and they may be many."""
        while is_in_the_way(self.manager.node, key, self._overhang(), other):
            await self.manager.changed()

    def blockers(self, key: str) -> list[str]:
        """Keys of the containers that `clear` would wait for."""
        return in_the_way(self.manager.node, key, self._overhang())

    def now(self, key: str) -> Applied | None:
        """What *key* may have at this moment: its next step towards its grant, or what it has."""
        node = self.manager.node
        return (self._target(key) or node.applied.get(key)) if key in node.grants else None

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """One of the few `slots`, and the lane of *key*, which a call of the kubelet may have for minutes."""
        await self.lanes.free(key)  # before: others need the slot
        async with self.slots, self.lanes.of(key):
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
        seen = await self.kernel.look(key)
        has = self._known(key, seen, None)
        await self._note(key, seen, has)
        self.doubts.seen(key)
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
                elif in_place(self.manager.node.grants[key], self.manager.node.applied.get(key)):
                    return
                else:
                    await self.manager.changed()
        finally:
            del self._workers[key]

    async def _attempt(self, key: str, worker: _Worker) -> None:
        """Look or update once; after a failure, pause."""
        try:
            async with self.turn(key):
                await self._step(key, worker)
        except Exception as error:  # noqa: BLE001 (whatever it was: the container is not where it belongs)
            if not isinstance(error, RuntimeCallError):
                self.tasks.failed("background", f"update {key}", error)
            worker.failures += 1
            if worker.error != str(error):  # every one is tried again, and most fail as the one before
                self.manager.note(key, Kind.LOST if isinstance(error, UpdateLost) else Kind.FAILED, str(error))
            worker.error = str(error)
            self.manager.stir()
            self.log.warning("update failed", container=key, failures=worker.failures, error=worker.error)
            worker.wake = asyncio.Event()
            pause_s = min(self.settings.retry_pause_s * 2 ** min(worker.failures - 1, 20), self.settings.retry_limit_s)
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
                self.log.info("update went through at last", container=key, failures=worker.failures)
            worker.failures, worker.error = 0, ""

    async def _update(self, key: str, wanted: Applied, why: str, failures: int = 0) -> None:
        had, begun_s = self.manager.node.applied.get(key), monotonic()
        quota = None if had and had.lifted == wanted.lifted else quota_for(self.manager.node, key, wanted)
        linux = rewrite.update(format_cpuset(wanted.cpus), format_cpuset(wanted.mems), quota)
        self.doubts.send(key, wanted.cpus)
        counters = self.counters
        counters.updates_sent += 1
        counters.updates_in_flight += 1
        try:
            await self.runtime.update_container_resources(key, linux)
        except RuntimeCallError as error:
            if not error.not_found:
                self.kick([key], look=True)  # it may have been done all the same
                counters.updates_failed += 1
                raise
        finally:
            counters.updates_in_flight -= 1
        told = await if_told(self.kernel.look(key))  # else the answer has to do: others wait for these CPUs
        seen = told or Seen(ContainerState.RUNNING)
        has = self._known(key, seen, wanted)
        lost = seen.applied is not None and has is not None and not _reached(has, wanted)
        if not lost:  # before the event that goes to the disk with it
            took_s = monotonic() - begun_s
            with self.manager.failures.harmless("an update"):
                self._tell(key, seen, had, wanted, took_s=took_s, failures=failures, why=why)
        await self._note(key, seen, has)
        self.doubts.seen(key)
        if lost and has:
            counters.updates_lost += 1
            raise self._lost(key, has, wanted)

    def _lost(self, key: str, has: Applied, wanted: Applied) -> UpdateLost:
        text = (
            f"answered OK, but the cgroup has CPUs {format_cpuset(has.cpus)} and memory nodes "
            f"{format_cpuset(has.mems)}{told_quota(has, wanted)} instead of {format_cpuset(wanted.cpus)} and "
            f"{format_cpuset(wanted.mems)}"
        )
        why = f": {LEFT_RUNNING}" if self.kernel.is_lost(key) else ""
        return UpdateLost("UpdateContainerResources", StatusCode.ABORTED, text + why)

    def _tell(
        self, key: str, seen: Seen, had: Applied | None, has: Applied, *, took_s: float, failures: int, why: str
    ) -> None:
        """Tell the history that an update went through."""
        if seen.state not in (ContainerState.RUNNING, ContainerState.CREATED):
            return
        sentence = told_update(had, has, why, seen.applied is not None)
        after = (f"after {failures} failures",) if failures else ()
        self.manager.note(
            key,
            Kind.RELEASED if self.manager.node.released else Kind.UPDATED,
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
            await self.ended(ContainerGone(key), "cgroups")
        elif seen.state is ContainerState.EXITED:
            await self.ended(ContainerExited(key), "cgroups")
        elif has:
            await self.apply(UpdateApplied(key, has.cpus, has.mems, has.lifted))

    def _known(self, key: str, seen: Seen, sent: Applied | None) -> Applied | None:
        """What *key* has; where that cannot be seen, the runtime has what was *sent*."""
        applied, node = seen.applied or sent, self.manager.node
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
            self.kernel.forget(event.key)
            self.doubts.keep(self.manager.node.grants.keys())
        elif isinstance(event, PodStopped | PodGone):
            self.kernel.keep(self.manager.node.grants.keys())
            self.doubts.keep(self.manager.node.grants.keys())
        error = done.exception()
        if error is None:
            if updates := done.result().updates:
                why = ""
                with self.manager.failures.harmless("the cause of updates"):
                    why = cause(event, node)
                self._kick_by_and_by([update.key for update in updates], why)
        elif not isinstance(error, CriproxyError):
            self.log.error("event failed", error=str(error), exc_info=error)

    def _kick_by_and_by(self, keys: Sequence[str], why: str) -> None:
        """Kick *keys*, but let calls through in between: a newcomer may move a thousand."""
        count = self.settings.concurrent_updates
        self.kick(keys[:count], why=why)
        if rest := keys[count:]:
            asyncio.get_running_loop().call_soon(self._kick_by_and_by, rest, why)

    def _updatable(self, key: str) -> bool:
        """Whether the runtime can be told something about *key*: it is known there, alive, and placed by us."""
        container = self.manager.node.containers.get(key)
        if container is None or container.stays or key not in self.manager.node.grants:
            return False
        return key != container.reservation and container.state is not ContainerState.CREATING

    def _target(self, key: str) -> Applied | None:
        return target(self.manager.node, key, self._overhang())

    def _overhang(self) -> Overhang:
        return self._over.of(self.manager.node, self.starting, self.doubts)

    def _describe(self, key: str) -> str:
        node = self.manager.node
        blockers = self.blockers(key)
        named = [
            f"{node.containers[other].title} ({self.error(other) or 'its update is under way'})"
            for other in blockers[:_NAMED_BLOCKERS]
        ]
        more = f" and {len(blockers) - len(named)} others" if len(blockers) > len(named) else ""
        return (
            f"container {node.containers[key].title} cannot start on CPUs {format_cpuset(node.grants[key].cpus)} yet: "
            f"after {self.settings.barrier_timeout_s:g} s some of them are still used by {', '.join(named)}{more}"
        )


def _reached(seen: Applied, wanted: Applied) -> bool:
    same_sets = seen.cpus == wanted.cpus and (not wanted.mems or seen.mems == wanted.mems)
    return same_sets and seen.lifted == wanted.lifted
