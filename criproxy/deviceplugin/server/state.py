"""Timeouts, counters and states of one resource's plugin, and how its parts wait for changes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from criproxy.deviceplugin.server.sockets import Identity
from criproxy.process.logger import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Timeouts and pauses of all parts."""

    preference_s: float = 0.2
    """After this time, the kubelet gets IDs in plain order."""
    register_s: float = 5.0
    """Timeout for the registration call, during which the kubelet dials back."""
    stream_s: float = 10.0
    """Time after a registration within which the kubelet must have opened the stream."""
    first_pause_s: float = 1.0
    """Pause before the kubelet, or a directory with a problem, is tried again; it doubles each time."""
    longest_pause_s: float = 30.0
    settle_s: float = 0.3
    """Time after the end of a stream in which it becomes clear whether the kubelet stops, too."""
    replaced_pauses_s: tuple[float, ...] = (30.0, 300.0)
    """Pauses before a plugin registers again that another one may have replaced; the last one repeats. The other may
    have been a previous process that ended soon after; if it still runs, each attempt takes the resource from it."""
    poll_s: float = 0.4
    """How often a directory is polled that the kernel does not watch."""
    beside_events_s: float = 10.0
    """How often a directory is polled that the kernel watches: a file system may not report everything."""
    flush_s: float = 1.0
    """How long a plugin that ends waits for the kubelet to receive its last list."""
    in_use_s: float = 5.0
    """How often the kubelet is queried for the IDs in use while IDs are listed only because they are in use."""
    learn_s: float = 1.0
    """How long startup waits for the kubelet to report the IDs in use."""
    first_answer_s: float = 2.0
    """How much longer IDs wait for it once there is a kubelet: until then, none of them is healthy."""
    in_use_soon_s: float = 0.1
    """Delay between a change and the first query."""


class State(Enum):
    """The states of one resource's plugin."""

    STARTING = "starting"
    NO_SOCKET = "no socket"
    """There is a problem with the directory, or another process has the socket."""
    NO_KUBELET = "no kubelet"
    """Served; there is no kubelet."""
    REFUSED = "refused"
    """Served; the kubelet rejects it."""
    REPLACED = "replaced"
    """Served; the kubelet has ended the stream: another plugin may have registered the resource."""
    UNREGISTERED = "unregistered"
    """Served; the kubelet has not connected yet."""
    REGISTERED = "registered"
    """The kubelet has its list."""
    ENDED = "ended"


@dataclass(slots=True)
class Counts:
    """Counters of one resource since startup."""

    served: int = 0
    """Sockets created: one, and one more for each that was removed."""
    registered: int = 0
    refused: int = 0
    replaced: int = 0
    """How often the kubelet ended the stream but kept running."""
    allocated: int = 0
    """Containers for which Allocate succeeded."""
    allocations_refused: int = 0
    preferences_late: int = 0
    preferences_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one resource's plugin."""

    resource: str
    state: State
    text: str = ""
    """One sentence about what is wrong; empty if nothing is."""
    devices: int = 0
    healthy: int = 0
    held: int = 0
    """Devices that are gone and listed only because containers have them."""
    counts: Counts = field(default_factory=Counts)


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
    changed: Callable[[], None] = lambda: None
    """Called after each change of state."""
    state: State = State.STARTING
    text: str = ""
    ending: bool = False
    _notified: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, state: State, text: str = "") -> None:
        """Enter *state* because of *text*; log it if it is new."""
        if (state, text) == (self.state, self.text):
            return
        self.state, self.text = state, text
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
