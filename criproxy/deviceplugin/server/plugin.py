"""The lifecycle of one resource's plugin: serve a socket and register it; again if it or the kubelet disappears."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from criproxy.deviceplugin.server import sockets
from criproxy.deviceplugin.server.registrar import CallRegistrar, DirectoryRegistrar, Registrar
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.servicer import Servicer
from criproxy.deviceplugin.server.sockets import Server, SocketError, SocketVanished
from criproxy.deviceplugin.server.state import Ended, Snapshot, State, StateTracker, Status, Times
from criproxy.devices.classes.offers import Offered
from criproxy.devices.plugin.plan import Register
from criproxy.process.tasks import Backoff, Tasks

KUBELET_DIR = Path("/var/lib/kubelet")
END_S = 3.0
"""Timeout for the end of a plugin."""
SHORT_S, SHORT_LIVES = 2.0, 5
"""A socket that is removed within SHORT_S is short-lived; after more than SHORT_LIVES in a row there are pauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The kubelet's paths, and how plugins register with it.

    Plugins never register in both ways: the later registration would replace the first.
    """

    kubelet_dir: Path = KUBELET_DIR
    way: Register = "kubelet"
    socket: Path | None = None
    """The kubelet's socket; None for its default path in its directory."""

    @property
    def kubelet_socket(self) -> Path:
        """The path of the kubelet's socket."""
        return self.socket or self.kubelet_dir / "device-plugins" / "kubelet.sock"

    @property
    def folder(self) -> Path:
        """The directory for the sockets of plugins: the kubelet expects them beside its own."""
        return self.kubelet_socket.parent if self.way == "kubelet" else self.kubelet_dir / "plugins_registry"

    @property
    def watched(self) -> tuple[Path, ...]:
        """The directories to watch for changes."""
        return tuple(dict.fromkeys((self.folder, self.kubelet_socket.parent)))


class Plugin:
    """One resource's plugin.

    Args:
        resource: What is offered at first.
        place: Where the kubelet is.
        tasks: Have the log, which gets one line for each change of state, and the counter of internal failures.
        times: Timeouts and pauses.
        changed: Called after each change of state.
    """

    def __init__(
        self, resource: Resource, place: Place, tasks: Tasks, times: Times, changed: Callable[[], None]
    ) -> None:
        self.published = resource
        """The offered resource, without IDs that are gone."""
        self.held: tuple[Offered, ...] = ()
        """Devices that are gone and that containers still have."""
        self._place = place
        self._times = times
        self._path: Path | None = None
        """Of the socket; None until its name is known to be short enough."""
        self._short_lives = 0
        self.tracker = StateTracker(resource.name, tasks.log, self._read_files, changed=changed)
        self._servicer = Servicer(resource, tasks.log, tasks.failures, times, self.tracker.notify)
        self.ended = asyncio.Event()
        """Set when the plugin has ended or failed; it has no socket then."""
        kind = CallRegistrar if place.way == "kubelet" else DirectoryRegistrar
        self.registrar: Registrar = kind(self._servicer, self.tracker, place.kubelet_socket, times)

    @property
    def status(self) -> Status:
        """The present status."""
        devices, tracker = self._servicer.resource.devices, self.tracker
        return Status(
            resource=tracker.resource,
            state=tracker.state,
            text=tracker.text,
            devices=len(devices),
            healthy=sum(each.healthy for each in devices.values()),
            held=len(self.held),
            counts=replace(self._servicer.counts),
        )

    def offer(self, resource: Resource, held: tuple[Offered, ...]) -> None:
        """List *resource* from now on, and as unhealthy the former devices *held* by containers."""
        self.published, self.held = resource, held
        before = self._servicer.resource.options
        self._servicer.update(resource.with_held(held))
        if resource.options != before:
            self.tracker.notify()

    async def run(self) -> None:
        """Serve until `end`."""
        backoff = Backoff(self._times.first_pause_s, self._times.longest_pause_s)
        self.ended.clear()
        try:
            while True:
                await self._serve_once(backoff)
        except Ended:
            self.tracker.enter(State.ENDED)
        finally:
            self.ended.set()

    async def end(self, *, flush: bool = True) -> None:
        """End, with *flush* only after the kubelet has the last list; takes a bounded time in any case."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.flush_s if flush else 0):
                await self._servicer.flushed()
        self.tracker.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.ended.wait()

    async def _serve_once(self, backoff: Backoff) -> None:
        """Serve one socket until it is gone; return when another one should be created.

        Raises:
            Ended: `end` was called.
        """
        self.tracker.check()
        before, started_s = await self.tracker.snapshot(), monotonic()
        try:
            await self._serve()
        except SocketVanished:
            pass
        except SocketError as error:
            self.tracker.enter(State.NO_SOCKET, str(error))
            await self.tracker.until_changed(before, backoff.pause_s())
            return
        # A kubelet that starts removes sockets, and may start often. Other programs that remove them are a problem.
        after = await self.tracker.snapshot()
        is_short = monotonic() - started_s < SHORT_S and after.kubelet == before.kubelet
        self._short_lives = self._short_lives + 1 if is_short else 0
        if not is_short:
            backoff.reset()
        elif self._short_lives > SHORT_LIVES:
            self.tracker.enter(State.NO_SOCKET, f"{self._path}: is being removed again and again")
            await self.tracker.until_changed(after, backoff.pause_s())

    async def _serve(self) -> None:
        """Serve until the socket is gone.

        Raises:
            SocketTrouble: No socket can be created.
            Ended: `end` was called.
        """
        self._path = path = self._place.folder / sockets.socket_name(self.tracker.resource, self._place.folder)
        server = Server(path, self.registrar.handlers(path))
        self._servicer.begin()
        await server.start()
        try:
            self._servicer.counts.served += 1
            await self.registrar.keep(server)
        finally:
            self._servicer.end_streams()
            await server.stop()

    def _read_files(self) -> Snapshot:
        folder = self._place.folder
        try:
            inode: int | None = folder.stat().st_ino
        except OSError:
            inode = None
        own = sockets.identity(self._path) if self._path else None
        return Snapshot(inode, own, sockets.identity(self._place.kubelet_socket))
