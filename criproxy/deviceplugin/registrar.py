"""Keeps one plugin registered with the kubelet; detects that the kubelet stopped or replaced it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin import messages
from criproxy.deviceplugin.registration_api import KubeletSocket, RegistrationRefused
from criproxy.deviceplugin.servicer import Servicer
from criproxy.deviceplugin.settings import State, Times
from criproxy.deviceplugin.sockets import Identity
from criproxy.deviceplugin.state_tracker import Sight, Situation
from criproxy.observe.backoff import Backoff


@dataclass(slots=True, repr=False)
class Introduction:
    """What both ways of registration have in common."""

    servicer: Servicer
    situation: Situation
    kubelet: KubeletSocket
    times: Times
    _announced: api.DevicePluginOptions | None = None
    """The options that the kubelet last received: it reads them once per registration."""
    _replaced: int = 0
    """How many times in a row another plugin may have replaced this one since the kubelet started."""
    _replaced_s: float = 0.0
    """When that last happened, on a monotonic clock."""
    _asked: bool = False

    async def lost(self, before: Sight) -> None:
        """Wait after the kubelet has ended the stream; return when another attempt to register is due."""
        if await self.situation.until_changed(before, self.times.settle_s, self._followed):
            return
        if not await self.kubelet.is_alive():
            self.situation.enter(State.NO_KUBELET, "the kubelet has stopped")
            await self.situation.until_changed(before, self.times.longest_pause_s, self._followed)
            return
        self.servicer.counts.replaced += 1
        pauses, now_s = self.times.replaced_pauses_s, monotonic()
        self._replaced = self._replaced + 1 if now_s - self._replaced_s < 2 * pauses[-1] else 1
        self._replaced_s, self._asked = now_s, False
        pause_s = pauses[min(self._replaced, len(pauses)) - 1]
        text = f"another plugin may have registered it; criproxy tries again in {pause_s:g} s, or immediately on SIGHUP"
        self.situation.enter(State.REPLACED, text)
        await self.situation.until_changed(before, pause_s, lambda: self._asked or self._followed())

    def retry(self) -> None:
        """Try immediately to register again if another plugin may have replaced this one."""
        self._asked = True
        self.situation.notify()

    @property
    def _options(self) -> api.DevicePluginOptions:
        return messages.options(self.servicer.resource)

    def _followed(self) -> bool:
        return self.servicer.streams > 0


@dataclass(slots=True, repr=False)
class ByCall(Introduction):
    """Registers with a call to kubelet.sock."""

    endpoint: str = ""
    """The name of the plugin's socket."""
    _known_to: Identity | None = None
    """The kubelet that accepted the registration."""
    _seen: Identity | None = None
    """The kubelet that was present last."""
    _backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self._backoff = Backoff(self.times.first_pause_s, self.times.longest_pause_s)

    async def keep(self, is_served: Callable[[Sight], bool]) -> None:
        """Keep the plugin registered until its socket is gone; to every kubelet, a new socket is a new plugin."""
        self._forget()
        while is_served(sight := await self.situation.sight()):
            if sight.kubelet != self._seen:
                self._seen, self._replaced = sight.kubelet, 0
                self._backoff.reset()
            if sight.kubelet is None:
                self.situation.enter(State.NO_KUBELET, f"{self.kubelet.path} is missing")
                await self.situation.news()
            elif sight.kubelet != self._known_to or self._announced != self._options:
                await self._introduce(sight, is_served)
            elif self._followed():
                self.situation.enter(State.REGISTERED)
                await self.situation.news()
            else:
                await self._lost(sight)

    async def _lost(self, sight: Sight) -> None:
        await self.lost(sight)
        if self.situation.state is State.REPLACED and not self._followed():
            self._forget()

    def _forget(self) -> None:
        """Forget the registration, so that the plugin registers again."""
        self._known_to = None

    async def _introduce(self, sight: Sight, is_served: Callable[[Sight], bool]) -> None:
        registering = asyncio.create_task(self._register(), name=f"register {self.situation.resource}")
        try:
            await self._ended(registering, is_served)
        except RegistrationRefused as error:
            self._forget()
            await self._refused(str(error))
            await self.situation.until_changed(sight, self._backoff.pause_s())
        else:
            if not registering.cancelled():
                self._known_to = sight.kubelet
        finally:
            registering.cancel()

    async def _refused(self, reason: str) -> None:
        if await self.kubelet.is_alive():
            self.servicer.counts.refused += 1
            self.situation.enter(State.REFUSED, reason)
        else:
            self.situation.enter(State.NO_KUBELET, f"{self.kubelet.path}: no kubelet listens on it")

    async def _register(self) -> None:
        opened, self._announced = self.servicer.opened, self._options
        await self.kubelet.register(self.servicer.resource, self.endpoint, self.times.register_s)
        self.servicer.counts.registered += 1
        try:
            async with asyncio.timeout(self.times.stream_s):
                while self.servicer.opened == opened:
                    await self.servicer.stream_changed()
        except TimeoutError:
            text = (
                "the kubelet accepted the registration, but has not asked for the devices for "
                f"{self.times.stream_s:g} s"
            )
            raise RegistrationRefused(text) from None
        self._backoff.reset()

    async def _ended(self, registering: "asyncio.Task[None]", is_served: Callable[[Sight], bool]) -> None:
        """Wait for *registering*; cancel it if the socket that the kubelet would dial is gone.

        Raises:
            RegistrationRefused: *registering* raised it.
        """
        registering.add_done_callback(lambda _: self.situation.notify())
        while not registering.done():
            await self.situation.news()
            if not registering.done() and not is_served(await self.situation.sight()):
                registering.cancel()
                await asyncio.wait({registering})
        if not registering.cancelled():
            registering.result()


@dataclass(slots=True, repr=False)
class ByFolder(Introduction):
    """Waits until the kubelet finds the plugin's socket in plugins_registry."""

    _verdict: str = ""
    """Why the kubelet rejected the plugin; empty if it accepted it or has not answered yet."""
    _was_followed: bool = False

    def notified(self, reason: str) -> None:
        """Record the kubelet's answer: why it rejected the plugin, or an empty string if it accepted it."""
        self._verdict = reason
        if reason:
            self.servicer.counts.refused += 1
        else:
            self.servicer.counts.registered += 1
        self.situation.notify()

    async def keep(self, is_served: Callable[[Sight], bool]) -> None:
        """Return when the socket is gone, or has to be created anew so that the kubelet finds it again."""
        self._was_followed, self._verdict, self._announced = False, "", self._options
        while is_served(sight := await self.situation.sight()) and self._announced == self._options:
            if self._followed():
                self._was_followed = True
                self.situation.enter(State.REGISTERED)
                await self.situation.news()
            elif self._was_followed:
                await self.lost(sight)
                if self.situation.state is State.REPLACED and not self._followed():
                    return
            else:
                self._enter_unknown(sight)
                await self.situation.news()

    def _enter_unknown(self, sight: Sight) -> None:
        if self._verdict:  # the kubelet retries without a new socket
            self.situation.enter(State.REFUSED, self._verdict)
        elif sight.kubelet is None:
            self.situation.enter(State.NO_KUBELET, f"{self.kubelet.path} is missing")
        else:
            self.situation.enter(State.UNREGISTERED)
