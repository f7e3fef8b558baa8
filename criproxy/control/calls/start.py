"""StartContainer and the kubelet's UpdateContainerResources: the two calls that have a container's lane to themselves.

A start is the barrier: it waits until nobody can still be running on the CPUs that the container gets.
"""

from contextlib import suppress
from dataclasses import dataclass
from time import gmtime, monotonic, strftime, time

from criproxy.control.containers.cgroups import if_told
from criproxy.control.containers.refused_resizes import RefusedResizes, warn
from criproxy.control.context import Context
from criproxy.control.node.persister import CannotBeStored
from criproxy.control.reconcile.reconciler import Blocked, Reconciler
from criproxy.control.reconcile.target import quota_for
from criproxy.control.sync.outcomes import Outcomes
from criproxy.control.sync.resync import Resync
from criproxy.control.sync.sizes_in_force import believe
from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite, translate
from criproxy.cri.asked import asked_anew
from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.events import ContainerResized, ContainerStarted, ResizeRefused, UnknownOutcome
from criproxy.engine.guard import PolicyFault
from criproxy.errors import NotEnough, Refused, StatusCode, StoreError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import in_place
from criproxy.model.workload import ContainerState, Sizes
from criproxy.store.record import Kind
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Verdict

NAMED = 3
"""How many of those for whom a start waited the history names."""


@dataclass(frozen=True, slots=True)
class Locked:
    """A held call that holds the lane of a container until its end."""

    key: str


@dataclass(frozen=True, slots=True)
class Resizing(Locked):
    """A held update of the kubelet."""

    before: Sizes
    """What the container asked for until then: so it is again if the runtime refuses."""
    sizes: Sizes
    """What it asks for now."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Cpusets that the kubelet sends, which are replaced with ours."""

    title: str
    """Of the container of the last one."""
    cpus: str
    times: int
    """How many there were since the start."""
    at_s: float
    """When the last one came, in seconds since the epoch."""

    def sentence(self) -> str:
        """What is wrong, and what would be right."""
        when = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(self.at_s))
        return (
            "the kubelet's CPU manager, or another criproxy on this runtime, sets cpusets too "
            f"({self.times} times, last at {when} CPUs {self.cpus} for {self.title}); "
            "they are replaced with ours: set cpuManagerPolicy: none in the kubelet's configuration"
        )


@dataclass(slots=True)
class Starts:
    """The handlers of StartContainer."""

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    resync: Resync

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Let the start through once its CPUs are free and its own cpuset is up to date."""
        context = self.context
        container_id = translate.read(api.StartContainerRequest, message).container_id
        key = context.state.resolve(container_id)
        try:
            if key not in context.state.node.containers:
                await self.resync.meet(container_id)
                key = context.state.resolve(container_id)
            if given_up := await self._given_up(key):
                return Refuse(StatusCode.FAILED_PRECONDITION, given_up)
            while key in context.state.node.grants:
                await self._clear(key)
                if await self._enter(key):
                    call.context = Locked(key)
                    break
        except Blocked as error:
            context.log.warning("start refused", container=key, error=str(error))
            context.state.note(key, Kind.WAITED, f"its start was refused: {error}")
            return Refuse(StatusCode.UNAVAILABLE, str(error))
        except RuntimeCallError as error:
            return Refuse(StatusCode.UNAVAILABLE, f"cannot prepare container {key} for its start: {error}")
        return Proceed()

    async def _given_up(self, key: str) -> str:
        """Why *key* may not start: its place is others' since it was stopped, or another attempt came; else empty.

        No kubelet starts such a container. One that the runtime knows to have ended, it refuses itself.
        """
        container = self.context.state.node.containers.get(key)
        if container is None or container.state is not ContainerState.EXITED:
            return ""
        told = await if_told(self.context.cgroups.ask(key))
        if told is None or told[0].state is not ContainerState.CREATED:
            return ""
        return (
            f"container {container.title} was given up before it ran, and has no place any more: make another attempt"
        )

    async def anyway(self, call: Call, message: bytes) -> bool:
        """Whether the start may go on although `hold` failed: nothing has to be done or waited for before it."""
        context, reconciler = self.context, self.reconciler
        key = context.state.resolve(translate.read(api.StartContainerRequest, message).container_id)
        grant, applied = context.state.node.grants.get(key), context.state.node.applied.get(key)
        if grant is None or not in_place(grant, applied) or context.locks.busy(key) or reconciler.blockers(key):
            return False
        await context.locks.enter(key)  # at once: it is not busy
        context.in_flight.starting.add(key)
        call.context = Locked(key)
        return True

    async def _clear(self, key: str) -> None:
        """Wait for those who still have its CPUs, and tell the history for whom, and how long; raises Blocked."""
        context, reconciler, begun_s = self.context, self.reconciler, monotonic()
        containers = context.state.node.containers
        others = [containers[other].title for other in reconciler.blockers(key)]
        await reconciler.clear(key)
        if others:
            waited_ms = round((monotonic() - begun_s) * 1000, 1)
            names = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED} others" if len(others) > NAMED else "")
            text = f"its start waited {waited_ms:g} ms until its CPUs were left by {names}"
            context.state.note(key, Kind.WAITED, text, waited_ms=waited_ms)

    async def _enter(self, key: str) -> bool:
        """Take the lane with everything in order; False (without the lane) if something changed meanwhile."""
        context, reconciler = self.context, self.reconciler
        await context.locks.enter(key)
        try:
            await reconciler.settle(key)
            ready = not reconciler.blockers(key)
        except BaseException:
            context.locks.leave(key)
            raise
        if ready:
            context.in_flight.starting.add(key)
        else:
            context.locks.leave(key)
        return ready

    def done(self, call: Call, outcome: Outcome) -> None:
        """Book the start, and give the lane back when that is done."""
        if not isinstance(call.context, Locked):
            self._unplaced(call, outcome)
            return
        key = call.context.key
        if outcome.kind is OutcomeKind.OK:
            booked = self.context.state.submit(ContainerStarted(key))
        elif outcome.kind is OutcomeKind.UNKNOWN:
            self.context.counters.unknown_outcomes += 1
            self.outcomes.start_unknown(key)
            booked = self.context.state.submit(UnknownOutcome(key))
        else:
            self._ended(key)
            if outcome.kind is OutcomeKind.FAILED:  # it has exited then: the runtime tells
                self.outcomes.ask(key)
            return
        booked.add_done_callback(lambda _: self._ended(key))

    def _unplaced(self, call: Call, outcome: Outcome) -> None:
        """The start of a container that had no place when it began; it may have been taken in since."""
        if outcome.kind in (OutcomeKind.OK, OutcomeKind.UNKNOWN) and call.request is not None:
            key = self.context.state.resolve(translate.read(api.StartContainerRequest, call.request).container_id)
            if key in self.context.state.node.containers:
                self.outcomes.ask(key)

    def _ended(self, key: str) -> None:
        self.context.in_flight.starting.discard(key)
        self.context.state.stir()
        self.context.locks.leave(key)
        self.reconciler.enqueue([key], look=True)


@dataclass(slots=True)
class Updates:
    """The handlers of the kubelet's UpdateContainerResources."""

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    refused: RefusedResizes
    foreign: Foreign | None = None
    """The last cpuset that the kubelet sent; None if it never did, or sets none any more."""

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Send it on with our cpuset: a new size comes without one, the kubelet's CPU manager sends its own.

        A new size is placed first. The call carries what the container may have at this moment: it shrinks with the
        call, and grows after it, as soon as others have made room.
        """
        request = translate.read(api.UpdateContainerResourcesRequest, message)
        context, reconciler = self.context, self.reconciler
        key = context.state.resolve(request.container_id)
        if key not in context.state.node.containers:
            return Proceed()
        try:
            await self._resize(call, key, request)
        except (Refused, PolicyFault) as error:
            await self._refuse(call, error)
            return Refuse(error.code, str(error))
        ours = reconciler.now(key)
        if ours is None:
            return Proceed()
        self._warn(key, request)
        context.in_flight.send(key, ours.cpus)
        quota = quota_for(context.state.node, key, ours)
        return Proceed(rewrite.repin(request, format_cpuset(ours.cpus), format_cpuset(ours.mems), quota))

    async def _refuse(self, call: Call, error: Refused | PolicyFault) -> None:
        """Remember the size that was refused; say so if the kubelet does not only repeat it."""
        context, resizing = self.context, call.context
        context.counters.resizes_refused += 1
        if not isinstance(resizing, Resizing):
            return
        call.context = Locked(resizing.key)  # nothing is to be undone
        container = context.state.node.containers.get(resizing.key)
        if container is None or not self.refused.add(container, resizing.sizes, str(error)):
            return
        warn(context.log, container, resizing.sizes, error)
        context.state.note(container, Kind.RESIZED, f"the resize was refused: {error}")
        await context.state.apply(ResizeRefused(resizing.key, resizing.sizes, time()))

    async def _resize(self, call: Call, key: str, request: api.UpdateContainerResourcesRequest) -> None:
        """Take the lane of *key* and place it anew if it asks for another size.

        Raises:
            NotEnough: it does not fit, even with the places of containers that have ended meanwhile.
            PolicyFault: the policy gave a place that nobody may have.
        """
        try:
            await self._place(call, key, request, is_first=True)
        except NotEnough:
            # Not in the lane: this container itself may have ended, and that is found out there.
            call.context = None
            self.context.locks.leave(key)
            await self.outcomes.try_release_exited()
            await self._place(call, key, request, is_first=False)

    async def _place(
        self, call: Call, key: str, request: api.UpdateContainerResourcesRequest, *, is_first: bool
    ) -> None:
        await self.context.locks.enter(key)
        manager = self.context.state
        node = manager.node
        container = node.containers.get(key)
        if container is None:
            call.context = Locked(key)
            return
        sizes = translate.sizes(request.linux, container, node.topology.capacity_bytes)
        call.context = Resizing(key, container.sizes, sizes)
        if sizes == container.sizes and not container.desired:
            return
        if is_first and not (container.desired and container.desired.sizes == sizes):  # else it was told already
            with manager.failures.harmless("what a resize asks for"):
                wishes = asked_anew(request.linux, container.resized(sizes))
                manager.note(key, Kind.RESIZED, "the kubelet resizes it", *wishes.sentences, **wishes.facts)
        await manager.apply(ContainerResized(key, sizes))
        with suppress(StoreError, CannotBeStored):  # it goes on in memory, and `--check` says so
            await manager.durable(key)

    def done(self, call: Call, outcome: Outcome) -> None:
        """Give the lane back, then look what the container has; a resize that did not happen is undone."""
        if not isinstance(call.context, Locked):
            return
        key = call.context.key
        if isinstance(call.context, Resizing) and outcome.kind in (OutcomeKind.FAILED, OutcomeKind.NOT_SENT):
            believe(self.context, key, call.context.before)
        self.context.locks.leave(key)
        if isinstance(call.context, Resizing) and outcome.kind is OutcomeKind.UNKNOWN:
            self.context.tasks.spawn(f"ask for {key}", self.outcomes.resize_unknown(key, call.context.before))
        if outcome.kind is OutcomeKind.NOT_SENT:
            self.context.in_flight.seen(key)
        else:
            self.reconciler.enqueue([key], look=True)

    def _warn(self, key: str, request: api.UpdateContainerResourcesRequest) -> None:
        if cpus := request.linux.cpuset_cpus:
            containers = self.context.state.node.containers
            self._competes(containers[key].title if key in containers else key, cpus)

    def see_create(self, title: str, cpus: str) -> None:
        """A create of the container *title* came with that cpuset: with a CPU manager each has one, without it none."""
        if cpus:
            self._competes(title, cpus)
        elif self.foreign is not None:
            self.foreign = None
            self.context.log.info("the kubelet sets no cpusets any more", container=title)

    def _competes(self, title: str, cpus: str) -> None:
        times = self.foreign.times + 1 if self.foreign else 1
        self.foreign = Foreign(title, cpus, times, time())
        if times == 1:
            self.context.log.warning(
                "the kubelet sets cpusets too: switch its CPU manager off (cpuManagerPolicy: none)",
                container=title,
                cpus=cpus,
            )
