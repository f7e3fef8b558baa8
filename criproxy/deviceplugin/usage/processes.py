"""Processes in /proc: when each started, and to which container it belongs.

All functions but `Processes.with_known` block and run in a thread, since a read of a cgroup file may wait in the
kernel.
"""

import os
import re
import resource
import select
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock

from criproxy.devices.usage.values import Process, ProcessUse, Reading

_RUNTIMES = "cri-containerd|crio|docker|libpod"
_CONTAINER = re.compile(rf"(?:.*:)?(?:(?:{_RUNTIMES})[-:])?([0-9a-f]{{64}})(?:\.scope)?")
"""A component of a path. If the kubelet uses systemd's names and containerd does not use systemd's driver, containerd
names the cgroup ``<slice>:cri-containerd:<id>``."""
_LINE = re.compile(r"[0-9]+:[^:]*:(/.*)")
"""Hierarchy, controllers, path: one line for each hierarchy of v1, and ``0::<path>`` for v2."""
MOST_PIDFDS = 1024
"""How many processes are kept at most, if the limit of open files permits it."""
_SHARE = 4
"""One of so many files that may be open is a pidfd at most: the process needs others."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_START_FIELD = 22 - 3
"""The index of the start time after the name of the program, which is the second field and may contain blanks and
brackets."""
_EXITED = (b"Z", b"X", b"x")
"""The states of a thread that has exited."""
_MOST_BYTES = 16_384
"""Of a file: the one with the cgroups of all hierarchies of v1 is the longest."""
_CLOCKS_S = 0.05
"""The tolerance between a start in ticks and the clock."""


def container_of(cgroups: str) -> str:
    """Return the id of the container of a process; empty if its cgroups name none.

    The runtime names a container's cgroup after its id, 64 hexadecimal digits: alone (cgroupfs driver), or between the
    runtime's name and ``.scope`` (systemd driver). Cgroups below are created inside the container and may have any
    name, even that of another container; therefore the first match from the root counts.

    Args:
        cgroups: the content of the process's file. With v1, the process may be elsewhere in some hierarchies, such as
            that of v2, which is mounted in addition: the first that names a container counts.
    """
    for line in cgroups.splitlines():
        if (found := _LINE.fullmatch(line)) and (container := _named_in(found[1])):
            return container
    return ""


def _named_in(path: str) -> str:
    for part in path.split("/"):
        if found := _CONTAINER.fullmatch(part):
            return found[1]
    return ""


class Pidfds:
    """Notices which processes have exited, by a pidfd of each: one system call for all of them.

    A pidfd stays with its process: if another process gets the PID, the pidfd says that the first one has exited.
    Without pidfds (Linux before 5.3), no process is kept.

    Only one thread at a time may use an object.
    """

    def __init__(self) -> None:
        self._by_pid: dict[int, int] = {}
        self._pids: dict[int, int] = {}
        self._epoll: select.epoll | None = None
        self._most = min(MOST_PIDFDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE)

    def __del__(self) -> None:
        """Close all: a class that is not watched any more needs none."""
        for descriptor in self._pids:
            os.close(descriptor)

    def keep(self, pid: int) -> bool:
        """Notice from now on when the process that has this PID now exits; return whether that is possible."""
        if pid in self._by_pid:
            return True
        if len(self._by_pid) >= self._most:
            return False
        try:
            self._epoll = self._epoll or select.epoll()
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        self._by_pid[pid], self._pids[descriptor] = descriptor, pid
        try:
            self._epoll.register(descriptor, select.EPOLLIN)
        except OSError:
            self.drop(pid)
            return False
        return True

    def drop(self, pid: int) -> None:
        """Do not notice the exit of a process any more."""
        descriptor = self._by_pid.pop(pid, None)
        if descriptor is not None:
            del self._pids[descriptor]
            os.close(descriptor)

    def exited(self) -> list[int]:
        """Return the PIDs of the processes that have exited since the last call; they are not kept any more."""
        found = self._epoll.poll(0, self._most) if self._by_pid and self._epoll else ()
        pids = [self._pids[descriptor] for descriptor, _ in found]
        for pid in pids:
            self.drop(pid)
        return pids


@dataclass(slots=True, repr=False)
class Processes:
    """The processes of the machine whose /proc is below *host_root*."""

    host_root: Path = Path("/")
    own_root: Path = Path("/")
    """The same of this process's own PID namespace, for whose PIDs there are pidfds."""
    _containers: dict[Process, str] = field(default_factory=dict)
    """The containers of the processes of the last reading: a process never leaves its container."""
    _running: dict[int, tuple[Process, str]] = field(default_factory=dict)
    """Those of them whose exit `_pidfds` notices, with their containers: their files need not be read again."""
    _pidfds: Pidfds = field(default_factory=Pidfds)
    _lock: Lock = field(default_factory=Lock)
    """Held while the processes of a reading are looked for, even if that hangs."""

    def with_known(self, reading: Reading) -> Reading | None:
        """Return what `with_containers` returns if no file has to be read for that; None: one has to. Never blocks."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._forget_exited()
            if self._running.keys() != {each.process.pid for each in reading.processes}:
                return None
            until_ticks = self._ticks(reading.at_s)
            if any(process.start_ticks > until_ticks for process, _ in self._running.values()):
                return None
            located = tuple([each.of(*self._running[each.process.pid]) for each in reading.processes])
            return replace(reading, processes=located)
        finally:
            self._lock.release()

    def with_containers(self, reading: Reading) -> Reading:
        """Return the *reading* with the start and the container of each process.

        A process that has exited has neither, and so has one that started after the reading: it is another process with
        the same PID.
        """
        with self._lock:
            self._forget_exited()
            known: dict[Process, str] = {}
            until_ticks = self._ticks(reading.at_s)
            located = tuple(self._with_container(each, until_ticks, known) for each in reading.processes)
            self._containers = known
            for pid in self._running.keys() - {process.pid for process in known}:
                del self._running[pid]
                self._pidfds.drop(pid)
            return replace(reading, processes=located)

    def is_same(self, process: Process, container_id: str) -> bool:
        """Whether *process* still runs in that container; reads /proc anew, since the process may be killed now."""
        return (
            process.start_ticks > 0
            and self.start_ticks(process.pid) == process.start_ticks
            and bool(container_id)
            and self._container(process.pid) == container_id
        )

    def start_ticks(self, pid: int) -> int:
        """Return when a process started, in clock ticks since boot; 0: there is no such process."""
        return _start_ticks(self.host_root, pid)

    def _with_container(self, use: ProcessUse, until_ticks: float, known: dict[Process, str]) -> ProcessUse:
        pid = use.process.pid
        if pid in self._running:
            process, container = self._running[pid]
            if process.start_ticks > until_ticks:
                return use
            known[process] = container
            return use.of(process, container)
        is_kept = self._pidfds.keep(pid)  # before anything is read: that is of this process, or of a later one
        located = self._looked_up(use, until_ticks, known)
        if is_kept and located.container_id and self._is_own(located.process):
            self._running[pid] = located.process, located.container_id
        else:
            self._pidfds.drop(pid)
        return located

    def _looked_up(self, use: ProcessUse, until_ticks: float, known: dict[Process, str]) -> ProcessUse:
        start_ticks = self.start_ticks(use.process.pid)
        if not 0 < start_ticks <= until_ticks:
            return use
        process = Process(pid=use.process.pid, start_ticks=start_ticks)
        container = known.get(process) or self._containers.get(process) or self._container(process.pid)
        if container:
            known[process] = container
        elif self._has_exited(process.pid, "stat"):
            return use
        return use.of(process, container)

    def _is_own(self, process: Process) -> bool:
        """Whether the PID means the same process in this process's own PID namespace."""
        return self.host_root == self.own_root or _start_ticks(self.own_root, process.pid) == process.start_ticks

    def _forget_exited(self) -> None:
        """Forget the processes that have exited: if a PID is still reported, its files are read again."""
        for pid in self._pidfds.exited():
            self._running.pop(pid, None)

    def _container(self, pid: int) -> str:
        """Return the container of a process, by its first thread, or by another one if that has exited.

        v1 shows an exited thread at the root of every hierarchy.
        """
        try:
            found = container_of(os.fsdecode(self._read(pid, "cgroup")))
            if found or not self._has_exited(pid, "stat"):
                return found
            threads = [each.name for each in (self.host_root / f"proc/{pid}/task").iterdir()]
        except OSError:
            return ""
        running = (f"task/{tid}" for tid in threads if not self._has_exited(pid, f"task/{tid}/stat"))
        return next(map(partial(self._container_of_thread, pid), running), "")

    def _container_of_thread(self, pid: int, thread: str) -> str:
        try:
            return container_of(os.fsdecode(self._read(pid, f"{thread}/cgroup")))
        except OSError:
            return ""

    def _has_exited(self, pid: int, stat: str) -> bool:
        """Whether a thread has exited, reaped or not."""
        try:
            return _fields_in(self._read(pid, stat), 1)[0] in _EXITED
        except (OSError, ValueError, IndexError):
            return True

    def _read(self, pid: int, name: str) -> bytes:
        return _read(self.host_root, pid, name)

    def _ticks(self, at_s: float) -> float:
        """Convert a monotonic time to clock ticks since boot, which count while the machine sleeps, too."""
        slept_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return (at_s + slept_s + _CLOCKS_S) * _TICKS_PER_S


def start_in(stat: bytes) -> int:
    """Return the start of a process from its file ``stat``."""
    return int(_fields_in(stat, _START_FIELD + 1)[_START_FIELD])


def _start_ticks(root: Path, pid: int) -> int:
    try:
        return start_in(_read(root, pid, "stat"))
    except (OSError, ValueError, IndexError):
        return 0


def _read(root: Path, pid: int, name: str) -> bytes:
    descriptor = os.open(f"{root}/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _fields_in(stat: bytes, count: int) -> list[bytes]:
    """Return so many fields after the name of the program, and then the rest of the line."""
    return stat[stat.rindex(b")") + 2 :].split(maxsplit=count)
