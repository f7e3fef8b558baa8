"""What a container really has: read from its cgroup, which is found through the pid that the runtime reports.

The files are in memory, so reading them on the event loop costs microseconds. A runtime whose containers are not on
this machine (the embedded one), or that reports no pid, is believed through ContainerStatus.
"""

import json
import os
from collections.abc import Awaitable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from criproxy.control.containers.in_flight import InFlight
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.errors import StatusCode
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
    """What was read of a container."""

    state: ContainerState | None
    """None: the runtime does not know it."""
    applied: Applied | None = None
    """Its sets, where it runs and they can be read."""
    lifted: bool | None = None
    """Whether it runs without a CFS quota, as one without a CPU limit does; None where that cannot be read."""

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
        """Whether it has no CFS quota; None where the kernel does not say: without the controller, or it is gone."""
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
    """The process id in the *info* of a verbose ContainerStatus; None where it has none or it is 0."""
    try:
        notes = json.loads(info.get("info", "{}"))
    except ValueError:
        return None
    pid = notes.get("pid") if isinstance(notes, dict) else None
    return pid if isinstance(pid, int) and pid > 0 else None


async def if_reported(asked: Awaitable[T]) -> T | None:
    """What is *asked* about one container; None where the runtime fails for that one: others need not wait for it.

    Raises:
        RuntimeCallError: the runtime is away.
    """
    try:
        return await asked
    except RuntimeCallError as error:
        if error.is_away:
            raise
        return None


@dataclass
class Cgroups:
    """Reads containers; remembers where their cgroups are."""

    runtime: RuntimeClient
    host_root: Path
    in_flight: InFlight = field(default_factory=InFlight)
    """Notified of processes that the runtime has lost."""
    groups: dict[str, CpusetGroup] = field(default_factory=dict)
    """The cgroups that are known, by container id; for others to read."""
    unreported: dict[str, str] = field(default_factory=dict)
    """By container id: why the runtime, which answers otherwise, does not report how that one is."""

    async def read(self, container_id: str) -> Seen:
        """State and sets of a container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        if (group := self.groups.get(container_id)) and (seen := _read(group)):
            self.unreported.pop(container_id, None)
            return seen
        return (await self.ask(container_id))[0]  # if it is gone, the container has ended, or is about to

    async def ask(self, container_id: str) -> tuple[Seen, api.ContainerStatusResponse | None]:
        """The same by the runtime's own words, which come along; None: it does not know the container.

        Raises:
            RuntimeCallError: if the runtime cannot be asked, or what it says cannot be read.
        """
        try:
            reply = await self.runtime.container_status(container_id, verbose=True)
        except RuntimeCallError as error:
            if not error.not_found:
                if not error.is_away:
                    self.unreported[container_id] = str(error)
                raise
            reply = None
        self.forget(container_id)
        try:
            seen = Seen(None) if reply is None else self._seen(container_id, reply)
        except Exception as error:  # what this one says keeps no other from being asked
            text = "criproxy cannot read what the runtime says of it"
            self.unreported[container_id] = f"{text}: {error!r}"
            raise RuntimeCallError("ContainerStatus", StatusCode.INTERNAL, text) from error
        self.unreported.pop(container_id, None)
        return seen, reply

    def _seen(self, container_id: str, reply: api.ContainerStatusResponse) -> Seen:
        state, group = translate.state(reply.status), None
        if state is ContainerState.RUNNING and (pid := pid_in(reply.info)):
            with suppress(OSError, LookupError):
                group = find_group(self.host_root, pid, container_id)
        elif state in _LOST and (own := own_group(self.host_root, reply.info)) and has_processes(own):
            group = own
        seen = _read(group) if group else None
        self.in_flight.leave(container_id, partial(has_processes, group) if group and seen and state in _LOST else None)
        if group and seen:
            self.groups[container_id] = group
            return seen
        if state is ContainerState.RUNNING:
            return Seen(state, translate.sets(reply.status), translate.lifted(reply.status))
        return Seen(state)

    def forget(self, container_id: str) -> None:
        """Find the cgroup of that container anew, should it be asked for again."""
        self.groups.pop(container_id, None)

    def keep(self, known: AbstractSet[str]) -> None:
        """Forget all containers but these."""
        for by_id in (self.groups, self.unreported):
            for container_id in by_id.keys() - known:
                del by_id[container_id]


def _read(group: CpusetGroup) -> Seen | None:
    """A running container by its cgroup; None if that is gone."""
    try:
        return Seen(ContainerState.RUNNING, group.read(), group.lifted())
    except OSError:
        return None
