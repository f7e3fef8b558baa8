"""Keeps one plugin registered with the kubelet; detects that the kubelet stopped or replaced it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server import messages
from criproxy.deviceplugin.server.registration_api import KubeletSocket, RegistrationRefused
from criproxy.deviceplugin.server.servicer import Servicer
from criproxy.deviceplugin.server.settings import State, Times
from criproxy.deviceplugin.server.sockets import Identity
from criproxy.deviceplugin.server.state_tracker import Snapshot, StateTracker
from criproxy.process.backoff import Backoff


@dataclass(slots=True, repr=False)
class Registrar:
    """What both ways of registration have in common."""

    servicer: Servicer
    tracker: StateTracker
    kubelet: KubeletSocket
    times: Times
    _sent_options: api.DevicePluginOptions | None = None
    """The options that the kubelet last received: it reads them once per registration."""
    _replaced: int = 0
    """How many times in a row another plugin may have replaced this one since the kubelet started."""
    _replaced_s: float = 0.0
    """When that last happened, on a monotonic clock."""
    _retry_requested: bool = False

    async def wait_after_loss(self, before: Snapshot) -> None:
        """Wait after the kubelet has ended the stream; return when another attempt to register is due."""
        if await self.tracker.until_changed(before, self.times.settle_s, self._has_stream):
            return
        if not await self.kubelet.is_alive():
            self.tracker.enter(State.NO_KUBELET, "the kubelet has stopped")
            await self.tracker.until_changed(before, self.times.longest_pause_s, self._has_stream)
            return
        self.servicer.counts.replaced += 1
        pauses, now_s = self.times.replaced_pauses_s, monotonic()
        self._replaced = self._replaced + 1 if now_s - self._replaced_s < 2 * pauses[-1] else 1
        self._replaced_s, self._retry_requested = now_s, False
        pause_s = pauses[min(self._replaced, len(pauses)) - 1]
        text = f"another plugin may have registered it; criproxy tries again in {pause_s:g} s, or immediately on SIGHUP"
        self.tracker.enter(State.REPLACED, text)
        await self.tracker.until_changed(before, pause_s, lambda: self._retry_requested or self._has_stream())

    def retry(self) -> None:
        """Try immediately to register again if another plugin may have replaced this one."""
        self._retry_requested = True
        self.tracker.notify()

    @property
    def _options(self) -> api.DevicePluginOptions:
        return messages.options(self.servicer.resource)

    def _has_stream(self) -> bool:
        return self.servicer.streams > 0


@dataclass(slots=True, repr=False)
class CallRegistrar(Registrar):
    """Registers with a call to kubelet.sock."""

    endpoint: str = ""
    """The name of the plugin's socket."""
    _registered_with: Identity | None = None
    """The kubelet that accepted the registration."""
    _last_kubelet: Identity | None = None
    """The kubelet that was present last."""
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.times.first_pause_s, self.times.longest_pause_s)

    async def keep(self, is_served: Callable[[Snapshot], bool]) -> None:
        """Keep the plugin registered until its socket is gone; to every kubelet, a new socket is a new plugin."""
        self._forget()
        while is_served(snapshot := await self.tracker.snapshot()):
            if snapshot.kubelet != self._last_kubelet:
                self._last_kubelet, self._replaced = snapshot.kubelet, 0
                self._backoff.reset()
            if snapshot.kubelet is None:
                self.tracker.enter(State.NO_KUBELET, f"{self.kubelet.path} is missing")
                await self.tracker.wait()
            elif snapshot.kubelet != self._registered_with or self._sent_options != self._options:
                await self._register_with(snapshot, is_served)
            elif self._has_stream():
                self.tracker.enter(State.REGISTERED)
                await self.tracker.wait()
            else:
                await self._handle_loss(snapshot)

    async def _handle_loss(self, snapshot: Snapshot) -> None:
        await self.wait_after_loss(snapshot)
        if self.tracker.state is State.REPLACED and not self._has_stream():
            self._forget()

    def _forget(self) -> None:
        """Forget the registration, so that the plugin registers again."""
        self._registered_with = None

    async def _register_with(self, snapshot: Snapshot, is_served: Callable[[Snapshot], bool]) -> None:
        registering = asyncio.create_task(self._register(), name=f"register {self.tracker.resource}")
        try:
            await self._wait_registered(registering, is_served)
        except RegistrationRefused as error:
            self._forget()
            await self._enter_refused(str(error))
            await self.tracker.until_changed(snapshot, self._backoff.pause_s())
        else:
            if not registering.cancelled():
                self._registered_with = snapshot.kubelet
        finally:
            registering.cancel()

    async def _enter_refused(self, reason: str) -> None:
        if await self.kubelet.is_alive():
            self.servicer.counts.refused += 1
            self.tracker.enter(State.REFUSED, reason)
        else:
            self.tracker.enter(State.NO_KUBELET, f"{self.kubelet.path}: no kubelet listens on it")

    async def _register(self) -> None:
        streams_opened, self._sent_options = self.servicer.streams_opened, self._options
        await self.kubelet.register(self.servicer.resource, self.endpoint, self.times.register_s)
        self.servicer.counts.registered += 1
        try:
            async with asyncio.timeout(self.times.stream_s):
                while self.servicer.streams_opened == streams_opened:
                    await self.servicer.stream_changed()
        except TimeoutError:
            text = (
                "the kubelet accepted the registration, but has not asked for the devices for "
                f"{self.times.stream_s:g} s"
            )
            raise RegistrationRefused(text) from None
        self._backoff.reset()

    async def _wait_registered(self, registering: "asyncio.Task[None]", is_served: Callable[[Snapshot], bool]) -> None:
        """Wait for *registering*; cancel it if the socket that the kubelet would dial is gone.

        Raises:
            RegistrationRefused: *registering* raised it.
        """
        registering.add_done_callback(lambda _: self.tracker.notify())
        while not registering.done():
            await self.tracker.wait()
            if not registering.done() and not is_served(await self.tracker.snapshot()):
                registering.cancel()
                await asyncio.wait({registering})
        if not registering.cancelled():
            registering.result()


@dataclass(slots=True, repr=False)
class DirectoryRegistrar(Registrar):
    """Waits until the kubelet finds the plugin's socket in plugins_registry."""

    _rejection: str = ""
    """Why the kubelet rejected the plugin; empty if it accepted it or has not answered yet."""
    _had_stream: bool = False

    def on_status(self, reason: str) -> None:
        """Record the kubelet's answer: why it rejected the plugin, or an empty string if it accepted it."""
        self._rejection = reason
        if reason:
            self.servicer.counts.refused += 1
        else:
            self.servicer.counts.registered += 1
        self.tracker.notify()

    async def keep(self, is_served: Callable[[Snapshot], bool]) -> None:
        """Return when the socket is gone, or has to be created again so that the kubelet finds it again."""
        self._had_stream, self._rejection, self._sent_options = False, "", self._options
        while is_served(snapshot := await self.tracker.snapshot()) and self._sent_options == self._options:
            if self._has_stream():
                self._had_stream = True
                self.tracker.enter(State.REGISTERED)
                await self.tracker.wait()
            elif self._had_stream:
                await self.wait_after_loss(snapshot)
                if self.tracker.state is State.REPLACED and not self._has_stream():
                    return
            else:
                self._enter_unregistered(snapshot)
                await self.tracker.wait()

    def _enter_unregistered(self, snapshot: Snapshot) -> None:
        if self._rejection:  # the kubelet retries without a new socket
            self.tracker.enter(State.REFUSED, self._rejection)
        elif snapshot.kubelet is None:
            self.tracker.enter(State.NO_KUBELET, f"{self.kubelet.path} is missing")
        else:
            self.tracker.enter(State.UNREGISTERED)
