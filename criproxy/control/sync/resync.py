"""The runtime's truth minus ours → events: at start, when the runtime came back, and from time to time.

Held calls wait for the first comparison only. Later ones judge no container that was touched since the lists were
requested, so calls and lists need not wait for each other (docs/decisions/0006). Pass-through calls never wait.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from criproxy.control.context import Context
from criproxy.control.devices.guard import DeviceGuard
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.sync.adopt import Adoption
from criproxy.control.sync.ends import undisturbed
from criproxy.control.sync.outcomes import Outcomes
from criproxy.control.sync.sizes_in_force import follow_sizes
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.listed import never_to_start, stamped
from criproxy.cri.runtime import RuntimeCallError, if_reported
from criproxy.engine.events import ContainerGone, ContainerStarted, PodGone, PodResized
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_BETWEEN_S = 0.1
"""Pause between two comparisons, however often one is asked for."""
_REMOVAL_LISTS = 2
"""How often, ``unknown_pause_s`` apart, the runtime is asked for what it may still be removing."""


class NotReady(CriproxyError):
    """Held calls cannot be decided before the runtime has been asked what runs."""

    code = StatusCode.UNAVAILABLE


@dataclass(slots=True)
class Resync:
    """Compares lists of the runtime with the node."""

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    adoption: Adoption
    devices: DeviceGuard
    error: str = ""
    """Why the runtime could not be asked the last time; empty if it could."""
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _due_earlier: asyncio.Event = field(default_factory=asyncio.Event)
    """The next comparison is due earlier than it was."""
    _touched: set[str] = field(default_factory=set)
    """Containers and sandboxes that calls were about since the lists were requested."""
    _invalidations: int = 0
    """How often what we know became invalid: lists requested before say nothing of what has passed since."""
    _is_first: bool = True
    """What the store remembers to be in flight is from before our start."""
    _wanted: bool = True
    """Whether the next comparison was asked for; such a one reads all cgroups, too."""
    _resized: bool = True
    """Whether containers may have been resized unseen."""
    _removals_s: list[float] = field(default_factory=list)
    """When, on the loop's clock, to compare because of removals that may go on, in order."""

    async def first(self) -> None:
        """Return once the node is known, for work that may wait for any time."""
        await self._ready.wait()

    async def ready(self) -> None:
        """Return once the node is known.

        Held calls wait here for the first comparison, and each of them once. Not earlier: the listeners serve before,
        since pass-through calls need no node. Not later: before that comparison, nothing shows which CPUs running
        containers already have to themselves, and a container placed on such a CPU would share it until an update
        moved it. And only once: later comparisons find what happened beside the calls, against which a node that was
        true a moment ago is as good as one that waited for a list, so that a runtime that hangs holds up no create.

        Raises:
            NotReady: after ``resync_timeout_s``.
        """
        timeout_s = self.context.settings.resync_timeout_s
        if self._ready.is_set():
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise NotReady(
                f"criproxy does not know yet what runs on this node: the runtime has not answered for {timeout_s:g} s "
                f"({self.error or 'it has not answered yet'})"
            ) from None

    @property
    def is_ready(self) -> bool:
        """Whether held calls are served."""
        return self._ready.is_set()

    def invalidate(self, *, sizes: bool = False) -> None:
        """Calls have passed unseen: held ones wait until the runtime has been asked again what runs.

        Args:
            sizes: containers may have other sizes since. So may pods, and a runtime need not have understood that:
                their totals are forgotten until the next create tells them.
        """
        if sizes:
            self._resized = True
            for key, pod in self.context.state.node.pods.items():
                if pod.cpu_total_milli:
                    self.context.state.submit(PodResized(key, 0))
        self._invalidations += 1
        self._ready.clear()
        self.soon()

    async def adopt_before_start(self, container_id: str) -> None:
        """Adopt an unknown container that is about to start: it was created while criproxy did not see calls.

        Its start is the last moment: until then it runs nowhere, and afterwards it may run on exclusive CPUs of others
        for as long as the next comparison takes to come. There is no earlier one: a container that was created unseen
        is known by nothing but a list, and a list for each create that passed would ask a runtime that was just found
        to be failing. Its start is held anyway, and one list costs it milliseconds.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        async with self._one:
            if self.context.state.resolve(container_id) not in self.context.state.node.containers:
                await self._compare(thorough=False)

    async def run(self) -> None:
        """Compare now, whenever `soon` or `unsettled` says so, and every ``resync_interval_s``, for ever.

        So often the disk is tried, too.
        """
        self._wanted = True  # also after a failure
        self.unsettled()  # removals that were cut when criproxy last ended may go on, too
        while True:
            thorough, self._wanted = self._wanted, False
            self.context.persister.look()
            await self.again(thorough=thorough)
            await asyncio.sleep(_BETWEEN_S)
            await self._due()

    def soon(self) -> None:
        """Something may have happened beside us: compare as soon as possible, in the background. Cheap to repeat."""
        self._wanted = True
        self._due_earlier.set()

    def unsettled(self) -> None:
        """A removal ended without saying that it was done, and the runtime may go on with it: nothing reports its end.

        Compare after ``unknown_pause_s``, and once more; however many such removals there are, no oftener than that.
        """
        now_s, pause_s = asyncio.get_running_loop().time(), self.context.settings.unknown_pause_s
        last_s = self._removals_s[-1] if self._removals_s else now_s
        while last_s + pause_s / 2 < now_s + _REMOVAL_LISTS * pause_s:
            last_s += pause_s
            self._removals_s.append(last_s)
        self._due_earlier.set()

    def touch(self, key: str) -> None:
        """A call about the container or sandbox *key* has ended: lists requested before say nothing about it.

        Lists race with calls: a list may have been written down by the runtime before the call took effect, and arrive
        after the call's end was booked. Judging by it would take the place of a container that has just started, or
        adopt one that has just been removed. Calls do not wait for lists, nor lists for calls, so the touch is noted
        at the end of the call, when its event is submitted: at its beginning, a list requested while the call runs
        could miss the effect and not know of it. It is noted only while a comparison runs, and forgotten when the next
        one is about to request its lists: those will be younger.
        """
        if self._one.locked():
            self._touched.add(key)

    async def again(self, *, thorough: bool = True) -> None:
        """Compare until it worked once; the runtime may be away.

        Args:
            thorough: also read all cgroups, instead of only those of adopted containers.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            invalidations = self._invalidations
            try:
                async with self._one:
                    await self._compare(thorough=thorough)
            except RuntimeCallError as error:
                self._failed(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                self._succeeded()
                if invalidations == self._invalidations:
                    self._ready.set()
                return

    async def of_sandbox(self, sandbox_id: str) -> None:
        """Compare one sandbox; if the runtime cannot be asked, all of them as soon as it can."""
        runtime = self.context.runtime
        try:
            async with self._one:
                self._touched.clear()
                before = self.context.state.node
                sandboxes = await runtime.list_pod_sandbox()
                containers = await runtime.list_containers(sandbox_id)
                mine = [item for item in sandboxes if item.id == sandbox_id]
                await self._take_over(before, mine, containers, sandbox_id)
        except RuntimeCallError as error:
            self._failed(error)
            self.soon()
            return
        node = self.context.state.node
        self.reconciler.enqueue([container.key for container in node.containers_of(sandbox_id)], read=True)

    async def _due(self) -> None:
        """Wait until the next comparison is asked for, or it is time."""
        interval_s = asyncio.get_running_loop().time() + self.context.settings.resync_interval_s
        while not self._wanted:
            self._due_earlier.clear()
            try:
                async with asyncio.timeout_at(min([interval_s, *self._removals_s])):
                    await self._due_earlier.wait()
            except TimeoutError:
                if self._removals_s and self._removals_s[0] <= interval_s:
                    del self._removals_s[0]
                return

    async def _compare(self, *, thorough: bool) -> None:
        """One comparison: what ended gives its place back, what is unknown is adopted."""
        state, runtime = self.context.state, self.context.runtime
        await runtime.version()
        self._touched.clear()
        before, guarded, refused = state.node, self.devices.sandboxes(), state.refused_in()
        sandboxes, containers = await asyncio.gather(runtime.list_pod_sandbox(), runtime.list_containers())
        there = {item.id for item in sandboxes}
        await self._confirm_reservations(before, containers)
        await self._take_over(before, sandboxes, containers)
        await self.outcomes.judge_sandboxes(before, sandboxes)
        for key in before.pods.keys() - there:
            await state.apply(PodGone(key))
        for key in guarded - there - state.node.pods.keys():
            self.devices.sandbox_removed(key)
        state.forget_refused({each for each in refused if not any(key.startswith(each) for key in there)})
        # Beside this: the kubelet may take its time, and no place depends on it.
        self.context.tasks.spawn("find the cards of containers", self.adoption.find_cards(containers))
        await self.adoption.read_watched()
        if self._resized:
            self._resized = False  # before: sizes may become invalid again meanwhile
            is_done = False
            try:
                is_done = await follow_sizes(self.context, containers, self._is_touched)
            finally:
                self._resized |= not is_done
        self.reconciler.enqueue(list(self.context.cgroups.unreported), read=True)
        if thorough:
            self.reconciler.enqueue(list(state.node.grants), read=True)

    async def _take_over(
        self,
        before: Node,
        sandboxes: Sequence[api.PodSandbox],
        containers: Sequence[api.Container],
        sandbox_id: str = "",
    ) -> None:
        await self.outcomes.judge(before, containers, sandbox_id)
        await self.outcomes.judge_created(before, lost := never_to_start(sandboxes, containers))
        for item in containers:
            await self._runs_after_all(before, item)
            await self._has_started(item)
        able = [item for item in containers if item.id not in lost]
        for key in await self.adoption.adopt(sandboxes, able, self._is_touched, with_exited=self._is_first):
            found = self.context.state.node.containers.get(key)
            if found and found.state is ContainerState.CREATED:
                self.outcomes.start_unknown(key)

    def _is_touched(self, *ids: str) -> bool:
        """Whether the list is too old to say anything of what has one of *ids*; the next comparison will."""
        touched = not self._touched.isdisjoint(ids)
        if touched:
            self.soon()
        return touched

    async def _confirm_reservations(self, before: Node, containers: Sequence[api.Container]) -> None:
        """Find creates whose end nobody waits for, as after a start of criproxy: by their stamp, or by asking."""
        in_flight = self.context.in_flight
        unknown = [item for item in containers if item.id not in before.containers]
        without_id = [container for container in before.containers.values() if not container.has_id]
        for container in without_id:
            if found := stamped(unknown, container.key):
                await self.outcomes.created(container.key, found)
            elif not (in_flight.is_creating(container.key) or in_flight.is_asked(container.key)):
                self.outcomes.create_unknown(container.key, container.pod)

    async def _runs_after_all(self, before: Node, item: api.Container) -> None:
        """Forget a container that counted as exited when the list was requested, and runs: it is adopted then.

        Such a one was given up for a later attempt while its start was in flight.
        """
        known, state = before.containers.get(item.id), self.context.state
        if known is None or known.state is not ContainerState.EXITED or state.bypassed:
            return
        if translate.state(item) is not ContainerState.RUNNING or self._is_touched(item.id):
            return
        asked = await if_reported(self.context.cgroups.ask(item.id))
        if asked and asked[0].state is ContainerState.RUNNING and state.node.containers.get(item.id) is known:
            self.context.log.warning(
                "a container that was given up is running: criproxy adopts it", container=known.title
            )
            await state.apply(ContainerGone(item.id))

    async def _has_started(self, item: api.Container) -> None:
        """Book the start of a listed container that runs, and of which that is not known."""
        known = self.context.state.node.containers.get(item.id)
        if known is None or known.state in (ContainerState.RUNNING, ContainerState.EXITED):
            return
        if translate.state(item) is ContainerState.RUNNING and await undisturbed(self.context, known):
            await self.context.state.apply(ContainerStarted(item.id))
            self.reconciler.enqueue([item.id], read=True)

    def _failed(self, error: RuntimeCallError) -> None:
        self.context.counters.resync_failures += 1
        if str(error) != self.error:  # it is tried again every second
            self.context.log.warning("cannot ask the runtime which containers run", error=str(error))
        self.error = str(error)

    def _succeeded(self) -> None:
        counters = self.context.counters
        counters.resyncs += 1
        counters.last_resync_s = monotonic()
        if self.error:
            self.context.log.info("the runtime lists its containers again")
        self.error, self._is_first = "", False
