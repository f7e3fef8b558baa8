"""The runtime's truth minus ours → events: at start, when the runtime came back, and from time to time.

Held calls wait for the first comparison only. Later ones judge nobody who was touched since the lists were requested,
so calls and lists need not wait for each other (docs/decisions/0006). Pass-through calls never wait.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from criproxy.control.context import Context
from criproxy.control.devices.guard import DeviceGuard
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.sync.adopt import Adoption
from criproxy.control.sync.bypass_times import BypassTimes
from criproxy.control.sync.outcomes import Outcomes, never_to_start, stamped, unconfirmed
from criproxy.control.sync.sizes_in_force import SizesInForce
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.events import ContainerStarted, PodGone, PodResized
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_BETWEEN_S = 0.1
"""Pause between two comparisons, however often one is asked for."""
_AT_ONCE = 32
"""Workers that are started before other things get their turn."""
_LOOKS = 2
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
    devices: DeviceGuard
    bypass_times: BypassTimes
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)
    """The next comparison is due earlier than it was."""
    _touched: set[str] = field(default_factory=set)
    """Containers and sandboxes that calls were about since the lists were requested."""
    _doubts: int = 0
    """How often what we know was doubted: lists requested before say nothing of what has passed since."""
    _error: str = ""
    _is_first: bool = True
    """What the store remembers to be under way is from before our start."""
    _wanted: bool = True
    """Whether somebody asked for the next comparison; such a one reads the cgroups of all, too."""
    _resized: bool = True
    """Whether containers may have been resized unseen."""
    _look_s: float | None = None
    """When, on the loop's clock, to compare because of removals that may be under way; None: there are none."""
    _last_look_s: float = 0.0
    """With which such comparison the last of them is done."""
    _finding: bool = False
    """Whether somebody is finding out who has which cards."""

    async def ready(self) -> None:
        """Return once the node is known.

        Raises:
            NotReady: after ``resync_timeout_s``.
        """
        if self._ready.is_set():
            return
        timeout_s = self.context.settings.resync_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise NotReady(
                f"criproxy does not know yet what runs on this node: the runtime has not answered for {timeout_s:g} s "
                f"({self._error or 'it has not answered yet'})"
            ) from None

    def doubt(self, *, sizes: bool = False) -> None:
        """Calls have passed unseen: held ones wait until the runtime has been asked again what runs.

        Args:
            sizes: containers may have other sizes since.
        """
        self._resized |= sizes
        if sizes:
            self._forget_totals()
        self._doubts += 1
        self._ready.clear()
        self.soon()

    def _forget_totals(self) -> None:
        """Pods may have been resized, too, and a runtime need not have understood that: the next create tells."""
        for key, pod in self.context.state.node.pods.items():
            if pod.cpu_total_milli:
                self.context.state.submit(PodResized(key, 0))

    async def meet(self, container_id: str) -> None:
        """Take in a container that is about to start and that we know nothing of: it was made while nobody watched.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        async with self._one:
            if self.context.state.resolve(container_id) not in self.context.state.node.containers:
                await self._compare(thorough=False)

    @property
    def error(self) -> str:
        """Why the runtime could not be asked the last time; empty if it could."""
        return self._error

    @property
    def is_ready(self) -> bool:
        """Whether held calls are served."""
        return self._ready.is_set()

    async def run(self) -> None:
        """Compare now, whenever `soon` or `unsettled` says so, and every ``resync_interval_s``, for ever.

        So often the disk is tried, too.
        """
        self.unsettled()  # removals that were cut when criproxy last ended may go on, too
        while True:
            thorough, self._wanted = self._wanted, False
            self.context.state.look_at_disk()
            try:
                await self.again(thorough=thorough)
            except Exception as error:
                if self.context.failures.add("watcher", f"asking the runtime what runs failed: {error!r}"):
                    self.context.log.error("resync failed", error=repr(error), exc_info=error)  # noqa: TRY400 (a `Log` has no more)
                self.context.counters.resync_failures += 1
                await asyncio.sleep(_LONGEST_PAUSE_S)
                self.soon()
            await asyncio.sleep(_BETWEEN_S)
            await self._due()

    def soon(self) -> None:
        """Something may have happened beside us: compare as soon as possible, in the background. Cheap to repeat."""
        self._wanted = True
        self._stirred.set()

    def unsettled(self) -> None:
        """A removal ended without saying that it was done, and the runtime may still be at it: nobody tells its end.

        Compare after ``unknown_pause_s``, and once more; however many such removals there are, no oftener than that.
        """
        now_s, pause_s = asyncio.get_running_loop().time(), self.context.settings.unknown_pause_s
        self._last_look_s = now_s + _LOOKS * pause_s
        if self._look_s is None:
            self._look_s = now_s + pause_s
            self._stirred.set()

    def touch(self, key: str) -> None:
        """A call about the container or sandbox *key* has ended: lists requested before say nothing about it."""
        if self._one.locked():
            self._touched.add(key)

    async def again(self, *, thorough: bool = True) -> None:
        """Compare until it worked once; the runtime may be away.

        Args:
            thorough: also read the cgroups of all, instead of only of those who are new.
        """
        pause_s = _FIRST_PAUSE_S
        while True:
            doubts = self._doubts
            try:
                async with self._one:
                    await self._compare(thorough=thorough)
            except RuntimeCallError as error:
                self._failed(error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                self._succeeded()
                if doubts == self._doubts:
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
        self.reconciler.enqueue([container.key for container in node.containers_of(sandbox_id)], look=True)

    async def _due(self) -> None:
        """Wait until somebody asks for the next comparison, or it is time."""
        loop = asyncio.get_running_loop()
        interval_s = loop.time() + self.context.settings.resync_interval_s
        while not self._wanted:
            self._stirred.clear()
            try:
                async with asyncio.timeout_at(min(interval_s, self._look_s or interval_s)):
                    await self._stirred.wait()
            except TimeoutError:
                if self._look_s is not None and self._look_s <= interval_s:
                    pause_s = self.context.settings.unknown_pause_s
                    goes_on = self._look_s + pause_s / 2 < self._last_look_s
                    self._look_s = self._look_s + pause_s if goes_on else None
                return

    async def _compare(self, *, thorough: bool) -> None:
        """One comparison: what ended gives its place back, what we do not know is taken in."""
        runtime = self.context.runtime
        await runtime.version()
        self._touched.clear()
        before, guarded = self.context.state.node, self.devices.sandboxes()
        refused = self.context.state.refused_in()
        sandboxes, containers = await asyncio.gather(runtime.list_pod_sandbox(), runtime.list_containers())
        await self._reservations(before, containers)
        await self._take_over(before, sandboxes, containers)
        await self.outcomes.judge_sandboxes(before, sandboxes)
        for key in before.pods.keys() - {item.id for item in sandboxes}:
            await self.context.state.apply(PodGone(key))
        for key in guarded - {item.id for item in sandboxes} - self.context.state.node.pods.keys():
            self.devices.sandbox_removed(key)
        there = [item.id for item in sandboxes]
        gone = {sandbox for sandbox in refused if not any(key.startswith(sandbox) for key in there)}
        self.context.state.forget_refused(gone)
        self._find_cards(containers)
        await self._adoption.follow_watched()
        if self._resized:
            await self._follow_sizes(containers)
        self.reconciler.enqueue(list(self.context.cgroups.untold), look=True)
        if thorough:
            await self._look_at_all()

    async def _follow_sizes(self, containers: Sequence[api.Container]) -> None:
        self._resized, is_done = False, False  # before: they may be doubted again meanwhile
        try:
            is_done = await SizesInForce(self.context).follow(containers, self._is_disturbed)
        finally:
            self._resized |= not is_done

    async def _take_over(
        self,
        before: Node,
        sandboxes: Sequence[api.PodSandbox],
        containers: Sequence[api.Container],
        sandbox_id: str = "",
    ) -> None:
        await self.outcomes.judge(before, containers, sandbox_id)
        await self.outcomes.judge_created(before, sandboxes, containers)
        for item in containers:
            await self._has_started(item)
        lost = never_to_start(sandboxes, containers)
        able = [item for item in containers if item.id not in lost]
        adopting = self._adoption.take_in(sandboxes, able, self._is_disturbed, with_exited=self._is_first)
        for key in await adopting:
            found = self.context.state.node.containers.get(key)
            if found and found.state is ContainerState.CREATED:
                self.outcomes.start_unknown(key)

    def _find_cards(self, containers: Sequence[api.Container]) -> None:
        """In the background: the kubelet may take its time, and nobody's place depends on it."""
        if self.devices.rules is not None and not self._finding:
            self._finding = True
            self.context.tasks.spawn("find out who has which cards", self._with_cards(containers))

    async def _with_cards(self, containers: Sequence[api.Container]) -> None:
        try:
            await self._adoption.find_cards(containers)
        except RuntimeCallError:
            pass  # the next comparison tries again
        finally:
            self._finding = False

    @property
    def _adoption(self) -> Adoption:
        return Adoption(self.context, self.reconciler, self.devices, self.bypass_times)

    def _is_disturbed(self, *ids: str) -> bool:
        """Whether the list is too old to say anything of what has one of *ids*; the next comparison will."""
        disturbed = not self._touched.isdisjoint(ids)
        if disturbed:
            self.soon()
        return disturbed

    async def _reservations(self, before: Node, containers: Sequence[api.Container]) -> None:
        """Creates that were under way when criproxy last ended: found by their stamp, or asked for."""
        unknown = [item for item in containers if item.id not in before.containers]
        for container in unconfirmed(before):
            if found := stamped(unknown, container.key):
                await self.outcomes.created(container.key, found)
            elif self._is_first:
                self.outcomes.create_unknown(container.key, container.pod)

    async def _has_started(self, item: api.Container) -> None:
        """A container of which we have not heard that it runs."""
        known = self.context.state.node.containers.get(item.id)
        if known is None or known.state in (ContainerState.RUNNING, ContainerState.EXITED):
            return
        if translate.state(item) is ContainerState.RUNNING and await self.outcomes.undisturbed(known):
            await self.context.state.apply(ContainerStarted(item.id))
            self.reconciler.enqueue([item.id], look=True)

    async def _look_at_all(self) -> None:
        keys = list(self.context.state.node.grants)
        for first in range(0, len(keys), _AT_ONCE):
            self.reconciler.enqueue(keys[first : first + _AT_ONCE], look=True)
            await asyncio.sleep(0)

    def _failed(self, error: RuntimeCallError) -> None:
        self.context.counters.resync_failures += 1
        if str(error) != self._error:  # it is tried again every second
            self.context.log.warning("cannot ask the runtime what runs", error=str(error))
        self._error = str(error)

    def _succeeded(self) -> None:
        counters = self.context.counters
        counters.resyncs += 1
        counters.last_resync_s = monotonic()
        if self._error:
            self.context.log.info("the runtime tells what runs again")
        self._error, self._is_first = "", False
