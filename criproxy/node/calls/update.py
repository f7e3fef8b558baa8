"""The kubelet's UpdateContainerResources: place the new size, and write our cpuset into the call.

There are two kinds of calls: a resize has no cpuset; the kubelet's static CPU manager sends its own cpuset, which
criproxy replaces and reports in a notice.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import gmtime, strftime, time

from criproxy.cri import api_pb2 as api
from criproxy.cri import rewrite, translate
from criproxy.cri.asked import asked_anew
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.sizes import sizes_asked, total_shown
from criproxy.errors import NotEnough, Refused, StatusCode, StoreError
from criproxy.model.controls import BURST
from criproxy.model.cpuset import cpus_text
from criproxy.model.record import Kind
from criproxy.model.workload import Container, Sizes
from criproxy.node.calls.start import Locked
from criproxy.node.context import Context
from criproxy.node.locks import Busy
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.record.persister import CannotBeStored
from criproxy.node.record.refusals import RefusedResizes
from criproxy.node.sync.outcomes import Outcomes
from criproxy.node.sync.sizes_in_force import believe
from criproxy.placement.events import ContainerResized, ResizeRefused
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Verdict


@dataclass(frozen=True, slots=True)
class KubeletCpusets:
    """Cpusets that the kubelet sends, which criproxy replaces with its own."""

    title: str
    """The container of the last one."""
    cpus: str
    times: int
    """How many there were since the start."""
    at_s: float
    """When the last one arrived, in seconds since the epoch."""

    def sentence(self) -> str:
        """Return the notice: the problem, and how to correct it."""
        when = strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(self.at_s))
        return (
            "the kubelet's CPU manager, or another criproxy or NRI plugin on this runtime, also sets cpusets "
            f"({self.times} times, last at {when}: {cpus_text(self.cpus)} for {self.title}); "
            "criproxy replaces them with its own: set cpuManagerPolicy: none in the kubelet's configuration, or stop "
            "the other one"
        )


@dataclass(slots=True)
class Updates:
    """The handlers of the kubelet's UpdateContainerResources."""

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    refused: RefusedResizes
    kubelet_cpusets: KubeletCpusets | None = None
    """The last cpuset that the kubelet sent; None if it never sent one, or no longer does."""

    async def hold(self, call: Call, message: bytes) -> Verdict:
        """Place a new size, and forward the call with our cpuset.

        The cpuset is what the container may have at this moment: the container shrinks with the call, and grows after
        it, as soon as others have left the CPUs.
        """
        request = translate.read(api.UpdateContainerResourcesRequest, message)
        context = self.context
        key = context.state.resolve(request.container_id)
        if key not in context.state.node.containers:
            return Proceed()
        try:
            await self._resize(call, key, request)
        except Busy as error:
            return self._busy(key, error)
        except Refused as error:
            await self._refuse(call, request, error)
            return Refuse(error.code, str(error))
        ours = self.reconciler.now(key)
        if ours is None:
            return Proceed()
        if cpus := request.linux.cpuset_cpus:
            self._note_cpuset(context.state.title_of(key), cpus)
        context.in_flight.send(key, ours.cpus)
        node = context.state.node
        had = node.applied.get(key)
        if had is not None and 0 < request.linux.cpu_quota < int(had.cpu_max_burst or 0):
            await self._end_burst(key)
        rewrite.update(request.linux, ours, node.grants[key], node.containers[key])
        if had is not None and had.cpu_idle == "1":  # runc writes the weight first, and the kernel refuses it
            request.linux.cpu_shares = 0
        return Proceed(request.SerializeToString())

    async def _end_burst(self, key: str) -> None:
        """Take the burst of a class from *key*: the kernel refuses a quota below it; the resize has the new one."""
        linux = api.LinuxContainerResources(unified={BURST: "0"})
        with suppress(RuntimeCallError):  # the answer to the resize says what is wrong
            await self.context.runtime.update_container_resources(key, linux)

    def _busy(self, key: str, error: Busy) -> Refuse:
        """Refuse a resize of *key* while another call about it hangs in the runtime; the kubelet repeats the resize."""
        context, title = self.context, self.context.state.title_of(key)
        after = f"after {context.settings.barrier_timeout_s:g} s {error} is still in progress in the runtime"
        said = f"container {title} cannot be resized yet: {after}"
        context.log.warning("resize refused: the container is busy", container=title, error=said)
        context.state.note(key, Kind.RESIZED, f"the resize was refused: {said}")
        return Refuse(StatusCode.UNAVAILABLE, said)

    async def _refuse(self, call: Call, request: api.UpdateContainerResourcesRequest, error: Exception) -> None:
        """Remember the size that was refused, and record it unless the kubelet only repeats it."""
        context = self.context
        context.counters.resizes_refused += 1
        if not isinstance(call.context, Locked) or call.context.before is None:
            return
        key = call.context.key
        call.context = Locked(key)  # nothing is to be undone
        if container := context.state.node.containers.get(key):
            sizes = self._sizes(container, request)
            if self.refused.add(context.state.node, container, sizes, str(error)):
                limit = sizes.memory_limit_bytes
                asked = {"cpu_milli": sizes.cpu_milli} | ({} if limit is None else {"memory_limit_bytes": limit})
                about = {"container": key, "title": container.title, "error": str(error)}
                context.log.warning("resize refused", **about, **asked)
                context.state.note(container, Kind.RESIZED, f"the resize was refused: {error}")
                await context.state.apply(ResizeRefused(key, sizes, time()))

    async def _resize(self, call: Call, key: str, request: api.UpdateContainerResourcesRequest) -> None:
        """Take the lock of *key*, and place it again if its size changes.

        Raises:
            Busy: another call about the container has not ended for ``barrier_timeout_s``.
            NotEnough: it does not fit, even after the places of ended containers were released.
            Fault: the policy failed.
        """
        until_s = asyncio.get_running_loop().time() + self.context.settings.barrier_timeout_s
        try:
            await self._place(call, key, request, until_s, is_first=True)
        except NotEnough:
            # Release the lock first: this container itself may have ended, and `release_exited` reads it.
            call.context = None
            self.context.locks.leave(key)
            await self.outcomes.release_exited()
            await self._place(call, key, request, until_s, is_first=False)

    async def _place(
        self, call: Call, key: str, request: api.UpdateContainerResourcesRequest, until_s: float, *, is_first: bool
    ) -> None:
        state = self.context.state
        await self.context.locks.enter(key, "the kubelet's UpdateContainerResources", until_s)
        call.context = Locked(key)
        if (container := state.node.containers.get(key)) is None:
            return
        sizes = self._sizes(container, request)
        total, before = total_shown(request.linux, sizes, container.qos), state.node.total_of(container)
        total = total if total != before else 0
        call.context = Locked(key, container.sizes, (total and before) or 0)
        if sizes == container.sizes and not container.desired and not total:
            return
        if is_first and not (container.desired and container.desired.sizes == sizes):  # else it was recorded already
            with self.context.failures.harmless("what a resize asks for"):
                wishes = asked_anew(request.linux, container.resized(sizes))
                state.note(key, Kind.RESIZED, "the kubelet resizes it", *wishes.sentences, **wishes.facts)
        await state.apply(ContainerResized(key, sizes, total))
        with suppress(StoreError, CannotBeStored):  # the state stays in memory, and `--check` reports that
            await self.context.durable(key)

    def _sizes(self, container: Container, request: api.UpdateContainerResourcesRequest) -> Sizes:
        node = self.context.state.node
        return sizes_asked(request.linux, container, node.topology.capacity_bytes, node.total_of(container))

    def done(self, call: Call, outcome: Outcome) -> None:
        """Release the lock, then read what the container has; undo a resize that was not applied."""
        if not isinstance(call.context, Locked):
            return
        key, before, total_milli = call.context.key, call.context.before, call.context.total_milli
        self.context.locks.leave(key)  # first: a failure below must not leave the lock held
        if before and outcome.kind in (OutcomeKind.FAILED, OutcomeKind.NOT_SENT):
            believe(self.context, key, before, total_milli)
        if before and outcome.kind is OutcomeKind.UNKNOWN:
            self.context.tasks.spawn(f"ask for {key}", self.outcomes.resize_unknown(key, before, total_milli))
        self.reconciler.enqueue([key], read=True)

    def on_create(self, title: str, cpus: str) -> None:
        """Note the cpuset in the create of the container *title*: every create has one if a CPU manager is active."""
        if cpus:
            self._note_cpuset(title, cpus)
        elif self.kubelet_cpusets is not None:
            self.kubelet_cpusets = None
            self.context.log.info("nobody else sets cpusets any more", container=title)

    def _note_cpuset(self, title: str, cpus: str) -> None:
        times = self.kubelet_cpusets.times + 1 if self.kubelet_cpusets else 1
        self.kubelet_cpusets = KubeletCpusets(title, cpus, times, time())
        if times == 1:
            text = "somebody else also sets cpusets: switch the kubelet's CPU manager off (cpuManagerPolicy: none)"
            self.context.log.warning(text, container=title, cpus=cpus)
