"""Containers about whose creates criproxy was not asked: which they are, and how they are noticed at once.

Something went past criproxy, or criproxy was not there. Such a container runs without its place until it is adopted.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from importlib import import_module
from math import inf
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import if_reported
from criproxy.cri.stamp import read_stamp
from criproxy.host.cgroup import group_at
from criproxy.model.record import Kind
from criproxy.model.workload import ContainerState, Miss, Missed
from criproxy.node.context import Context
from criproxy.node.settings import Adopt
from criproxy.node.sync.unasked import note_ended
from criproxy.placement.policies.none import NonePolicy
from criproxy.process.tasks import OnDemand
from criproxy.store.files import write_whole
from criproxy.store.store import Store

if TYPE_CHECKING:
    from asyncinotify import Inotify

POD_UID = "io.kubernetes.pod.uid"
"""The label by which the kubelet recognises its containers."""
FILE = "placing-since"
"""The name of the file of `PlacingSince`, in the state directory."""
SEEN = "seen-until"
"""The name of the file, in the state directory, that says when the newest container was created that was listed."""
SETTLED_S = 0.5
"""How long after its cgroup a container counts as unknown: the reply to the call that made it names it first."""
GATHER_S = 0.25
"""How long cgroups are gathered from the first new one on: each time that criproxy wakes up costs the call that it
hinders as much as ten of them."""
_ROOT_S = 5.0
"""How often it is looked whether the pods have another cgroup above them."""
_NO_ROOT_S = 0.5
"""How long after a change to look whether the pods have a cgroup now, where they have none."""
AGAIN_S = 60.0
"""How long to wait where the kernel has no watches for us."""
_ID = re.compile("[0-9a-f]{64}")
"""In the name of the cgroup of a container or sandbox, of all drivers and runtimes."""
_DEPTH = 3
"""Cgroups of containers are so far below that of all pods: a QoS class, a pod, a container."""


class PlacingSince:
    """Since when criproxy places containers on this node: one that was created later should have its stamp.

    That is when criproxy first started and knew what runs or, if that was lost, when the oldest container with a stamp
    was created, of all that lists have shown. A file remembers it.

    Another file says which containers were listed, as the time at which the newest one was created: a process that ends
    before its first list has seen none. Without it, the last time at which something was stored does.
    """

    def __init__(self, context: Context, store: Store) -> None:
        self._context, self._directory = context, store.directory
        self._started_s = time()
        self._since_s, self._seen_s = self._read(FILE, inf), self._read(SEEN, 0.0)
        if not self._seen_s <= self._started_s:  # the clock was ahead, or it is no number
            self._seen_s = 0.0
        self._newest_s = 0.0
        """When the newest container of the last list was created."""
        self.is_lost, self._begun_s = store.saved_s is None, self._seen_s or store.saved_s or self._started_s
        self._told = set[str]()
        """Containers that had ended before they were seen."""

    def learn(self, containers: Sequence[api.Container]) -> None:
        """Look at a list of the runtime."""
        if not self._seen_s:  # before what this run stores counts as what a former one has seen
            self._seen_s = self._begun_s
            self._remember(SEEN, self._seen_s)
        older = (item for item in containers if item.created_at / 1e9 < self._since_s)
        placed = [item.created_at / 1e9 for item in older if self._is_ours(item)]
        if placed or (self._since_s == inf and self._places()):
            self._since_s = min([*placed, self._started_s])
            self._remember(FILE, self._since_s)

    def seen(self, containers: Sequence[api.Container]) -> None:
        """Note that all *containers*, those that the runtime has, are known, or told."""
        self._newest_s = min(time(), max((item.created_at / 1e9 for item in containers), default=0.0))
        if self._newest_s > self._seen_s:
            self._context.tasks.spawn(f"write {SEEN}", self.flush())

    def covers(self, item: api.Container) -> bool:
        """Whether *item* is of a pod, and was created since then without criproxy being asked."""
        context = self._context
        if POD_UID not in item.labels or item.created_at / 1e9 < self._since_s or read_stamp(item.annotations):
            return False
        if not self._places():
            return False
        return bool(context.state.node.grants) or not context.is_before_change  # else the last run had the policy none

    def _places(self) -> bool:
        """Whether containers that criproxy did not place are to be placed."""
        context = self._context
        return not isinstance(context.state.policy, NonePolicy) and context.settings.adopt is not Adopt.WATCH

    def missed(self, item: api.Container) -> Missed | None:
        """Return the mark of *item*; None if criproxy was asked about it, or is not to place it.

        If the store was lost, it may have been placed before, so that it is not said how long it ran without.
        """
        created_s = item.created_at / 1e9
        since_s = 0.0 if self.is_lost and created_s <= self._begun_s else created_s
        return Missed(why=Miss.BYPASSED, since_s=since_s, unseen=True) if self.covers(item) else None

    async def tell_ended(self, containers: Sequence[api.Container], since: Collection[str] = ()) -> None:
        """Note in the history which containers of a list have come and ended before criproxy saw them.

        Those that former runs have seen are told already. The ids *since* are of those that have ended since the list.
        """
        context = self._context
        is_over = (item for item in containers if item.id in since or translate.state(item) is ContainerState.EXITED)
        ended = {item.id: item for item in is_over}
        news = ended.keys() - self._told - context.state.node.containers.keys()
        self._told &= ended.keys()
        for item in map(ended.__getitem__, news):
            since_s = item.created_at / 1e9
            if since_s > self._begun_s and self.covers(item):
                reply = await if_reported(context.runtime.container_status(item.id))
                until_s = reply.status.finished_at / 1e9 if reply else time()  # it has been removed since the list
                if reply is None or reply.status.started_at:
                    note_ended(context, translate.listed(item), Kind.GONE, since_s, until_s)
            self._told.add(item.id)  # only now: if the runtime does not answer, it is asked again after the next list

    def _is_ours(self, item: api.Container) -> bool:
        known = self._context.state.node.containers.get(item.id)
        return bool(known.reservation if known else read_stamp(item.annotations))

    async def flush(self) -> None:
        """Remember who was seen, once those containers, or what is told of them, are on disk.

        Otherwise nobody would tell of one that ends while criproxy is killed in between. If the disk fails, it is tried
        again after the next list.
        """
        persister, newest_s = self._context.persister, self._newest_s
        if newest_s <= self._seen_s:
            return
        await persister.flush()
        if persister.error is None:
            self._seen_s = newest_s
            await asyncio.to_thread(self._write, SEEN, repr(newest_s))

    def _remember(self, name: str, time_s: float) -> None:
        self._context.tasks.spawn(f"write {name}", asyncio.to_thread(self._write, name, repr(time_s)))

    def _write(self, name: str, text: str) -> None:
        with suppress(OSError):  # until the next start, memory suffices, and then the containers that still run
            write_whole(self._directory, name, text, synced=False)

    def _read(self, name: str, without_s: float) -> float:
        with suppress(OSError, ValueError):
            return float((self._directory / name).read_text())
        return without_s


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
                await asyncio.sleep(_NO_ROOT_S)
            try:
                with library.Inotify() as inotify:
                    inotify.sync_timeout = 0  # `_follow` reads what there is, and does not wait for more
                    await self._follow(inotify, root)
            except OSError:
                await asyncio.sleep(AGAIN_S)

    def _root(self) -> Path | None:
        """Return the cgroup of all pods; None while there is none."""
        group = group_at(self._context.settings.host_root, self._context.state.node.pods_cgroup)
        return Path(group.path) if group and os.path.isdir(group.path) else None  # noqa: PTH112 (as in `group_at`)

    async def _follow(self, inotify: "Inotify", root: Path) -> None:
        """Watch *root* as long as it is that cgroup; what comes within a moment is looked at together."""
        from asyncinotify import Mask

        self._add(inotify, root, root)
        self._see()
        while root == self._root():
            with suppress(TimeoutError):
                async with asyncio.timeout(_ROOT_S):
                    first = await inotify.get()
                await asyncio.sleep(GATHER_S)
                for event in (first, *inotify):
                    if event.mask & (Mask.CREATE | Mask.Q_OVERFLOW):
                        self._add(inotify, root, event.path or root)  # without a path, events were lost
                self._see()

    def _add(self, inotify: "Inotify", root: Path, folder: Path) -> None:
        """Watch *folder* and those in it, unless it is a container's cgroup, whose id counts as new."""
        from asyncinotify import Mask

        if found := _ID.search(folder.name):
            self._new.add(found[0])
        elif len(folder.relative_to(root).parts) < _DEPTH:
            with suppress(FileNotFoundError, NotADirectoryError):
                inotify.add_watch(folder, Mask.CREATE | Mask.ONLYDIR)
                for each in os.scandir(folder):  # after the watch, so that none is missed
                    if each.is_dir():
                        self._add(inotify, root, Path(each.path))

    def _see(self) -> None:
        """Forget the new ids that are known by now, as most are, and look for the others later."""
        node = self._context.state.node
        self._new -= node.containers.keys()
        self._new -= node.pods.keys()
        if self._new:
            self._worker.now()

    async def _look(self) -> None:
        """Compare with the runtime if a new id is still unknown after a moment."""
        state = self._context.state
        while new := self._new:
            self._new = set()
            await asyncio.sleep(SETTLED_S)
            known = state.node.containers.keys() | state.node.pods.keys()
            if new - known and not state.places_nobody:
                await self._compare()
