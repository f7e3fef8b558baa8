"""Files below a made-up root that say of the embedded runtime's containers what /proc and cgroup v1 would say."""

import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path

from criproxy.model.controls import DEFAULTS
from criproxy.model.cpuset import format_cpuset
from lab.emulator.records.cpusets import Cpuset

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

    def write(self, cgroup: str, cpuset: Cpuset, quota_us: int = 0, unified: Mapping[str, str] | None = None) -> None:
        """Make the files of *cgroup* say *cpuset*, *quota_us* and *unified*; with a quota of 0 there is none.

        What *unified* has are files of cgroup v2, of which those that classes set stand beside the others.
        """
        group = self._group(cgroup)
        group.mkdir(parents=True, exist_ok=True)
        (group / "cpuset.cpus").write_text(format_cpuset(cpuset.cpus) + "\n")
        (group / "cpuset.mems").write_text(format_cpuset(cpuset.mems) + "\n")
        others = {name: text for name, text in (unified or {}).items() if name in DEFAULTS}
        for name, text in {"cpu.cfs_quota_us": f"{quota_us or -1}", **others}.items():
            folder = self._group(cgroup, name.partition(".")[0])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n")

    def remove(self, cgroup: str, pid: int) -> None:
        """Take away the process and its group."""
        controllers = (self._root / "sys/fs/cgroup").iterdir()
        groups = [group for each in controllers if (group := self._group(cgroup, each.name)).is_dir()]
        for folder in (*groups, self._root / f"proc/{pid}"):
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
