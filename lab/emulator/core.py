"""What the services of the embedded runtime share: its parts, delays, and how containers begin and end."""

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from criproxy.cri import api_pb2 as cri
from criproxy.model.cpuset import format_cpuset
from lab.emulator.images import Images
from lab.emulator.records.cpusets import Cpuset, Machine
from lab.emulator.records.records import Container, Records, Sandbox
from lab.emulator.records.views import Events

FIRST_PID = 100_000


class HostFiles:
    """Writes below *root*, which a program that reads cgroups is told to take for ``/``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pids = itertools.count(FIRST_PID)

    def add(self, cgroup: str) -> int:
        """Return the id of a new process in the group *cgroup*, such as ``/kubepods/podX/ID``."""
        pid = next(self._pids)
        process = self._root / f"proc/{pid}"
        process.mkdir(parents=True, exist_ok=True)  # a run that was killed may have left it
        (process / "cgroup").write_text(f"3:cpuset:{cgroup}\n2:cpu:{cgroup}\n0::/\n")
        (process / "stat").write_text(_stat(pid))
        group = self._group(cgroup)
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.procs").write_text(f"{pid}\n")
        return pid

    def write(self, cgroup: str, cpuset: Cpuset, quota_us: int = 0) -> None:
        """Make the files of *cgroup* say *cpuset* and *quota_us*; with a quota of 0 there is none."""
        group = self._group(cgroup)
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpuset.cpus").write_text(format_cpuset(cpuset.cpus) + "\n")
        (group / "cpuset.mems").write_text(format_cpuset(cpuset.mems) + "\n")
        limits = self._group(cgroup, "cpu")
        limits.mkdir(parents=True, exist_ok=True)
        (limits / "cpu.cfs_quota_us").write_text(f"{quota_us or -1}\n")

    def remove(self, cgroup: str, pid: int) -> None:
        """Take away the process and its group."""
        for folder in (self._group(cgroup), self._group(cgroup, "cpu"), self._root / f"proc/{pid}"):
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()

    def _group(self, cgroup: str, controller: str = "cpuset") -> Path:
        # The path comes from a client: it must not lead out of the root.
        steps = (step for step in cgroup.split("/") if step not in {"", ".", ".."})
        return self._root.joinpath("sys/fs/cgroup", controller, *steps)


def _stat(pid: int) -> str:
    """The beginning of a process's file ``stat``, up to when it started: now, in ticks since the boot."""
    started_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    return f"{pid} (sleep) S {'0 ' * 18}{started_ticks}\n"


KILLED = 128 + 9
"""Exit code of a process that got SIGKILL."""


@dataclass(frozen=True, slots=True)
class Core:
    """The parts; *delay_s* says how long a call of the named method takes."""

    machine: Machine
    records: Records
    images: Images
    events: Events
    delay_s: Callable[[str], float]
    files: HostFiles | None

    async def delay(self, method: str) -> None:
        """Wait as long as a call of *method* takes."""
        if seconds := self.delay_s(method):
            await asyncio.sleep(seconds)

    def run_container(self, container: Container, started_ns: int) -> None:
        """Note that the process of *container* runs in the cgroup of its cpuset."""
        container.state, container.started_ns = cri.CONTAINER_RUNNING, started_ns
        container.starting, container.listed = False, None
        container.pid = self.files.add(container.cgroup) if self.files else 0
        self.write_cgroup(container)
        self.events.of_container(cri.CONTAINER_STARTED_EVENT, container)

    def write_cgroup(self, container: Container) -> None:
        """Make the files of its cgroup, if there are any, say what the container has."""
        if self.files and container.cpuset:
            self.files.write(container.cgroup, container.cpuset, container.resources.cpu_quota)

    def end_container(self, container: Container, exit_code: int = KILLED) -> None:
        """End the process of *container*; one that does not run stays as it is."""
        if container.state != cri.CONTAINER_RUNNING:
            return
        if self.files:
            self.files.remove(container.cgroup, container.pid)
        container.exited(exit_code, "Error" if exit_code else "Completed")
        self.events.of_container(cri.CONTAINER_STOPPED_EVENT, container)

    def remove_container(self, container: Container) -> None:
        """Forget *container*, ending its process first."""
        self.end_container(container)
        del self.records.containers[container.id]
        self.records.names.pop(container.name, None)
        self.events.of_container(cri.CONTAINER_DELETED_EVENT, container)

    def stop_sandbox(self, sandbox: Sandbox) -> None:
        """End *sandbox* with all its containers; a stopped one stays as it is."""
        for container in self.records.of_sandbox(sandbox):
            self.end_container(container)
        if sandbox.ready:
            sandbox.ready, sandbox.listed = False, None
            self.events.of_sandbox(cri.CONTAINER_STOPPED_EVENT, sandbox)
