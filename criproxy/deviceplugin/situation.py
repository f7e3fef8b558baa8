"""How far one resource's plugin has come: said once for each change, and waited in until something changes."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.deviceplugin.settings import State
from criproxy.deviceplugin.sockets import Identity
from criproxy.observe.logger import Log

_EVENTS = {
    State.REGISTERED: "the resource is registered",
    State.NO_SOCKET: "the resource cannot be served",
    State.NO_KUBELET: "the resource is served; waiting for the kubelet",
    State.UNREGISTERED: "the resource is served; waiting for the kubelet",
    State.REFUSED: "the kubelet refuses the resource",
    State.REPLACED: "the kubelet has ended the stream of the resource",
}
_NORMAL = frozenset({State.REGISTERED, State.NO_KUBELET, State.UNREGISTERED})


class Ended(Exception):
    """The plugin is to end; whoever waits stops waiting."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What lies in the kubelet's folders, as far as it matters to one plugin."""

    folder: int | None
    """Which folder has the plugin's socket; None: it is missing."""
    own: Identity | None
    """What lies where the plugin's socket belongs."""
    kubelet: Identity | None


@dataclass(slots=True, repr=False)
class Situation:
    """The state of one resource's plugin, and its news."""

    resource: str
    log: Log
    look: Callable[[], Sight]
    """Asks the file system."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    state: State = State.STARTING
    text: str = ""
    since_s: float = 0.0
    ending: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, state: State, text: str = "") -> None:
        """Be in *state* from now on, because of *text*; logged where that is news."""
        if (state, text) == (self.state, self.text):
            return
        self.state, self.text, self.since_s = state, text, self.clock()
        if event := _EVENTS.get(state):
            write = self.log.info if state in _NORMAL else self.log.warning
            write(event, resource=self.resource, **({"reason": text} if text else {}))

    def notify(self) -> None:
        """Something may have changed: in a folder, or with a stream."""
        self._news.set()

    def end(self) -> None:
        """Wake who waits, with `Ended`."""
        self.ending = True
        self._news.set()

    async def sight(self) -> Sight:
        """What lies there now."""
        return await asyncio.to_thread(self.look)

    async def news(self) -> None:
        """Return at the next news, or at once if there was some since the last time.

        Raises:
            Ended: the plugin is to end.
        """
        self.check()
        await self._news.wait()
        self._news.clear()
        self.check()

    def check(self) -> None:
        """Go on, unless the plugin is to end: that is `Ended`."""
        if self.ending:
            raise Ended

    async def until_changed(self, before: Sight, timeout_s: float, enough: Callable[[], bool] = lambda: False) -> bool:
        """Return when the folders do not look as *before*, or *enough* is true; False: neither in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not enough() and await self.sight() == before:
                    await self.news()
                return True
        # Not everything that changes is news at once: a folder that the kernel does not watch is only polled.
        return await self.sight() != before
