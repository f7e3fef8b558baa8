"""What a container really has: read from its cgroup, found through the pid that the runtime tells.

The files are in memory, so reading them on the event loop costs microseconds. A runtime whose containers are not on
this machine (the embedded one), or that tells no pid, is believed through ContainerStatus.
"""

import json
import os
from collections.abc import Awaitable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import TypeVar

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Applied
from criproxy.model.workload import ContainerState

LEFT_RUNNING = "the runtime has lost what still runs, and moves it no more: restart the runtime, and remove the pod"
"""containerd 1.6 calls it exited and removes it never; after a restart it calls its state unknown, and does."""
_LOST = frozenset({ContainerState.EXITED, ContainerState.UNKNOWN})
"""What the runtime calls containers of which it has lost the processes, among others."""
T = TypeVar("T")

_READ_BYTES = 4096
"""What the kernel writes of a cpuset file at most."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a container."""

    state: ContainerState | None
    """None: the runtime does not know it."""
    applied: Applied | None = None
    """Its sets, where it runs and they can be read."""
    lifted: bool | None = None
    """Whether it runs without a CFS quota, as one without a CPU limit does; None where nobody tells."""

    @property
    def ended(self) -> bool:
        """Whether it will never run again."""
        return self.state in (None, ContainerState.EXITED)


@dataclass(frozen=True, slots=True)
class CpusetGroup:
    """The cpuset cgroup of a container."""

    path: str
    suffix: str
    """Of the files with the sets in force: empty for cgroup v1, ``.effective`` for v2."""
    quota_file: str = ""
    """Where its CFS quota stands: ``cpu.cfs_quota_us`` or, with v2, ``cpu.max``; it may be missing."""

    def read(self) -> Applied:
        """The sets in force.

        Raises:
            OSError: if it cannot be read; FileNotFoundError or ENODEV mean that it is gone.
        """
        return self._read(self.suffix)

    def configured(self) -> Applied:
        """The sets that were written to it: with v2 the parent may allow less, and empty means whatever it allows.

        Raises:
            OSError: as for `read`.
        """
        return self._read("")

    def lifted(self) -> bool | None:
        """Whether it has no CFS quota; None where the kernel does not tell: without the controller, or it is gone."""
        try:
            return _read_file(self.quota_file).split()[0] in (b"-1", b"max")
        except (OSError, IndexError):
            return None

    def _read(self, suffix: str) -> Applied:
        return Applied(_read_set(f"{self.path}/cpuset.cpus{suffix}"), _read_set(f"{self.path}/cpuset.mems{suffix}"))


def _read_set(path: str) -> CpuSet:
    return _parse(_read_file(path))


def _read_file(path: str) -> bytes:
    # Thousands of these files are read every few seconds: Python's file objects would take most of the time.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


@lru_cache(maxsize=1024)  # the same few sets are read of every container of a pool, and then are one object
def _parse(content: bytes) -> CpuSet:
    return parse_cpuset(content.decode().strip())


def find_group(host_root: Path, pid: int, container_id: str) -> CpusetGroup:
    """The cpuset cgroup of the container whose first process is *pid*.

    A process may sit in a group of its own below the container's, which is the one that has the id in its name.

    Raises:
        OSError: if the process is gone.
        LookupError: if the process is in no cgroup of that container, because the pid belongs to another by now.
    """
    mount, path, unified = _cgroup_of(host_root, pid)
    for part in (Path(path), *Path(path).parents):
        if container_id in part.name:
            return _group(mount, str(part), unified=unified)
    raise LookupError(f"process {pid} is in {path}, which is no cgroup of container {container_id}")


def _group(mount: Path, path: str, *, unified: bool) -> CpusetGroup:
    """The cgroup at *path*; with v1 the same in the hierarchies of both controllers, as runc makes them."""
    below = path.lstrip("/")
    if unified:
        return CpusetGroup(str(mount / below), ".effective", str(mount / below / "cpu.max"))
    return CpusetGroup(str(mount / "cpuset" / below), "", str(mount / "cpu" / below / "cpu.cfs_quota_us"))


def _cgroup_of(host_root: Path, pid: int) -> tuple[Path, str, bool]:
    """The mount, the cgroup of process *pid* below it, and whether it is one of cgroup v2."""
    mount = host_root / "sys/fs/cgroup"
    unified = ""
    for line in (host_root / f"proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpuset" in controllers.split(","):
            return mount, path, False
        if not controllers:
            unified = path
    return mount, unified, True


def own_group(host_root: Path, info: Mapping[str, str]) -> CpusetGroup | None:
    """The cpuset cgroup that a verbose ContainerStatus names, whether it is there or not; None where it names none."""
    path, mount = translate.cgroup_in(info).lstrip("/"), host_root / "sys/fs/cgroup"
    if not path or ".." in path.split("/"):
        return None
    return _group(mount, path, unified=not (mount / "cpuset").is_dir())


def has_processes(group: CpusetGroup) -> bool:
    """Whether anything runs in *group*; not if it is gone."""
    try:
        return bool((Path(group.path) / "cgroup.procs").read_text().strip())
    except OSError:
        return False


def pid_in(info: Mapping[str, str]) -> int | None:
    """The process id in the *info* of a verbose ContainerStatus; None where the runtime tells none or it is 0."""
    try:
        notes = json.loads(info.get("info", "{}"))
    except ValueError:
        return None
    pid = notes.get("pid") if isinstance(notes, dict) else None
    return pid if isinstance(pid, int) and pid > 0 else None


async def if_told(asked: Awaitable[T]) -> T | None:
    """What is *asked* about one container; None where the runtime tells nothing of it: others need not wait for that.

    Raises:
        RuntimeCallError: the runtime is away.
    """
    try:
        return await asked
    except RuntimeCallError as error:
        if error.is_away:
            raise
        return None


class Cgroups:
    """Looks at containers; remembers where their cgroups are."""

    def __init__(self, runtime: RuntimeClient, host_root: Path, lost_after_s: float = 0.0) -> None:
        self._runtime = runtime
        self._host_root = host_root
        self.lost_after_s = lost_after_s
        """How long processes may go on before the runtime has lost them."""
        self._since_s: dict[str, float] = {}
        self._groups: dict[str, CpusetGroup] = {}
        self._left: dict[str, CpusetGroup] = {}
        self.untold: dict[str, str] = {}
        """By container id: why the runtime, which can be asked, does not tell how that one is."""

    @property
    def groups(self) -> Mapping[str, CpusetGroup]:
        """The cgroups that are known, by container id."""
        return self._groups

    async def look(self, container_id: str) -> Seen:
        """State and sets of a container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        if group := self._groups.get(container_id):
            try:
                seen = Seen(ContainerState.RUNNING, group.read(), group.lifted())
                self.untold.pop(container_id, None)
                return seen
            except OSError:
                pass  # it has ended, or is about to: the runtime tells
        return (await self.ask(container_id))[0]

    async def ask(self, container_id: str) -> tuple[Seen, api.ContainerStatusResponse | None]:
        """The same by the runtime's own words, which come along; None: it does not know the container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        try:
            reply = await self._runtime.container_status(container_id, verbose=True)
        except RuntimeCallError as error:
            if error.not_found:
                self.untold.pop(container_id, None)
                self.forget(container_id)
                return Seen(None), None
            if not error.is_away:
                self.untold[container_id] = str(error)
            raise
        self.untold.pop(container_id, None)
        state = translate.state(reply.status)
        if state is ContainerState.RUNNING:
            return self._running(container_id, reply), reply
        self.forget(container_id)
        if state in _LOST and (left := self._left_behind(container_id, reply.info)):
            return left, reply
        return Seen(state), reply

    def _left_behind(self, container_id: str, info: Mapping[str, str]) -> Seen | None:
        """One that does not run by the runtime's words and still has processes; see `still_runs`."""
        group = own_group(self._host_root, info)
        if group is None or not has_processes(group):
            return None
        try:
            seen = Seen(ContainerState.RUNNING, group.read(), group.lifted())
        except OSError:  # gone just now
            return None
        self._groups[container_id] = self._left[container_id] = group
        self._since_s.setdefault(container_id, monotonic())
        return seen

    def still_runs(self, container_id: str) -> bool:
        """Whether processes go on of a container that does not run by the runtime's words, as far as it was asked.

        containerd 1.6 loses them where the call of a start is cut in the middle.
        """
        group = self._left.get(container_id)
        if group is None or has_processes(group):
            return group is not None
        del self._left[container_id]
        self._since_s.pop(container_id, None)
        return False

    def is_lost(self, container_id: str) -> bool:
        """Whether `still_runs` has been true for so long that it will not end by itself."""
        since_s = self._since_s.get(container_id, monotonic())
        return self.still_runs(container_id) and monotonic() - since_s >= self.lost_after_s

    @property
    def left(self) -> list[str]:
        """The ids of those of whom `is_lost` is true."""
        return [container_id for container_id in list(self._left) if self.is_lost(container_id)]

    def forget(self, container_id: str) -> None:
        """Look for the cgroup of that container anew, should it be asked for again."""
        self._groups.pop(container_id, None)

    def keep(self, known: AbstractSet[str]) -> None:
        """Forget all containers but these."""
        for container_id in self._groups.keys() - known:
            del self._groups[container_id]
        for container_id in self.untold.keys() - known:
            del self.untold[container_id]
        for container_id in self._left.keys() - known:
            del self._left[container_id]
            self._since_s.pop(container_id, None)

    def _running(self, container_id: str, reply: api.ContainerStatusResponse) -> Seen:
        if pid := pid_in(reply.info):
            try:
                group = find_group(self._host_root, pid, container_id)
                applied = group.read()
            except (OSError, LookupError):
                return _as_told(reply.status)
            self._groups[container_id] = group
            return Seen(ContainerState.RUNNING, applied, group.lifted())
        return _as_told(reply.status)


def _as_told(status: api.ContainerStatus) -> Seen:
    """A running container as the runtime sees it."""
    return Seen(ContainerState.RUNNING, translate.sets(status), translate.lifted(status))
