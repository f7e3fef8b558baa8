"""What /proc says of processes: when each started, and to which container it belongs.

Blocks: it runs in a thread, since the kernel may let who reads a cgroup wait.
"""

import os
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from criproxy.usage.owners import container_of
from criproxy.usage.values import Process, ProcessUse, Reading

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_START_FIELD = 22 - 3
"""Behind the name of the program, which may have blanks and brackets and is the second field."""
_EXITED = (b"Z", b"X", b"x")
"""States of a thread that runs no more."""
_CLOCKS_S = 0.05
"""Between the ticks of a start and the clock."""


@dataclass(slots=True, repr=False)
class Processes:
    """The processes of the machine whose /proc is below *host_root*."""

    host_root: Path = Path("/")
    _containers: dict[Process, str] = field(default_factory=dict)
    """Of those of the last reading that are in a container: no process leaves one."""

    def owned(self, reading: Reading) -> Reading:
        """The *reading* with the start and the container of each process.

        A process that is gone, or that began after the reading and so is another one with the same number, belongs to
        nobody and has no start.
        """
        known: dict[Process, str] = {}
        until_ticks = self._ticks(reading.at_s)
        owned = tuple(self._owned(each, until_ticks, known) for each in reading.processes)
        self._containers = known
        return replace(reading, processes=owned)

    def is_same(self, process: Process, container_id: str) -> bool:
        """Whether *process* still runs, and in that container; asked anew, for who wants to end it."""
        return (
            process.start_ticks > 0
            and self.start_ticks(process.pid) == process.start_ticks
            and bool(container_id)
            and self._container(process.pid) == container_id
        )

    def start_ticks(self, pid: int) -> int:
        """When a process started; 0: it is not there."""
        try:
            return start_in(self._read(pid, "stat"))
        except (OSError, ValueError, IndexError):
            return 0

    def _owned(self, use: ProcessUse, until_ticks: float, known: dict[Process, str]) -> ProcessUse:
        start_ticks = self.start_ticks(use.process.pid)
        if not 0 < start_ticks <= until_ticks:
            return use
        process = Process(pid=use.process.pid, start_ticks=start_ticks)
        container = known.get(process) or self._containers.get(process) or self._container(process.pid)
        if container:
            known[process] = container
        elif self._has_exited(process.pid, "stat"):
            return use
        return replace(use, process=process, container_id=container)

    def _container(self, pid: int) -> str:
        """Of its first thread, or of another one if that has exited: v1 shows it at the root of every hierarchy."""
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
        """Whether a thread is gone, or only its number is left."""
        try:
            return _fields_in(self._read(pid, stat))[0] in _EXITED
        except (OSError, ValueError, IndexError):
            return True

    def _read(self, pid: int, name: str) -> bytes:
        descriptor = os.open(f"{self.host_root}/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 65_536)
        finally:
            os.close(descriptor)

    def _ticks(self, at_s: float) -> float:
        """A time of the monotonic clock as that of starts, which counts while the machine sleeps, too."""
        slept_s = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        return (at_s + slept_s + _CLOCKS_S) * _TICKS_PER_S


def start_in(stat: bytes) -> int:
    """The start of a process in what its file ``stat`` says."""
    return int(_fields_in(stat)[_START_FIELD])


def _fields_in(stat: bytes) -> list[bytes]:
    """The fields behind the name of the program."""
    return stat[stat.rindex(b")") + 2 :].split()
