"""Notices at once when a created container has its first process.

With CRI-O, that is so when its create is answered: the process waits for the start. containerd makes cgroup and process
within the call that starts the container, and starts the user's program some ten milliseconds later. The kernel reports
both steps for the cgroup of the container, whose path is known before: that it is made, and that a process is put into
it. What has to be set before the user's program begins is set between.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.controls.container_threads import ContainerThreads
from criproxy.host.cgroup import group_at

if TYPE_CHECKING:
    from asyncinotify import Event, Inotify, Watch


Arrived = Callable[[str], Coroutine[object, object, None]]
"""Gets the id of a container as soon as that has a process, and again after `AGAIN_S`."""
AGAIN_S = (0.3, 2.0)
"""The runtime goes on with the cgroup meanwhile: it sets limits, and with v1 makes it for other controllers."""


class Arrivals:
    """Waits for the first processes of containers; its methods are called on the event loop."""

    def __init__(self, host_root: Path, arrived: Arrived) -> None:
        self._root, self._arrived = host_root, arrived
        self._threads = ContainerThreads(host_root)
        self._expected: dict[str, tuple[str, Path]] = {}
        """Id → cgroup, and its folder."""
        self._ids: dict[Path, str] = {}
        """The same folder → id: an event must not look at thousands that are expected."""
        self._parents = Counter[Path]()
        """Folder → how many cgroups are expected in it."""
        self._watches: dict[str, Watch] = {}
        """Folder → watch."""
        self._inotify: Inotify | None = None
        self._come = asyncio.Queue[str]()

    def expect(self, id: str, cgroup: str) -> None:
        """Wait for a process in *cgroup*, if it has none yet.

        Where the kernel cannot report it, since it has no more watches, a look on a timer has to find it.
        """
        if group_at(self._root, cgroup) and not self._threads.numbers(cgroup):
            folder = self._threads.folder(cgroup)
            self._expected[id], self._ids[folder] = (cgroup, folder), id
            self._parents[folder.parent] += 1
            self._look(id)

    def forget(self, id: str) -> None:
        """Wait no longer for that container."""
        if id not in self._expected:
            return
        _, folder = self._expected.pop(id)
        self._ids.pop(folder, None)
        self._unwatch(folder)
        self._parents[folder.parent] -= 1
        if not self._parents[folder.parent]:
            del self._parents[folder.parent]
            self._unwatch(folder.parent)

    async def run(self) -> None:
        """Wait for ever, or until *arrived* raises."""
        library = await asyncio.to_thread(import_module, "asyncinotify")
        with library.Inotify() as inotify:
            self._inotify, self._watches = inotify, {}
            try:
                for id_ in [*self._expected]:
                    self._look(id_)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._tell(group))
                    while True:
                        self._on(await inotify.get())
            finally:
                self._inotify = None

    async def _tell(self, group: asyncio.TaskGroup) -> None:
        while True:
            group.create_task(self._tell_of(await self._come.get()))

    async def _tell_of(self, id_: str) -> None:
        await self._arrived(id_)
        for pause_s in AGAIN_S:
            await asyncio.sleep(pause_s)
            await self._arrived(id_)

    def _on(self, event: "Event") -> None:
        place = event.path
        for folder in (place, place.parent) if place else ():
            if id_ := self._ids.get(folder):
                self._look(id_)

    def _look(self, id_: str) -> None:
        """Watch what has to happen next; what happened before the watch is seen by looking after it."""
        cgroup, folder = self._expected[id_]
        self._watch(folder.parent)
        self._watch(folder)
        if self._threads.numbers(cgroup):
            self.forget(id_)
            self._come.put_nowait(id_)

    def _watch(self, folder: Path) -> None:
        from asyncinotify import Mask

        if self._inotify and str(folder) not in self._watches:
            with suppress(OSError):  # it does not exist yet, or the kernel has no more watches for us
                # A folder that is made, and a process number that is written to a file of it.
                mask = Mask.CREATE | Mask.MODIFY | Mask.ONLYDIR
                self._watches[str(folder)] = self._inotify.add_watch(folder, mask)

    def _unwatch(self, folder: Path) -> None:
        watch = self._watches.pop(str(folder), None)
        if watch and self._inotify:
            with suppress(OSError, ValueError, KeyError):  # the kernel has removed it, together with the folder
                self._inotify.rm_watch(watch)
