"""Containers about whose creates criproxy was not asked: which they are, and how they are noticed at once.

Something went past criproxy, or criproxy was not there. Such a container runs without its place until it is adopted.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import read_stamp
from criproxy.host.cgroup import group_at
from criproxy.node.context import Context
from criproxy.process.tasks import OnDemand

if TYPE_CHECKING:
    from asyncinotify import Inotify

POD_UID = "io.kubernetes.pod.uid"
"""The label by which the kubelet recognises its containers."""
FILE = "placing-since"
"""The name of the file of `PlacingSince`, in the state directory."""
SETTLED_S = 0.5
"""How long after its cgroup a container counts as unknown: the reply to the call that made it names it first."""
_ROOT_S = 5.0
"""How often it is looked whether the pods have another cgroup above them."""
_AGAIN_S = 60.0
"""How long to wait where the kernel has no watches for us."""
_ID = re.compile("[0-9a-f]{64}")
"""In the name of the cgroup of a container or sandbox, of all drivers and runtimes."""
_DEPTH = 3
"""Cgroups of containers are so far below that of all pods: a QoS class, a pod, a container."""


class PlacingSince:
    """Since when criproxy has placed containers on this node: one that was created later should have its stamp.

    That is when the oldest container with a stamp was created, of all that lists have shown. A file remembers it, since
    that container ends. If the file is lost, those that still run tell: no container counts as passed by that is older
    than all of them.
    """

    def __init__(self, context: Context, directory: Path) -> None:
        self._context, self._file, self._since_s = context, directory / FILE, inf
        with suppress(OSError, ValueError):
            self._since_s = float(self._file.read_text())

    def learn(self, containers: Sequence[api.Container]) -> None:
        """Look at a list of the runtime."""
        older = (item for item in containers if item.created_at / 1e9 < self._since_s)
        if placed := [item.created_at / 1e9 for item in older if self._is_ours(item)]:
            self._since_s = min(placed)
            write = asyncio.to_thread(self._write, repr(self._since_s))
            self._context.tasks.spawn("remember since when containers are placed", write)

    def covers(self, item: api.Container) -> bool:
        """Whether *item*, which has no stamp, is of a pod and was created since then."""
        return POD_UID in item.labels and item.created_at / 1e9 >= self._since_s

    def _is_ours(self, item: api.Container) -> bool:
        known = self._context.state.node.containers.get(item.id)
        return bool(known.reservation if known else read_stamp(item.annotations))

    def _write(self, text: str) -> None:
        with suppress(OSError):  # until the next start, memory suffices, and then the containers that still run
            self._file.write_text(text)


class Newcomers:
    """Notices cgroups of containers below that of all pods, and has unknown ones adopted at once.

    The kernel reports them. Where it has no more watches for us, the next comparison with the runtime finds them.

    Args:
        context: has the node.
        compare: compares the node with the runtime.
    """

    def __init__(self, context: Context, compare: Callable[[], Awaitable[None]]) -> None:
        self._context, self._compare = context, compare
        self._new = set[str]()
        """Ids in the names of new cgroups."""
        self._worker = OnDemand(context.tasks, "look for new containers", self._look)

    async def watch(self) -> None:
        """Watch for ever."""
        library = await asyncio.to_thread(import_module, "asyncinotify")
        while True:
            while (root := self._root()) is None:
                await self._context.state.changed()
            try:
                with library.Inotify() as inotify:
                    await self._follow(inotify, root)
            except OSError:
                await asyncio.sleep(_AGAIN_S)

    def _root(self) -> Path | None:
        """Return the cgroup of all pods; None while there is none."""
        group = group_at(self._context.settings.host_root, self._context.state.node.pods_cgroup)
        return Path(group.path) if group and os.path.isdir(group.path) else None  # noqa: PTH112 (as in `group_at`)

    async def _follow(self, inotify: "Inotify", root: Path) -> None:
        """Watch *root* as long as it is that cgroup."""
        self._add(inotify, root, root)
        while root == self._root():
            with suppress(TimeoutError):
                async with asyncio.timeout(_ROOT_S):
                    event = await inotify.get()
                    self._add(inotify, root, event.path or root)  # without a path, events were lost

    def _add(self, inotify: "Inotify", root: Path, folder: Path) -> None:
        """Watch *folder* and those in it, unless it is a container's cgroup, whose id counts as new."""
        from asyncinotify import Mask

        if found := _ID.search(folder.name):
            self._new.add(found[0])
            self._worker.now()
        elif len(folder.relative_to(root).parts) < _DEPTH:
            with suppress(FileNotFoundError, NotADirectoryError):
                inotify.add_watch(folder, Mask.CREATE | Mask.ONLYDIR)
                for each in os.scandir(folder):  # after the watch, so that none is missed
                    if each.is_dir():
                        self._add(inotify, root, Path(each.path))

    async def _look(self) -> None:
        """Compare with the runtime if a new id is still unknown after a moment."""
        while self._new:
            await asyncio.sleep(SETTLED_S)
            state, new = self._context.state, self._new
            self._new = set()
            known = state.node.containers.keys() | state.node.pods.keys()
            if new - known and not (state.bypassed or state.passes_all):
                await self._compare()
