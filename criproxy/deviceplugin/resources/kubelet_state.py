"""What the kubelet's files and its podresources API show: changes in its directory, and the IDs in use."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from criproxy.cri.podresources import PodresourcesClient, PodresourcesError
from criproxy.deviceplugin.server.state import Times
from criproxy.process.logger import Log

InUse = Mapping[str, Collection[str]]
"""The IDs that containers have, by resource."""
ASK_TIMEOUT_S = 10.0
"""The timeout of the kubelet's own clients."""


class FolderWatch:
    """Watches one directory, which may be missing, or be replaced by another one with the same name.

    Args:
        folder: The kubelet's directory with its sockets.
        changed: Called on the event loop when something may have changed.
        times: How often to poll in addition to, or without, the kernel's events.
    """

    def __init__(self, folder: Path, changed: Callable[[], None], times: Times) -> None:
        self._folder = folder
        self._on_change = changed
        self._times = times

    async def run(self) -> None:
        """Watch forever."""
        while True:
            with suppress(OSError):  # no inotify instance is left, or the directory cannot be watched
                await self._watch_events()
            self._on_change()
            await asyncio.sleep(self._times.poll_s)

    async def _watch_events(self) -> None:
        """Watch until the directory no longer exists."""
        library: Any = await asyncio.to_thread(import_module, "asyncinotify")
        mask = library.Mask
        gone = mask.DELETE_SELF | mask.MOVE_SELF
        with library.Inotify() as inotify:
            within = mask.CREATE | mask.DELETE | mask.MOVED_FROM | mask.MOVED_TO | mask.ATTRIB
            inotify.add_watch(self._folder, within | gone | mask.ONLYDIR)
            self._on_change()  # for changes before the watch was added
            while not await self._next_event_is(inotify, gone | mask.IGNORED | mask.UNMOUNT):
                self._on_change()

    async def _next_event_is(self, inotify: Any, mask: int) -> bool:  # noqa: ANN401
        """Wait for the next event; return whether it is one of *mask*: the directory has been removed or replaced."""
        try:
            async with asyncio.timeout(self._times.beside_events_s):
                return bool((await inotify.get()).mask & mask)
        except TimeoutError:
            return False


@dataclass(slots=True, repr=False)
class KubeletInUse:
    """The IDs in use according to the kubelet's podresources API.

    Args:
        socket: The kubelet's socket; None to query nothing. May be changed; the next query uses the new one.
        log: Gets one line when the kubelet stops answering.
        timeout_s: Limit for an answer.
        connect: Makes a client for a socket.
    """

    socket: Path | None
    log: Log
    timeout_s: float = ASK_TIMEOUT_S
    connect: Callable[[Path], PodresourcesClient] = PodresourcesClient
    _client: PodresourcesClient | None = None
    _has_failed: bool = False

    async def __call__(self) -> InUse | None:
        """Return the IDs by resource; None if the kubelet gives no answer."""
        if self._client is None or self._client.socket != self.socket:
            await self.close()
            self._client = self.connect(self.socket) if self.socket else None
        if self._client is None:
            return None
        try:
            found = await self._client.in_use(self.timeout_s)
        except PodresourcesError as error:
            if not self._has_failed:
                text = "the kubelet does not report which devices are in use: devices that no longer exist stay listed"
                self.log.warning(text, reason=str(error))
            self._has_failed = True
            return None
        self._has_failed = False
        return found

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
