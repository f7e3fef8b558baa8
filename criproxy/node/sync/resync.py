"""Resync: compares criproxy's state with the runtime's lists at startup, after the runtime was away, and periodically.

Held calls wait for the first comparison only. Later comparisons skip containers that were touched since the lists were
requested, so calls and lists need not wait for each other (docs/decisions/0006). Pass-through calls never wait.
"""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.stamp import never_to_start, stamped
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.node.context import Context
from criproxy.node.devices.guard import DeviceGuard
from criproxy.node.reconcile.reconciler import Reconciler
from criproxy.node.sync.adopt import Adoption, Containers, Sandboxes
from criproxy.node.sync.ends import undisturbed
from criproxy.node.sync.outcomes import Outcomes
from criproxy.node.sync.sizes_in_force import follow_sizes
from criproxy.placement.events import ContainerGone, ContainerStarted, PodGone, PodResized
from criproxy.process.heartbeat import joint_s
from criproxy.process.tasks import wait_at_most

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_BETWEEN_S = 0.1
"""The shortest pause between two comparisons."""
UNKNOWN = "it is unknown what runs"
"""Why no container moves until then, unless it is released: an unknown one may own CPUs that seem free."""
_REMOVAL_LISTS = 2
"""How many times, ``unknown_pause_s`` apart, the runtime is listed for removals that may still be in flight."""


class NotReady(CriproxyError):
    """Held calls cannot be decided before the runtime has listed its containers."""

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
    """Why the last comparison failed; empty if it succeeded."""
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _due_earlier: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the next comparison becomes due earlier."""
    _touched: set[str] = field(default_factory=set)
    """Containers and sandboxes about which calls have ended since the lists were requested."""
    _invalidations: int = 0
    """How often the state became invalid: lists requested before that do not count."""
    _is_first: bool = True
    """Whether no comparison since criproxy started has found all that runs."""
    _left_out: bool = False
    """Whether the last one left out unknown containers, since calls about them had ended meanwhile."""
    _wanted: bool = True
    """Whether the next comparison was requested; then it also reads all cgroups."""
    _resized: bool = True
    """Whether containers may have been resized without a held call."""
    _removals_s: list[float] = field(default_factory=list)
    """When to compare because of removals that may be in flight, in order, on the loop's clock."""

    async def first(self) -> None:
        """Wait without a limit until the node is known."""
        await self._ready.wait()

    async def ready(self) -> None:
        """Wait until the node is known.

        Each held call waits here once, for the first comparison. Not earlier: the listeners already serve, since
        pass-through calls need no node. Not later: before that comparison, it is unknown which CPUs are exclusive to
        running containers, and a container placed on such a CPU would share it until an update moved it. And only once:
        later comparisons find changes that no call reported; for those, a recent node is as good as one that waited for
        a list, so that a runtime that hangs does not delay creates.

        Raises:
            NotReady: after ``resync_timeout_s``.
        """
        timeout_s = self.context.settings.resync_timeout_s
        if not self._ready.is_set() and not await wait_at_most(timeout_s, self._ready.wait()):
            raise NotReady(
                "criproxy does not know yet what is running on this node: "
                f"the runtime has not answered for {timeout_s:g} s ({self.error or 'it has not answered yet'})"
            )

    @property
    def is_ready(self) -> bool:
        """Whether held calls are decided."""
        return self._ready.is_set()

    def invalidate(self, *, sizes: bool = False) -> None:
        """Make held calls wait for a new comparison, because calls have passed unseen.

        Args:
            sizes: whether containers may have been resized. Pods may have been resized, too, and the runtime may not
                know that call: their totals are dropped until the next create has them.
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

        Not later: until its start it does not run, and afterwards it could run on exclusive CPUs of others until the
        next comparison. Not earlier: only a list shows a container that was created unseen, and a list for each create
        that passed would burden a runtime that was just failing. The start is held in any case, and one list costs it
        milliseconds.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        async with self._one:
            if self.context.state.resolve(container_id) not in self.context.state.node.containers:
                await self._compare(thorough=False)

    async def run(self) -> None:
        """Compare now, after `soon` or `check_removals`, and every ``resync_interval_s``, for ever.

        Each time, also check the disk.
        """
        self._wanted = True  # also after a failure
        self.check_removals()  # removals that were cut when criproxy stopped may still be in flight, too
        while True:
            thorough, self._wanted = self._wanted, False
            self.context.persister.check_soon()
            await self.again(thorough=thorough)
            await asyncio.sleep(_BETWEEN_S)
            await self._due()

    def soon(self, *, sizes: bool = False) -> None:
        """Request a comparison as soon as possible, also of *sizes* that may have changed; repeated calls are cheap."""
        self._wanted = True
        self._resized |= sizes
        self._due_earlier.set()

    def check_removals(self) -> None:
        """Request comparisons because a removal ended without success, and may continue in the runtime unreported.

        Also if a list lacks containers that have not ended, or their sandbox: a later one shows what became of them.

        They run after ``unknown_pause_s`` and after twice that; more such removals do not increase the frequency.
        """
        now_s, pause_s = asyncio.get_running_loop().time(), self.context.settings.unknown_pause_s
        last_s = self._removals_s[-1] if self._removals_s else now_s
        while last_s + pause_s / 2 < now_s + _REMOVAL_LISTS * pause_s:
            last_s += pause_s
            self._removals_s.append(last_s)
        self._due_earlier.set()

    def touch(self, key: str) -> None:
        """Record that a call about the container or sandbox *key* has ended: earlier lists do not count for it.

        Lists race with calls: the runtime may have produced a list before the call took effect, and the list may arrive
        after the call's end was applied. It could then release the place of a container that has just started, or
        adopt one that has just been removed. Calls do not wait for lists, nor lists for calls, so this is recorded at
        the end of the call, when its event is submitted: if recorded at its beginning, a list requested while the call
        runs could miss its effect. It is recorded only while a comparison runs, and dropped when the next one is about
        to request its lists, which are newer.
        """
        if self._one.locked():
            self._touched.add(key)

    async def again(self, *, thorough: bool = True) -> None:
        """Compare until one comparison succeeds; the runtime may be away.

        Args:
            thorough: whether to read all cgroups, instead of only those of adopted containers.
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
                is_due = not self._ready.is_set() and invalidations == self._invalidations
                if is_due and self._left_out:
                    self.soon()
                elif is_due:
                    self._is_first = False
                    self._ready.set()
                    self.context.state.notify()  # classes follow what is known
                    if UNKNOWN in self.reconciler.holds:  # else the comparison itself has enqueued them
                        self.reconciler.holds.discard(UNKNOWN)
                        self.reconciler.enqueue([*self.context.state.node.grants], read=True)
                return

    async def of_sandbox(self, sandbox_id: str) -> None:
        """Compare one sandbox; if the runtime does not answer, compare all as soon as it does."""
        runtime = self.context.runtime
        try:
            async with self._one:
                self._touched.clear()
                before = self.context.state.node
                sandboxes = [item for item in await runtime.list_pod_sandbox(sandbox_id) if item.id == sandbox_id]
                await self._compare_lists(before, sandboxes, await runtime.list_containers(sandbox_id), sandbox_id)
        except RuntimeCallError as error:
            self._failed(error)
            self.soon()
            return
        self.reconciler.enqueue([each.key for each in self.context.state.node.containers_of(sandbox_id)], read=True)

    async def _due(self) -> None:
        """Wait until the next comparison is requested or due, or the runtime does not answer."""
        loop, settings = asyncio.get_running_loop(), self.context.settings
        interval_s = loop.time() + settings.resync_interval_s
        while not self._wanted:
            self._due_earlier.clear()
            check_s, due_s = loop.time() + settings.answer_check_s, min([interval_s, *self._removals_s])
            if await wait_at_most(joint_s(min(check_s, due_s) - loop.time()), self._due_earlier.wait()):
                continue
            if due_s <= check_s:
                if self._removals_s and self._removals_s[0] <= interval_s:
                    del self._removals_s[0]
                return
            self.context.persister.look_soon()
            try:  # in the package of CRI that is known to work: other calls may be in flight
                await self.context.runtime.call("Version", api.VersionRequest(), api.VersionResponse)
            except RuntimeCallError as error:
                self._failed(error)
            if self.error:
                return

    async def _compare(self, *, thorough: bool) -> None:
        """Compare once: release the places of containers that have ended, and adopt unknown ones."""
        state, runtime = self.context.state, self.context.runtime
        await runtime.version()
        self._touched.clear()
        before, guarded, refused = state.node, self.devices.sandboxes(), state.refused_in()
        sandboxes, containers = await asyncio.gather(runtime.list_pod_sandbox(), runtime.list_containers())
        there = {item.id for item in sandboxes}
        await self._confirm_reservations(before, containers)
        await self._compare_lists(before, sandboxes, containers)
        touched = {item.id for item in containers if not self._touched.isdisjoint((item.id, item.pod_sandbox_id))}
        self._left_out = bool(touched - before.containers.keys() - state.node.containers.keys())
        await self.outcomes.judge_sandboxes(before, sandboxes)
        for key in before.pods.keys() - there:
            if self.outcomes.may_be_there(key):
                self.check_removals()  # no call may tell when that ends, such as a create that was cut
            else:
                await state.apply(PodGone(key))
        if self.context.in_flight.unlisted():
            self.check_removals()
        for key in guarded - there - state.node.pods.keys():
            self.devices.sandbox_removed(key)
        state.forget_refused({each for each in refused if not any(key.startswith(each) for key in there)})
        # In the background: the kubelet may be slow, and no place depends on it.
        self.context.tasks.spawn("find the cards of containers", self.adoption.find_cards(containers))
        await self.adoption.read_watched()
        if self._resized:
            self._resized, is_done = False, False  # first: sizes may become invalid again meanwhile
            try:
                is_done = await follow_sizes(self.context, containers, self._is_touched)
            finally:
                self._resized |= not is_done
        self.reconciler.enqueue([*self.context.cgroups.unreported, *(state.node.grants if thorough else ())], read=True)
        self.adoption.all_known(containers)

    async def _compare_lists(
        self, before: Node, sandboxes: Sandboxes, containers: Containers, sandbox_id: str = ""
    ) -> None:
        await self.outcomes.judge(before, containers, sandbox_id)
        await self.outcomes.judge_created(before, lost := never_to_start(sandboxes, containers))
        for item in containers:
            await self._forget_if_running(before, item)
            await self._apply_start(item)
        able = [item for item in containers if item.id not in lost]
        for key in await self.adoption.adopt(sandboxes, able, self._is_touched, with_exited=self._is_first):
            found = self.context.state.node.containers.get(key)
            if found and found.state is ContainerState.CREATED:
                self.outcomes.start_unknown(key)

    def _is_touched(self, *ids: str) -> bool:
        """Whether the list is outdated for any of *ids*; if so, request another comparison."""
        touched = not self._touched.isdisjoint(ids)
        if touched:
            self.soon()
        return touched

    async def _confirm_reservations(self, before: Node, containers: Containers) -> None:
        """Resolve reservations whose create no task follows, as after a restart: by their stamp, or by queries."""
        in_flight = self.context.in_flight
        unknown = [item for item in containers if item.id not in before.containers]
        for container in [each for each in before.containers.values() if not each.has_id]:
            key = container.key
            if found := stamped(unknown, key):
                await self.outcomes.created(key, found)
            elif not (in_flight.is_creating(key) or in_flight.is_asked(key)):
                self.outcomes.create_unknown(key, container.pod)

    async def _forget_if_running(self, before: Node, item: api.Container) -> None:
        """Forget a container that counted as exited when the list was requested, but runs, so that it is adopted.

        A later attempt had replaced it while its start was in flight.
        """
        known, state = before.containers.get(item.id), self.context.state
        if known is None or known.state is not ContainerState.EXITED or state.bypassed:
            return
        if translate.state(item) is not ContainerState.RUNNING or self._is_touched(item.id):
            return
        asked = await self.context.cgroups.reported(item.id)
        if asked and asked[0].state is ContainerState.RUNNING and state.node.containers.get(item.id) is known:
            text = "a container that was abandoned is running: criproxy adopts it"
            self.context.log.warning(text, container=known.title)
            await state.apply(ContainerGone(item.id))

    async def _apply_start(self, item: api.Container) -> None:
        """Apply the start of a listed container that runs, if it is not known yet."""
        known = self.context.state.node.containers.get(item.id)
        if known is None or known.state in (ContainerState.RUNNING, ContainerState.EXITED):
            return
        if translate.state(item) is ContainerState.RUNNING and await undisturbed(self.context, known):
            await self.context.state.apply(ContainerStarted(item.id))
            self.reconciler.enqueue([item.id], read=True)

    def _failed(self, error: RuntimeCallError) -> None:
        self.context.counters.resync_failures += 1
        if str(error) != self.error:  # it is retried every second
            self.context.log.warning("cannot ask the runtime which containers are running", error=str(error))
        self.error = str(error)

    def _succeeded(self) -> None:
        counters = self.context.counters
        counters.resyncs += 1
        counters.last_resync_s = monotonic()
        if self.error:
            self.context.log.info("the runtime lists its containers again")
        self.error = ""
