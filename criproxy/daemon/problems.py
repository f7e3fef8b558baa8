"""What is wrong on the node: `status`, its ``--check``, `/readyz`, the metrics and the page all ask here."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING

from criproxy.daemon.behind import Behind, KubeletCpus, SocketFiles
from criproxy.daemon.start import Started
from criproxy.model.text.notices import Notice, timestamp
from criproxy.node.bypass import Bypass
from criproxy.wire.stats import MANY_BROKEN, Stats, last_call_s

if TYPE_CHECKING:
    from criproxy.api.live import LiveNode
    from criproxy.api.page.access import Access
    from criproxy.api.views.situation import Situation
    from criproxy.api.views.status_check import Found
    from criproxy.nri.plugin import Plugin

SILENT_S = 60.0
"""A kubelet asks for the runtime's status every 5 s: after this time without a call it goes elsewhere, or is down."""
NEVER_S = 300.0
"""How long the first call of a kubelet may take after the start, for example while the node boots."""
_CREATES_FAIL = (
    "the runtime has failed the last {} creates of {} after criproxy had answered: another plugin may set the same "
    "fields, which a runtime allows to one ('kubectl describe' of the pod then says \"both tried to set\"): stop that "
    "plugin; or the kubelet has given them up ('context deadline exceeded'), as on an overloaded machine"
)
_TWO = (
    "another criproxy, {}, has placed {}, and both place the same containers: stop one of them; 'criproxy install', "
    "with or without --nri, leaves one"
)
_SHORT = (
    "the runtime waits {:g} s for criproxy, and then starts containers without their place, as on an overloaded "
    "machine: 'criproxy install --nri' sets 10 s (docs/nri.md)"
)
SHORT_S = 5.0
_NOT_ONE = (
    "the runtime at {} lists none of the containers of which the one behind the NRI socket {} tells, so no place "
    "lasts: --runtime-endpoint and --nri have to be sockets of the same runtime"
)
MANY_LISTS = 2
"""A single list may be older than the containers."""
PAUSE_RATIO, LONGEST_PAUSE_S = 10.0, 1.0
"""How long a finding counts, as a multiple of the CPU time that it took, and at most: anybody may ask often."""


@dataclass(slots=True, repr=False)
class Problems:
    """Finds what is wrong now."""

    started: Started
    bypass: Bypass
    behind: Behind
    kubelet_cpus: KubeletCpus
    stats: Sequence[Stats] = ()
    """What the proxies have counted."""
    clock: Callable[[], float] = time.monotonic
    """That of `Entry.last_s`."""
    page_access: "Access | None" = None
    """Of the page, if it is served."""
    sockets: SocketFiles | None = None
    """Watches the sockets of the daemon."""
    _began_s: float = field(init=False)
    """When the daemon started, on *clock*."""
    _started_s: float = 0.0
    _live: "LiveNode | None" = None
    _known: "Found | None" = None
    """What was found last."""
    _found: "Found | None" = None
    """That, or that nothing could be found out since."""
    _until_s: float = 0.0
    """Until when *_found* counts, on the clock of the event loop."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _blocked_s: float = 0.0
    """When the runtime was last found not to answer, on *clock*; a kubelet whose calls wait in it begins no others."""

    def __post_init__(self) -> None:
        self._began_s = self._blocked_s = self.clock()

    @property
    def started_s(self) -> float:
        """When the daemon started, in seconds since the epoch by the clock as it is set now."""
        started_s = time.time() - (self.clock() - self._began_s)
        if abs(started_s - self._started_s) > 1.0:
            self._started_s = started_s
        return self._started_s

    async def live(self) -> "LiveNode":
        """Return what takes snapshots of the node; a thread loads its modules when it is first needed."""
        if self._live is None:
            await asyncio.to_thread(import_module, "criproxy.api.live")
            from criproxy.api.live import LiveNode

            self._live = LiveNode(
                self.started.controller,
                beside=self.beside,
                started_s=lambda: self.started_s,
                stats=self.stats,
                runtime_socket=self.behind.endpoints.runtime,
                plugin=self.started.plugin.to_json if self.started.plugin else lambda: None,
                bypass=self.bypass.to_json,
                reload=self.started.reload,
            )
        return self._live

    async def now(self) -> "Found":
        """Return what is wrong; the same as a moment ago if that took long to find."""
        loop, live = asyncio.get_running_loop(), await self.live()
        async with self._one:
            if self._found is not None and loop.time() < self._until_s:
                return self._found
            found, took_s = self._unknown(), LONGEST_PAUSE_S
            with self.started.controller.context.failures.harmless("what is wrong on the node"):
                found, took_s = await asyncio.to_thread(_timed, live.now(await self.beside()))
                self._known = found
            self._found, self._until_s = found, loop.time() + min(PAUSE_RATIO * took_s, LONGEST_PAUSE_S)
            return found

    @property
    def last(self) -> "Found":
        """Return what `now` has found last, or nothing."""
        from criproxy.api.views.status_check import WELL

        return self._found or WELL

    def _unknown(self) -> "Found":
        """Return what is known from before, and that criproxy cannot find out more."""
        from criproxy.api.views.status_check import WELL

        text = "criproxy cannot find out what is wrong on this node, which is a defect of criproxy: see its log"
        known = self._known or WELL
        return replace(known, problems=(*known.problems, Notice("failure", text)))

    async def beside(self) -> list[Notice]:
        """Return the notices of parts outside the controller."""
        unreachable, controller = await self.behind.unreachable(), self.started.controller
        if unreachable or controller.resync.error or not controller.ready:
            self._blocked_s = self.clock()
        return [*self._beside(unreachable)]

    def _beside(self, unreachable: str) -> Iterator[Notice]:
        started, bypass = self.started, self.bypass
        if bypass.on:
            yield Notice("bypass", f"{bypass.sentence} ({bypass.reason}; since {bypass.since})")
        if unreachable:
            yield Notice("runtime", unreachable)
        if self.sockets is not None and (lost := self.sockets.problem):
            yield Notice("socket", lost)
        yield from self._kubelet() if started.plugin is None else self._nri(started.plugin)
        if self.behind.problem:
            yield Notice("criproxy-behind", self.behind.problem)
        yield from (Notice("devices-open", text) for text in self.behind.open_classes())
        yield from (Notice("kubelet-reserved", text, wrong=False) for text in self.kubelet_cpus.notes())
        if unwritten := started.pod_files.problem:
            yield Notice("pod-files", f"the files of pods with cards are out of date: {unwritten}")
        if unkept := started.keeper.problem:
            text = f"after a restart, criproxy cannot fall back to the current policy file: {unkept}"
            yield Notice("config-not-kept", text)
        if self.page_access is not None and (closed := self.page_access.problem):
            yield Notice("page-token", f"nobody can open the page of --http: {closed}")

    def _nri(self, plugin: "Plugin") -> Iterator[Notice]:
        if plugin.notice:
            yield Notice("nri", plugin.notice)
        if plugin.unsteady:
            yield Notice("nri", plugin.unsteady, wrong=False)
        if plugin.front.told and plugin.front.lists_without >= MANY_LISTS:
            yield Notice("nri", _NOT_ONE.format(self.behind.endpoints.runtime, plugin.path))
        count, container = plugin.front.rivals.failed
        if count:
            yield Notice("nri", _CREATES_FAIL.format(count, container))
        if stamped := plugin.front.rivals.stamped:
            yield Notice("competing-manager", _TWO.format("between the kubelet and the runtime", stamped))
        if 0.0 < plugin.request_timeout_s < SHORT_S:
            yield Notice("nri", _SHORT.format(plugin.request_timeout_s), wrong=False)
        if endpoint := self.kubelet_cpus.endpoint_of_ours:
            text = f"the kubelet calls criproxy at {endpoint}, which is a plugin of the runtime and serves no calls"
            yield Notice("nri", f"{text}: 'criproxy install --nri' gives it the runtime's socket")
        yield from (Notice("competing-manager", text) for text in self.kubelet_cpus.rivals)

    @property
    def last_call_s(self) -> float | None:
        """When the last call of a client began, in seconds since the epoch; None before the first one."""
        last_s = last_call_s(self.stats)
        return None if last_s is None else self.started_s + last_s - self._began_s

    def _kubelet(self) -> Iterator[Notice]:
        """Yield whether its calls pass a plugin of the runtime, too, or do not come at all."""
        if silent := self._silence():
            yield Notice("kubelet", silent)
        controller = self.started.controller
        if twice := controller.node.containers.get(controller.context.cgroups.placed_twice[1]):
            yield Notice("competing-manager", _TWO.format("a plugin of the runtime", twice.title))

    def _silence(self) -> str:
        """Whether the kubelet goes past criproxy, cannot get through, or does not run, in a sentence."""
        for stats in self.stats:
            if len(stats.broken_s) == MANY_BROKEN and self.clock() - stats.broken_s[0] < SILENT_S:
                return f"criproxy closes the kubelet's connections, the last one because {stats.broken_why}"
        last_s = last_call_s(self.stats)
        silent_s = self.clock() - max(self._blocked_s, last_s or 0.0)
        socket = next(iter(self.behind.endpoints.pairs.values()))[0]
        remedy = f"it does not run, or does not use unix://{socket} as its containerRuntimeEndpoint"
        if last_s is None:
            return f"the kubelet has never called criproxy since it started: {remedy}" if silent_s > NEVER_S else ""
        at = timestamp(self.last_call_s or 0.0)
        return f"the kubelet has not called criproxy since {at}: {remedy}" if silent_s > SILENT_S else ""


def _timed(situation: "Situation") -> "tuple[Found, float]":
    """Return what is wrong, and the CPU time in seconds that it took to find it; runs in a thread."""
    from criproxy.api.views.status_check import find

    begun_s = time.thread_time()
    return find(situation), time.thread_time() - begun_s
