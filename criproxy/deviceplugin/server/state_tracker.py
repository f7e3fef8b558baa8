"""The state of one resource's plugin: logs each change, and waits for changes."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.deviceplugin.server.settings import State
from criproxy.deviceplugin.server.sockets import Identity
from criproxy.process.logger import Log

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
    """Raised in all waiting calls when the plugin has to end."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files in the kubelet's directories that matter to one plugin."""

    folder: int | None
    """Inode of the directory with the plugin's socket; None if it is missing."""
    own: Identity | None
    """The socket at the path of the plugin's socket."""
    kubelet: Identity | None


@dataclass(slots=True, repr=False)
class StateTracker:
    """The state of one resource's plugin, with notification of changes."""

    resource: str
    log: Log
    read_files: Callable[[], Snapshot]
    """Reads the file system."""
    clock: Callable[[], float] = time.time
    """Returns seconds since the epoch."""
    changed: Callable[[], None] = lambda: None
    """Called after each change of state."""
    state: State = State.STARTING
    text: str = ""
    since_s: float = 0.0
    ending: bool = False
    _notified: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, state: State, text: str = "") -> None:
        """Enter *state* because of *text*; log it if it is new."""
        if (state, text) == (self.state, self.text):
            return
        self.state, self.text, self.since_s = state, text, self.clock()
        self.changed()
        if event := _EVENTS.get(state):
            write = self.log.info if state in _NORMAL else self.log.warning
            write(event, resource=self.resource, **({"reason": text} if text else {}))

    def notify(self) -> None:
        """Wake the waiting calls: a directory or a stream may have changed."""
        self._notified.set()

    def end(self) -> None:
        """Make all waiting calls raise `Ended`."""
        self.ending = True
        self._notified.set()

    async def snapshot(self) -> Snapshot:
        """Return the present files; reads the file system in a thread."""
        return await asyncio.to_thread(self.read_files)

    async def wait(self) -> None:
        """Return at the next notification, or at once if there was one since the last call.

        Raises:
            Ended: The plugin has to end.
        """
        self.check()
        await self._notified.wait()
        self._notified.clear()
        self.check()

    def check(self) -> None:
        """Raise `Ended` if the plugin has to end."""
        if self.ending:
            raise Ended

    async def until_changed(
        self, before: Snapshot, timeout_s: float, enough: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait until the files differ from *before* or *enough* returns True; return whether that happened in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not enough() and await self.snapshot() == before:
                    await self.wait()
                return True
        # Not every change is notified immediately: a directory that the kernel does not watch is only polled.
        return await self.snapshot() != before
