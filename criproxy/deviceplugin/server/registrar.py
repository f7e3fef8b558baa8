"""Registers one plugin with the kubelet, in either way, and notices that the kubelet stopped or replaced it."""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.cri import pluginregistration_pb2 as registry
from criproxy.deviceplugin.server.resource import VERSION, Resource
from criproxy.deviceplugin.server.servicer import Servicer
from criproxy.deviceplugin.server.sockets import Handlers, Identity, Server, is_alive, unary
from criproxy.deviceplugin.server.state import Snapshot, State, StateTracker, Times
from criproxy.process.tasks import Backoff

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    # A kubelet that starts makes its socket before it listens.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.use_local_subchannel_pool", 1),
)


def is_served(server: Server, snapshot: Snapshot) -> bool:
    """Whether the socket at the path is the server's."""
    return snapshot.own == server.claimed


class RegistrationRefused(Exception):
    """The kubelet rejects the plugin, or does not answer; the text is the reason."""


@dataclass(slots=True, repr=False)
class Registrar(ABC):
    """What both ways of registration have in common.

    Args:
        servicer: answers the kubelet's calls.
        tracker: has the state of the plugin.
        kubelet: the socket on which the kubelet accepts registrations.
        times: timeouts and pauses.
    """

    servicer: Servicer
    tracker: StateTracker
    kubelet: Path
    times: Times
    _sent_options: api.DevicePluginOptions | None = None
    """The options that the kubelet last received: it reads them once per registration."""
    _replaced: int = 0
    """How many times in a row another plugin may have replaced this one."""
    _replaced_s: float = 0.0
    """When that last happened, on a monotonic clock."""
    _retry_requested: bool = False

    @abstractmethod
    async def keep(self, server: Server) -> None:
        """Keep the plugin registered; return when its socket is gone, or has to be created again."""

    def handlers(self, path: Path) -> list[Handlers]:
        """Return the handlers of the services on the plugin's socket at *path*."""
        return [self.servicer.handlers()]

    def retry(self) -> None:
        """Try immediately to register again if another plugin may have replaced this one."""
        self._retry_requested = True
        self.tracker.notify()

    async def _await_stream_or_replacement(self, before: Snapshot) -> bool:
        """Wait after the kubelet has ended the stream; return whether to register again, as it goes on without us."""
        if await self.tracker.until_changed(before, self.times.settle_s, self._has_stream):
            return False
        if not await self._is_kubelet_alive():
            self.tracker.enter(State.NO_KUBELET, "the kubelet has stopped")
            await self.tracker.until_changed(before, self.times.longest_pause_s, self._has_stream)
            return False
        pause_s = self._pause_as_replaced()
        await self.tracker.until_changed(before, pause_s, lambda: self._retry_requested or self._has_stream())
        return not self._has_stream()

    def _pause_as_replaced(self) -> float:
        """Report that another plugin may have replaced this one, and return the pause before the next attempt."""
        self.servicer.counts.replaced += 1
        pauses, now_s = self.times.replaced_pauses_s, monotonic()
        self._replaced = self._replaced + 1 if now_s - self._replaced_s < 2 * pauses[-1] else 1
        self._replaced_s, self._retry_requested = now_s, False
        pause_s = pauses[min(self._replaced, len(pauses)) - 1]
        text = f"another plugin may have registered it; criproxy tries again in {pause_s:g} s"
        self.tracker.enter(State.REPLACED, f"{text}, or immediately on SIGHUP")
        return pause_s

    async def _is_kubelet_alive(self) -> bool:
        return await asyncio.to_thread(is_alive, self.kubelet)

    def _has_stream(self) -> bool:
        return self.servicer.streams > 0


@dataclass(slots=True, repr=False)
class CallRegistrar(Registrar):
    """Registers with a call to kubelet.sock."""

    _registered_with: Identity | None = None
    """The kubelet that accepted the registration."""
    _last_kubelet: Identity | None = None
    """The kubelet that was present last."""
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.times.first_pause_s, self.times.longest_pause_s)

    async def keep(self, server: Server) -> None:
        """Keep the plugin registered until its socket is gone; to every kubelet, a new socket is a new plugin."""
        self._forget()
        while is_served(server, snapshot := await self.tracker.snapshot()):
            if snapshot.kubelet != self._last_kubelet:
                self._last_kubelet, self._replaced = snapshot.kubelet, 0
                self._backoff.reset()
            if snapshot.kubelet is None:
                self.tracker.enter(State.NO_KUBELET, f"{self.kubelet} is missing")
                await self.tracker.wait()
            elif snapshot.kubelet != self._registered_with or self._sent_options != self.servicer.resource.options:
                await self._register_with(snapshot, server)
            elif self._has_stream():
                self.tracker.enter(State.REGISTERED)
                await self.tracker.wait()
            elif await self._await_stream_or_replacement(snapshot):
                self._forget()

    def _forget(self) -> None:
        """Forget the registration, so that the plugin registers again."""
        self._registered_with = None

    async def _register_with(self, snapshot: Snapshot, server: Server) -> None:
        """Register, unless the socket that the kubelet would dial is gone before it has done so."""
        registering = asyncio.create_task(self._register(server.path.name), name=f"register {self.tracker.resource}")
        registering.add_done_callback(lambda _: self.tracker.notify())
        try:
            while not registering.done():
                await self.tracker.wait()
                if not registering.done() and not is_served(server, await self.tracker.snapshot()):
                    registering.cancel()
                    await asyncio.wait({registering})
            if not registering.cancelled():
                registering.result()
                self._registered_with = snapshot.kubelet
        except RegistrationRefused as error:
            self._forget()
            if await self._is_kubelet_alive():
                self.servicer.counts.refused += 1
                self.tracker.enter(State.REFUSED, str(error))
            else:
                self.tracker.enter(State.NO_KUBELET, f"{self.kubelet}: no kubelet listens on it")
            await self.tracker.until_changed(snapshot, self._backoff.pause_s())
        finally:
            registering.cancel()

    async def _register(self, endpoint: str) -> None:
        streams_opened, self._sent_options = self.servicer.streams_opened, self.servicer.resource.options
        await register(self.kubelet, self.servicer.resource, endpoint, self.times.register_s)
        self.servicer.counts.registered += 1
        stream_s = self.times.stream_s
        try:
            async with asyncio.timeout(stream_s):
                while self.servicer.streams_opened == streams_opened:
                    await self.servicer.stream_changed()
        except TimeoutError:
            text = f"the kubelet accepted the registration, but has not asked for the devices for {stream_s:g} s"
            raise RegistrationRefused(text) from None
        self._backoff.reset()


async def register(kubelet: Path, resource: Resource, endpoint: str, timeout_s: float) -> None:
    """Register a plugin that already serves its socket: the kubelet calls it before it answers.

    Args:
        kubelet: the kubelet's socket.
        resource: what the plugin offers.
        endpoint: the name of its socket, in the same directory.
        timeout_s: limit for the kubelet's answer.

    Raises:
        RegistrationRefused: the kubelet rejected the plugin, or did not answer.
    """
    request = api.RegisterRequest(
        version=VERSION, endpoint=endpoint, resource_name=resource.name, options=resource.options
    )
    target = f"unix://{kubelet.absolute()}"  # noqa: ASYNC240 - asks for the current directory only
    async with grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS) as channel:
        call: Any = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        try:
            await call(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise RegistrationRefused(f"no answer within {timeout_s:g} s") from error
            raise RegistrationRefused(error.details() or error.code().name) from error


@dataclass(slots=True, repr=False)
class DirectoryRegistrar(Registrar):
    """Waits until the kubelet finds the plugin's socket in plugins_registry, and answers its calls about that."""

    _rejection: str = ""
    """Why the kubelet rejected the plugin; empty if it accepted it or has not answered yet."""
    _path: Path = Path()

    def handlers(self, path: Path) -> list[Handlers]:
        """Return the handlers of the device plugin, and those of the service by which the kubelet learns of it."""
        self._path = path
        failed = self.servicer.failed
        methods = {
            "GetInfo": unary(self.GetInfo, registry.InfoRequest, failed),
            "NotifyRegistrationStatus": unary(self.NotifyRegistrationStatus, registry.RegistrationStatus, failed),
        }
        entry = grpc.method_handlers_generic_handler("pluginregistration.Registration", methods)
        return [self.servicer.handlers(), entry]

    async def GetInfo(self, _: registry.InfoRequest, context: "Context") -> registry.PluginInfo:
        """Return the type, name and socket of the plugin."""
        return registry.PluginInfo(
            type="DevicePlugin", name=self.tracker.resource, endpoint=str(self._path), supported_versions=[VERSION]
        )

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: "Context"
    ) -> registry.RegistrationStatusResponse:
        """Receive the result of the registration."""
        if request.plugin_registered:
            self._rejection = ""
            self.servicer.counts.registered += 1
        else:
            self._rejection = request.error or "the kubelet gave no reason"
            self.servicer.counts.refused += 1
        self.tracker.notify()
        return registry.RegistrationStatusResponse()

    async def keep(self, server: Server) -> None:
        """Return when the socket is gone, or has to be created again so that the kubelet finds it again."""
        had_stream, self._rejection, sent = False, "", self.servicer.resource.options
        while is_served(server, snapshot := await self.tracker.snapshot()):
            if sent != self.servicer.resource.options:
                return
            if self._has_stream():
                had_stream = True
                self.tracker.enter(State.REGISTERED)
                await self.tracker.wait()
            elif had_stream:
                if await self._await_stream_or_replacement(snapshot):
                    return
            else:
                self._enter_unregistered(snapshot)
                await self.tracker.wait()

    def _enter_unregistered(self, snapshot: Snapshot) -> None:
        if self._rejection:  # the kubelet retries without a new socket
            self.tracker.enter(State.REFUSED, self._rejection)
        elif snapshot.kubelet is None:
            self.tracker.enter(State.NO_KUBELET, f"{self.kubelet} is missing")
        else:
            self.tracker.enter(State.UNREGISTERED)
