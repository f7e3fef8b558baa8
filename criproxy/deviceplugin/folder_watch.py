"""Notices that something in the kubelet's folder may have changed: by inotify, and by looking where that is not had."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.deviceplugin.settings import Times

if TYPE_CHECKING:
    from asyncinotify import Inotify, Mask


class FolderWatch:
    """Watches one folder, which may be missing, or be replaced by another one of its name.

    Args:
        folder: the kubelet's, with its sockets.
        changed: called on the event loop when something may have changed.
        times: how often to look beside, or without, the kernel's events.
        events: False: as if the kernel had no inotify instance left.
    """

    def __init__(self, folder: Path, changed: Callable[[], None], times: Times, *, events: bool = True) -> None:
        self.events = events
        """Whether the kernel reports changes."""
        self._folder = folder
        self._changed = changed
        self._times = times

    async def run(self) -> None:
        """Watch for ever."""
        while self.events:
            try:
                await self._by_events()
            except OSError:  # none is left for us, or the folder cannot be watched
                self.events = await asyncio.to_thread(_has_inotify)
                self._changed()
                await asyncio.sleep(self._times.poll_s)
        while True:
            await asyncio.sleep(self._times.poll_s)
            self._changed()

    async def _by_events(self) -> None:
        """Watch until the folder is gone."""
        library = await asyncio.to_thread(import_module, "asyncinotify")
        with library.Inotify() as inotify:
            inotify.add_watch(self._folder, _mask())
            self._changed()  # whatever happened before we watched
            while not await self._ended(inotify):
                self._changed()

    async def _ended(self, inotify: "Inotify") -> bool:
        """Whether the next event, for which it waits, says that the folder is not the one of its name any more."""
        from asyncinotify import Mask

        try:
            async with asyncio.timeout(self._times.beside_events_s):
                event = await inotify.get()
        except TimeoutError:
            return False
        return bool(event.mask & (Mask.IGNORED | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.UNMOUNT))


def _has_inotify() -> bool:
    """Whether the kernel has an instance left for us."""
    library = import_module("asyncinotify")
    try:
        with library.Inotify():
            return True
    except OSError:
        return False


def _mask() -> "Mask":
    from asyncinotify import Mask

    there = Mask.CREATE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO | Mask.ATTRIB
    return there | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
