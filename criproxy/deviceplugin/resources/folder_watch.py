"""Detects possible changes in the kubelet's directory with inotify, and by polling where inotify is unavailable."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.deviceplugin.server.settings import Times

if TYPE_CHECKING:
    from asyncinotify import Inotify, Mask


class FolderWatch:
    """Watches one directory, which may be missing, or be replaced by another one with the same name.

    Args:
        folder: The kubelet's directory with its sockets.
        changed: Called on the event loop when something may have changed.
        times: How often to poll in addition to, or without, the kernel's events.
        events: False to behave as if no inotify instance were left.
    """

    def __init__(self, folder: Path, changed: Callable[[], None], times: Times, *, events: bool = True) -> None:
        self.events = events
        """Whether the kernel reports changes."""
        self._folder = folder
        self._on_change = changed
        self._times = times

    async def run(self) -> None:
        """Watch forever."""
        while self.events:
            try:
                await self._watch_events()
            except OSError:  # no inotify instance is left, or the directory cannot be watched
                self.events = await asyncio.to_thread(_has_inotify)
                self._on_change()
                await asyncio.sleep(self._times.poll_s)
        while True:
            await asyncio.sleep(self._times.poll_s)
            self._on_change()

    async def _watch_events(self) -> None:
        """Watch until the directory no longer exists."""
        library = await asyncio.to_thread(import_module, "asyncinotify")
        with library.Inotify() as inotify:
            inotify.add_watch(self._folder, _mask())
            self._on_change()  # for changes before the watch was added
            while not await self._is_replaced(inotify):
                self._on_change()

    async def _is_replaced(self, inotify: "Inotify") -> bool:
        """Wait for the next event; return whether it shows that the directory has been removed or replaced."""
        from asyncinotify import Mask

        try:
            async with asyncio.timeout(self._times.beside_events_s):
                event = await inotify.get()
        except TimeoutError:
            return False
        return bool(event.mask & (Mask.IGNORED | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT))


def _has_inotify() -> bool:
    """Whether the kernel has an inotify instance left."""
    library = import_module("asyncinotify")
    try:
        with library.Inotify():
            return True
    except OSError:
        return False


def _mask() -> "Mask":
    from asyncinotify import Mask

    in_directory = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
    return in_directory | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
