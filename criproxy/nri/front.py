"""NRI in the place of the proxy: what the runtime tells becomes the kubelet's call that caused it.

The controller has one table of rules, for calls of CRI. An event of NRI is such a call as far as NRI shows it: the rule
decides, and what it has changed in the request becomes the answer. An event from after a call ends it.

The runtime holds a lock while a plugin answers, so that all of a node waits, and gives up soon: nothing here waits for
anything but memory for longer than a moment (`daemon.start.base_settings` has the limits), and an event that only tells
something is answered before it is looked at.
"""

import asyncio
import itertools
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri.touched_methods import call_paths
from criproxy.errors import StatusCode
from criproxy.nri import api_pb2 as nri
from criproxy.nri import messages
from criproxy.nri.connection import CallFailed
from criproxy.nri.frames import MESSAGE_MAX_BYTES
from criproxy.nri.rivals import Rivals
from criproxy.process.log import structlog
from criproxy.wire.calls import Call, ErrorHandler, Outcome, OutcomeKind, Proceed, Refuse, Table, Verdict
from criproxy.wire.server import pass_on_error
from criproxy.wire.stats import Stats

log = structlog.get_logger("criproxy.nri")

END_S = 10.0
"""After this time without the event that ends a call, its outcome is unknown: the runtime is asked."""
STOPPED_S = 0.2
"""How long after the event a container's end is asked about: containerd sends it, and then notes that it has ended."""
UPDATES_S = 0.02
"""How long the answer to a create waits for the updates of those who give up CPUs for it."""
VARIABLES_MAX = 50_000
"""More of them cannot be read before the runtime gives up; no program starts with many more."""
_NAMES = {number: name.title().replace("_", "") for name, number in nri.Event.items()}
"""RUN_POD_SANDBOX is RunPodSandbox where it is a call of its own."""
_EVENTS = frozenset(
    "RunPodSandbox StopPodSandbox RemovePodSandbox PostUpdatePodSandbox "
    "PostCreateContainer StartContainer PostStartContainer PostUpdateContainer RemoveContainer".split()
)
"""Those that only tell something, except the start of a container."""


@dataclass(slots=True)
class _Open:
    """A call that was answered, until an event tells how it ended."""

    call: Call
    reply: bytes
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class _Collected:
    """Updates that go out with the answer to a create, and what waits until the runtime has applied them."""

    updates: dict[str, nri.ContainerUpdate] = field(default_factory=dict)
    """By container."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    applied: asyncio.Event = field(default_factory=asyncio.Event)
    is_lost: bool = False
    """Whether there was no such answer."""


class NriFront:
    """Answers the runtime's events; for the daemon, it is what a proxy is.

    Args:
        host_root: where the device nodes of the host are.
    """

    def __init__(self, host_root: Path) -> None:
        self.stats = Stats({})
        self.on_error: ErrorHandler = pass_on_error
        """Decides about calls whose handler failed."""
        self.blockers: Callable[[str], Sequence[str]] = lambda _: ()
        """Returns who has to give up CPUs for a container, by its reservation."""
        self.on_runtime_lost: Callable[[], None] = lambda: None
        self.rivals = Rivals()
        self.told: set[str] = set()
        """The containers that the runtime has told of on this connection, without those that it has removed."""
        self.lists_without = 0
        """How many of the last lists over CRI had none of them."""
        self.window_debt, self.oldest_held_s = 0, 0.0
        """As those of a proxy: nothing flows here, and nothing is held for long."""
        self.disconnect: Callable[[], None] = lambda: None
        self._collecting: _Collected | None = None
        """Set while the answer to a create is made."""
        self._answered: _Collected | None = None
        """What the last answer to a create has taken along."""
        self.own: list[cri.UpdateContainerResourcesRequest] = []
        """Updates of criproxy over CRI that are in flight: the runtime asks its plugins about them as well."""
        self._host_root = host_root
        self._numbers = itertools.count(1)
        self._connection = 0
        self._open: dict[tuple[str, str], _Open] = {}
        """By method and container."""
        self._news: deque[tuple[str, Callable[[], None]]] = deque()
        """Events that are answered and not looked at yet: their methods, and what looks at them."""

    def use(self, table: Table) -> None:
        """Treat new calls by *table*."""
        self.stats.use(table)

    async def drain(self, timeout_s: float) -> None:
        """End the connection: the runtime makes one call after the other, so none is lost that was answered."""
        self.disconnect()

    # ---------------------------------------------------------------- the connection

    def connected(self, number: int) -> None:
        """A connection begins."""
        self._connection = number
        self.told.clear()
        self.rivals.forget()
        self.stats.connections_total += 1
        self.stats.connections_open = 1

    def lost(self) -> None:
        """The connection has ended: nobody will tell how the open calls end."""
        if self._answered is not None:
            self._answered.applied.set()
        self._look()
        self.stats.connections_open = 0
        for key in list(self._open):
            self._end(key, OutcomeKind.UNKNOWN)
        self.on_runtime_lost()

    async def answer(self, method: str, request: bytes) -> bytes:
        """Answer a call of the runtime; see `connection.Answer`.

        Raises:
            CallFailed: there is no such method, or the controller refuses the call.
        """
        if self._answered is not None:
            self._answered.applied.set()
        match method:
            case "StateChange":
                event = nri.StateChangeEvent.FromString(request)
                await self._event(_NAMES.get(event.event, ""), event.pod, event.container)
            case "CreateContainer":
                create = nri.CreateContainerRequest.FromString(request)
                if (text := _too_large(create, len(request))) and not self.stats.bypass:
                    raise CallFailed(StatusCode.RESOURCE_EXHAUSTED, text)
                return await self._create(create)
            case "UpdateContainer":
                return await self._update(nri.UpdateContainerRequest.FromString(request))
            case "StopContainer":
                stop = nri.StopContainerRequest.FromString(request)
                self._tell(method, partial(self._stopped, stop.pod, stop.container))
            case "UpdatePodSandbox":
                update = nri.UpdatePodSandboxRequest.FromString(request)
                self._tell(method, partial(self._pod_resized, update))
            case _ if method in _EVENTS:
                about = nri.StartContainerRequest.FromString(request)  # those of all begin with pod and container
                await self._event(method, about.pod, about.container)
            case _:
                raise CallFailed(StatusCode.UNIMPLEMENTED, f"criproxy does not handle {method}")
        return b""

    async def _event(self, name: str, pod: nri.PodSandbox, container: nri.Container) -> None:
        if name == "StartContainer":
            await self._start(container)
        else:
            self._tell(name, partial(self._happened, name, pod, container))

    def _tell(self, name: str, look: Callable[[], None]) -> None:
        """Have *look* called when the answer to the event is sent, and before anything else is decided."""
        self._news.append((name, look))
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Look at the events that are answered, in order; a failure is reported as that of a callback is."""
        while self._news:
            name, look = self._news.popleft()
            try:
                look()
            except Exception as error:  # noqa: BLE001 (any: the next ones, and who is being asked about, need not fail)
                context = {"message": f"criproxy failed at {name}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)

    def _happened(self, name: str, pod: nri.PodSandbox, container: nri.Container) -> None:
        match name:
            case "RunPodSandbox":
                run = cri.RunPodSandboxRequest(runtime_handler=pod.runtime_handler)
                messages.fill_sandbox(run.config, pod)
                self._watched(name, run, cri.RunPodSandboxResponse(pod_sandbox_id=pod.id))
            case "StopPodSandbox":
                self._watched(name, cri.StopPodSandboxRequest(pod_sandbox_id=pod.id))
            case "RemovePodSandbox":
                self.rivals.removed(pod)
                self._watched(name, cri.RemovePodSandboxRequest(pod_sandbox_id=pod.id))
            case "PostCreateContainer":
                self.told.add(container.id)
                self._created(pod, container, OutcomeKind.OK)
            case "PostStartContainer":
                self._end(("StartContainer", container.id), OutcomeKind.OK)
            case "PostUpdateContainer":
                self._end(("UpdateContainerResources", container.id), OutcomeKind.OK)
            case "RemoveContainer":
                self.told.discard(container.id)
                self._created(pod, container, OutcomeKind.FAILED)
                self._watched(name, cri.RemoveContainerRequest(container_id=container.id))

    # ---------------------------------------------------------------- calls that the controller holds

    async def _create(self, request: nri.CreateContainerRequest) -> bytes:
        container = request.container
        self.rivals.asked(request.pod, container)
        asked = messages.create_request(request.pod, container)
        created = cri.CreateContainerResponse(container_id=container.id)
        reply = nri.CreateContainerResponse()
        with self._collected() as collected:
            verdict = await self._open_call("CreateContainer", container.id, asked, created)
            if verdict.message is not None:
                wanted = cri.CreateContainerRequest.FromString(verdict.message)
                reply.adjust.CopyFrom(messages.adjustment(container, asked, wanted, self._device))
                await self._others(self._open["CreateContainer", container.id].call, collected)
            reply.update.extend(collected.updates.values())
        return reply.SerializeToString()

    @contextmanager
    def _collected(self) -> Iterator[_Collected]:
        """Collect the updates that the controller sends meanwhile."""
        self._collecting = self._answered = collected = _Collected()
        try:
            yield collected
        except BaseException:  # such as a refusal, which takes nothing along
            collected.is_lost = True
            collected.applied.set()
            raise
        finally:
            self._collecting = None

    async def update(self, container_id: str, linux: cri.LinuxContainerResources) -> bool:
        """Send an update of the controller's with the answer that is being made; False if none is.

        Whether it was applied is seen in the cgroup: the runtime does not tell. It applies the updates in an answer
        before it asks about anything else.
        """
        if (collected := self._collecting) is None:
            return False
        collected.updates[container_id] = messages.update(container_id, linux)
        collected.changed.set()
        await collected.applied.wait()
        return not collected.is_lost

    async def _others(self, call: Call, collected: _Collected) -> None:
        """Wait for the updates of those who give up CPUs for the container of *call*."""
        if not getattr(call.context, "moves", True):
            return
        place = getattr(call.context, "place", "")
        with suppress(TimeoutError):
            async with asyncio.timeout(UPDATES_S):
                while {*self.blockers(place)} - collected.updates.keys():
                    collected.changed.clear()
                    await collected.changed.wait()

    async def _start(self, container: nri.Container) -> None:
        start = cri.StartContainerRequest(container_id=container.id)
        await self._open_call("StartContainer", container.id, start, cri.StartContainerResponse())

    async def _update(self, request: nri.UpdateContainerRequest) -> bytes:
        container_id = request.container.id
        asked = messages.update_request(container_id, request.linux_resources)
        if asked in self.own:
            return b""
        done = cri.UpdateContainerResourcesResponse()
        verdict = await self._open_call("UpdateContainerResources", container_id, asked, done)
        reply = nri.UpdateContainerResponse()
        if verdict.message is not None:
            wanted = cri.UpdateContainerResourcesRequest.FromString(verdict.message)
            reply.update.append(messages.update(container_id, wanted.linux))
        return reply.SerializeToString()

    def _stopped(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        """A container has ended, or was never made: the event says neither, so the runtime is asked."""
        self._created(pod, container, OutcomeKind.FAILED)
        self._end(("StartContainer", container.id), OutcomeKind.FAILED)
        stop = cri.StopContainerRequest(container_id=container.id)
        ask = partial(self._watched, "StopContainer", stop, kind=OutcomeKind.UNKNOWN)
        asyncio.get_running_loop().call_later(STOPPED_S, ask)

    def _created(self, pod: nri.PodSandbox, container: nri.Container, kind: OutcomeKind) -> None:
        if (key := ("CreateContainer", container.id)) in self._open:
            self.rivals.ended(pod, container, failed=kind is OutcomeKind.FAILED)
            self._end(key, kind)

    def _pod_resized(self, request: nri.UpdatePodSandboxRequest) -> None:
        resources = messages.update_request("", request.linux_resources).linux
        resized = cri.UpdatePodSandboxResourcesRequest(pod_sandbox_id=request.pod.id, resources=resources)
        self._watched("UpdatePodSandboxResources", resized)

    # ---------------------------------------------------------------- rules

    def _call(self, name: str, request: Message) -> Call:
        path = _path(name)
        entry = self.stats.entry(path.encode())
        call = Call(path, self._connection, next(self._numbers), "identity", request=request.SerializeToString())
        entry.last_s = call.begun_s
        if self.stats.bypass:
            entry.bypassed += 1
        else:
            entry.calls += 1
            call.rule = entry.rule
        return call

    async def _decide(self, call: Call) -> Verdict:
        assert call.request is not None
        if call.rule is None or call.rule.hold is None:
            return Proceed()
        begun_s = asyncio.get_running_loop().time()
        try:
            return await call.rule.hold(call, call.request)
        except Exception as error:  # noqa: BLE001 (the call gets an answer, whatever a handler does)
            self.stats.handler_errors += 1
            return await self.on_error(call, call.request, error)
        finally:
            self.stats.entry(call.method.encode()).held.add(asyncio.get_running_loop().time() - begun_s)

    def _watched(
        self, name: str, request: Message, reply: Message | None = None, kind: OutcomeKind = OutcomeKind.OK
    ) -> None:
        """Tell the rule of a call that is over."""
        outcome = Outcome(kind, reply.SerializeToString() if reply else b"")
        self._done(self._call(name, request), outcome)

    async def _open_call(self, name: str, container_id: str, request: Message, reply: Message) -> Proceed:
        """Decide about a call that ends with a later event, with the *reply* if that tells of a success.

        Raises:
            CallFailed: the controller refuses it.
        """
        self._look()
        key, call = (name, container_id), self._call(name, request)
        self._end(key, OutcomeKind.UNKNOWN)  # a former one, of which nothing was heard
        try:
            verdict = await self._decide(call)
        except asyncio.CancelledError:
            self._done(call, Outcome(OutcomeKind.UNKNOWN))
            raise
        if isinstance(verdict, Refuse):
            self.stats.refused += 1
            self._done(call, Outcome(OutcomeKind.NOT_SENT))
            raise CallFailed(verdict.code, verdict.text)
        timer = asyncio.get_running_loop().call_later(END_S, self._end, key, OutcomeKind.UNKNOWN)
        self._open[key] = _Open(call, reply.SerializeToString(), timer)
        return verdict

    def _end(self, key: tuple[str, str], kind: OutcomeKind) -> None:
        if found := self._open.pop(key, None):
            found.timer.cancel()
            self._done(found.call, Outcome(kind, found.reply if kind is OutcomeKind.OK else None))

    def _done(self, call: Call, outcome: Outcome) -> None:
        if call.rule is None or call.rule.done is None:
            return
        try:
            call.rule.done(call, outcome)
        except Exception as error:
            self.stats.handler_errors += 1
            log.error("handler failed", method=call.method, exc_info=error)  # noqa: TRY400 (as in the other logs)

    def _device(self, path: str) -> tuple[str, int, int]:
        found = (self._host_root / path.lstrip("/")).stat()
        kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
        return kind, os.major(found.st_rdev), os.minor(found.st_rdev)


@cache
def _path(name: str) -> str:
    return call_paths("RuntimeService", name)[0]


def _too_large(create: nri.CreateContainerRequest, size_bytes: int) -> str:
    """Return why a create is refused that nobody could answer in time; empty if it is small enough."""
    if size_bytes > MESSAGE_MAX_BYTES:
        return f"the container is described in {size_bytes} bytes, and NRI is for {MESSAGE_MAX_BYTES} at most"
    if (count := len(create.container.env)) > VARIABLES_MAX:
        return f"the container has {count} variables, and criproxy reads at most {VARIABLES_MAX} in time"
    return ""
