"""Asks the runtime where we do not know: calls that ended without an answer, and containers that may have exited.

Lists race with calls. A container that was touched after a list was requested, or that a call is about, is not judged
by that list.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from criproxy.control.containers.cgroups import if_told
from criproxy.control.context import Context
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.sync.inheritance import Inheritance
from criproxy.control.sync.sizes_in_force import believe
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.stamp import read_stamp
from criproxy.engine.events import (
    ContainerCreated,
    ContainerExited,
    ContainerGone,
    ContainerStarted,
    Event,
    PodNotReady,
    UnknownOutcome,
)
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Sizes

LONGEST_PAUSE_S = 60.0
"""Between two questions about a container of which the runtime does not answer any, where no start waits for that."""
LANE_S = 0.5
"""How long others wait for the end of what is under way at a container that may have ended."""
AT_ONCE = 16
"""Containers whose outcome is asked for side by side: after a start that may be all there are."""


@dataclass(slots=True)
class Outcomes:
    """Turns answers of the runtime into events."""

    context: Context
    reconciler: Reconciler
    creating: set[str] = field(default_factory=set)
    """Reservations whose create ended without an answer and is being asked for."""
    inheritance: Inheritance = field(default_factory=Inheritance)
    _ending: set[str] = field(default_factory=set)
    _suspected: set[str] = field(default_factory=set)
    """Who runs though the runtime says otherwise, for a moment so far."""
    _told: set[str] = field(default_factory=set)
    _wanted: dict[str, bool] = field(default_factory=dict)
    """Containers that are being asked for; True: once more after that, since something has happened meanwhile."""
    _starts: dict[str, bool] = field(default_factory=dict)
    """The same of those of which a start may be under way."""
    _asking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def release_exited(self, sandbox_id: str = "") -> None:
        """Give back the places of containers that have ended without a call: of one sandbox, or of all.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        before = self.context.state.node
        await self.judge(before, await self.context.runtime.list_containers(sandbox_id), sandbox_id)
        if not sandbox_id:
            await self.release_kept()

    async def release_kept(self) -> None:
        """Give back what is kept for pods whose sandboxes have ended without a call.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        before = self.context.state.node
        if before.kept:
            await self.judge_sandboxes(before, await self.context.runtime.list_pod_sandbox())

    async def judge_sandboxes(self, before: Node, items: Iterable[api.PodSandbox]) -> None:
        """Nothing is kept for pods whose sandbox is not ready, or not there, by a list requested after *before*."""
        if not before.kept and not before.pods_with_exclusive:
            return
        ready = {item.id for item in items if item.state == api.SANDBOX_READY}
        for key, pod in before.pods.items():
            concerned = pod.uid in before.kept or key in before.pods_with_exclusive
            if concerned and not pod.stopped and key not in ready:
                await self.sandbox_ended(key)

    async def sandbox_ended(self, key: str) -> None:
        """The sandbox *key* has ended; its containers may go on."""
        self.inheritance.ended(self.context.state.node, key)
        await self.context.state.apply(PodNotReady(key))

    async def judge(self, before: Node, items: Iterable[api.Container], sandbox_id: str = "") -> None:
        """Give back the places of those who have ended, by a list (of one sandbox) requested after *before*."""
        listed = {item.id: item for item in items}
        asked = before.containers_of(sandbox_id) if sandbox_id else before.containers.values()
        for container in asked:
            event = _ended(container, listed.get(container.key))
            if event and await self.has_ended(container, is_listed=container.key in listed):
                await self.context.state.end(event, "lists")

    async def judge_created(
        self, before: Node, sandboxes: Iterable[api.PodSandbox], items: Iterable[api.Container]
    ) -> None:
        """Give back the places of those who will `never_to_start`, by lists requested after *before*."""
        for key in never_to_start(sandboxes, items):
            container = before.containers.get(key)
            if container is None or container.state is not ContainerState.CREATED or self.is_doubtful(key):
                continue
            if await self.undisturbed(container):
                await self.context.state.end(ContainerExited(key), "lists")

    async def has_ended(self, container: Container, *, is_listed: bool = True) -> bool:
        """Whether a list is to be believed that calls *container* exited or, if not *is_listed*, does not have it.

        Raises:
            RuntimeCallError: if the runtime cannot be asked where its cgroup is, in which processes may be left. Where
                it tells nothing of this one alone, the list is believed of a container whose start had ended well.
        """
        if self.is_doubtful(container.key) or not await self.undisturbed(container):
            return False
        if not is_listed:
            return True
        told = await if_told(self.context.cgroups.ask(container.key))
        ended = container.state is ContainerState.RUNNING if told is None else told[0].ended
        return ended and await self.undisturbed(container)

    def is_doubtful(self, key: str) -> bool:
        """Whether a runtime that calls *key* exited is not to be believed: its start may be under way, or was cut."""
        return self.context.in_flight.may_start(key) or self.context.cgroups.still_runs(key)

    async def try_release_exited(self, sandbox_id: str = "") -> None:
        """The same; a runtime that cannot be asked has released nothing."""
        try:
            await self.release_exited(sandbox_id)
        except RuntimeCallError as error:
            self.context.log.warning("cannot ask which containers have exited", error=str(error))

    async def undisturbed(self, container: Container) -> bool:
        """Whether nothing has happened to *container* since it looked like this, after what is under way has ended.

        A start of the kubelet is not waited for: its container is just beginning. Nor is what takes long, such as an
        update that hangs in the runtime: others wait for this answer, and whoever has the lane looks at its end.
        """
        if container.key in self.context.in_flight.starting:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(LANE_S), self.context.locks.of(container.key):
                return self.context.state.node.containers.get(container.key) is container
        return False

    def ask(self, key: str) -> None:
        """Find out what became of the container *key*, in the background; cheap to repeat.

        There is one task for each container, however many calls about it end without having ended it.
        """
        if key in self._wanted:
            self._wanted[key] = True
            return
        self._wanted[key] = True
        self.context.tasks.forever(f"ask for {key}", partial(self._ask, key))

    async def _ask(self, key: str) -> None:
        await self._until_answered(self._wanted, key, unknown=False)

    async def _until_answered(self, wanted: dict[str, bool], key: str, *, unknown: bool) -> None:
        """Ask for *key* as often as it is *wanted*; what is raised leaves it wanted."""
        while wanted[key]:
            wanted[key] = False
            try:
                await self.settle(key, unknown=unknown)
            except BaseException:
                wanted[key] = True
                raise
        del wanted[key]

    async def settle(self, key: str, *, unknown: bool = False) -> None:
        """Ask for the state of a container until the runtime answers, or the container is known no more.

        Args:
            key: its id.
            unknown: a start ended without an answer, so the runtime may still be at it: "not started" counts only
                after twice ``unknown_pause_s``.
        """
        longest_s = self.context.settings.unknown_pause_s
        loop = asyncio.get_running_loop()
        over_s = loop.time() + (2 * longest_s if unknown else 0.0)
        pause_s, told = (longest_s / 64 if unknown else 0.0), ""
        self.context.cgroups.forget(key)
        while True:
            await asyncio.sleep(pause_s)
            if key not in self.context.state.node.containers:
                return
            try:
                async with self._asking:
                    state = (await self.context.cgroups.look(key)).state
            except Exception as error:  # noqa: BLE001 (whatever the answer was, it was none)
                if repr(error) != told:
                    self._not_told(key, error)
                longer_s = min(2 * pause_s, LONGEST_PAUSE_S)
                told, pause_s = repr(error), longest_s if unknown else max(longer_s, longest_s)
                continue
            if state is ContainerState.CREATED and not unknown and self._is_starting(key):
                return  # and it may run in a moment: who waits for the end of its start learns that
            if state is not ContainerState.CREATED or loop.time() >= over_s:
                await self._learn(key, state)
                return
            pause_s = min(2 * pause_s, longest_s)

    def _not_told(self, key: str, error: Exception) -> None:
        """Say that the runtime did not tell what became of *key*, or that we did not understand it."""
        if isinstance(error, RuntimeCallError):
            self.context.log.warning("outcome still unknown", container=key, error=str(error))
        else:
            self.context.tasks.failed("background", f"ask for {key}", error)

    def _is_starting(self, key: str) -> bool:
        return key in self.context.in_flight.starting or self.context.in_flight.may_start(key)

    def ends(self, key: str) -> None:
        """The kubelet has ended a container whose start may be under way: if it turns out not to run, it never will."""
        self._ending = {other for other in self._ending if other in self.context.state.node.containers} | {key}

    async def resize_unknown(self, key: str, before: Sizes) -> None:
        """Ask which size is in force after an update that ended without an answer: the new one, or that of *before*.

        The runtime may still be at it, so only the second time that it says "the old one" counts.
        """
        asked = self.context.state.node.containers.get(key)
        if asked is None or asked.sizes == before:
            return
        self.context.counters.unknown_outcomes += 1
        looks = 2
        while looks and key in self.context.state.node.containers:
            await asyncio.sleep(self.context.settings.unknown_pause_s)
            try:
                async with self.context.locks.of(key):
                    in_force = await self._size_in_force(key, asked.sizes, before)
                    looks = looks - 1 if in_force else 0
                    if in_force and not looks:
                        believe(self.context, key, in_force)
            except RuntimeCallError as error:
                self.context.log.warning("outcome still unknown", container=key, error=str(error))

    async def _size_in_force(self, key: str, asked: Sizes, before: Sizes) -> Sizes | None:
        """What the runtime has instead of *asked*; None if it has that, does not tell, or was asked for more since."""
        reply = (await self.context.cgroups.ask(key))[1]
        node = self.context.state.node
        known = node.containers.get(key)
        if reply is None or known is None or known.sizes != asked or not reply.status.resources.HasField("linux"):
            return None
        linux, capacity_bytes = reply.status.resources.linux, node.topology.capacity_bytes
        if linux.cpu_quota < 0 and asked.cpu_quota and before.cpu_quota:  # lifted: it says nothing of either
            linux.cpu_quota = 0
            if translate.sizes(linux, known, capacity_bytes) == asked:
                return None
        sizes = translate.sizes(linux, known.resized(before), capacity_bytes)
        return None if sizes == asked else sizes

    def start_unknown(self, key: str) -> None:
        """A start of *key* may be under way of which nobody will tell us the end: until then, `InFlight` counts it.

        Our updates of that container may be answered OK and lost meanwhile, so what it has is read afterwards.
        """
        node = self.context.state.node
        applied = node.applied.get(key)
        believed = applied is not None and node.containers[key].state is ContainerState.CREATED
        self.context.in_flight.start(key, applied.cpus if applied and believed else node.topology.cpus)
        if key not in self._starts:
            self.context.tasks.forever(f"ask for {key}", partial(self._settle_start, key))
        self._starts[key] = True

    async def _settle_start(self, key: str) -> None:
        await self._until_answered(self._starts, key, unknown=True)
        self.context.in_flight.start_settled(key)
        await self._judge_unstarted(key)
        self.reconciler.enqueue([key], look=True)

    async def _judge_unstarted(self, key: str) -> None:
        """The start of *key* was none; as long as that was in doubt, `judge_created` could not judge it."""
        before = self.context.state.node
        if (container := before.containers.get(key)) is None or container.state is not ContainerState.CREATED:
            return
        runtime = self.context.runtime
        with suppress(RuntimeCallError):  # the next comparison says it, too
            sandboxes, items = await asyncio.gather(runtime.list_pod_sandbox(), runtime.list_containers(container.pod))
            await self.judge_created(before, sandboxes, items)

    def create_unknown(self, reservation: str, sandbox_id: str) -> None:
        """Keep the place of a create that ended without an answer until lists tell its outcome."""
        if reservation not in self.creating:
            self.creating.add(reservation)
            self.context.counters.unknown_outcomes += 1
            self.context.state.submit(UnknownOutcome(reservation))
            self.context.tasks.spawn(f"ask for {reservation}", self._find(reservation, sandbox_id))

    async def _find(self, reservation: str, sandbox_id: str) -> None:
        absent = 0
        try:
            while absent < 2 and self._pending(reservation):
                await asyncio.sleep(self.context.settings.unknown_pause_s)
                try:
                    items = await self.context.runtime.list_containers(sandbox_id)
                except RuntimeCallError as error:
                    self.context.log.warning("outcome still unknown", reservation=reservation, error=str(error))
                    continue
                absent += 1
                if self._pending(reservation) and (found := stamped(items, reservation)):
                    await self.created(reservation, found)
            if self._pending(reservation):
                await self.context.state.apply(ContainerGone(reservation))
        finally:
            self.creating.discard(reservation)

    async def created(self, reservation: str, found: api.Container) -> None:
        """The container of *reservation* was found in a list."""
        await self.context.state.apply(ContainerCreated(reservation, found.id))
        await self._learn(found.id, translate.state(found))

    def _pending(self, reservation: str) -> bool:
        return reservation in self.context.state.node.containers

    async def _learn(self, key: str, state: ContainerState | None) -> None:
        container = self.context.state.node.containers.get(key)
        if container is None:
            return
        if state is ContainerState.CREATED and key in self._ending:
            state = ContainerState.EXITED
        await self.context.state.apply(_event(container, state))
        if state is ContainerState.RUNNING:
            self._see_if_left(container)
            self.reconciler.enqueue([key], look=True)

    def _see_if_left(self, container: Container) -> None:
        """Say once that a container runs though the runtime says that it does not, and goes on doing so."""
        kernel = self.context.cgroups
        if kernel.is_lost(container.key):
            self._tell_left(container)
        elif kernel.still_runs(container.key) and container.key not in self._suspected:
            self._suspected.add(container.key)
            self.context.tasks.spawn(f"see whether {container.key} is lost", self._tell_later(container))

    async def _tell_later(self, container: Container) -> None:
        try:
            await asyncio.sleep(self.context.cgroups.lost_after_s)
        finally:
            self._suspected.discard(container.key)
        self._see_if_left(container)

    def _tell_left(self, container: Container) -> None:
        if container.key not in self._told:
            self._told = {other for other in self._told if other in self.context.state.node.containers}
            self._told.add(container.key)
            text = "the runtime has lost a container whose processes run: it keeps its place"
            self.context.log.warning(text, container=container.title, id=container.key)


def never_to_start(sandboxes: Iterable[api.PodSandbox], items: Iterable[api.Container]) -> frozenset[str]:
    """Containers that were created in a sandbox that is not ready any more, as a reboot leaves them.

    Runtimes start nobody there, and no call tells of it: the kubelet makes another sandbox, and removes this one some
    time later.
    """
    ended = {sandbox.id for sandbox in sandboxes if sandbox.state == api.SANDBOX_NOTREADY}
    created = (item for item in items if item.state == api.CONTAINER_CREATED)
    return frozenset(item.id for item in created if item.pod_sandbox_id in ended)


def stamped(items: Iterable[api.Container], reservation: str) -> api.Container | None:
    """The container among *items* that was created under *reservation*."""
    stamps = ((item, read_stamp(item.annotations)) for item in items)
    return next((item for item, stamp in stamps if stamp and stamp.reservation == reservation), None)


def unconfirmed(node: Node) -> list[Container]:
    """Containers that have a place but no id from the runtime yet."""
    return [container for container in node.containers.values() if container.key == container.reservation]


def _event(container: Container, state: ContainerState | None) -> Event:
    match state:
        case None:
            return ContainerGone(container.key)
        case ContainerState.EXITED:
            return ContainerExited(container.key)
        case ContainerState.RUNNING:
            return ContainerStarted(container.key)
        case ContainerState.CREATED:
            return ContainerCreated(container.reservation, container.key)
        case _:
            return UnknownOutcome(container.key)


def _ended(container: Container, item: api.Container | None) -> ContainerExited | ContainerGone | None:
    """What a list says about the end of *container*; None if it says nothing new."""
    if container.key == container.reservation:
        return None
    if item is None:
        return ContainerGone(container.key)
    has_exited = translate.state(item) is ContainerState.EXITED and container.state is not ContainerState.EXITED
    return ContainerExited(container.key) if has_exited else None
