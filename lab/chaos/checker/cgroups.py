"""Which containers run on which CPUs, as the cgroup files say."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CpuSet = frozenset[int]


def parse(text: str) -> CpuSet:
    """Read ``0-3,8``; ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def show(cpus: Iterable[int]) -> str:
    """The same, for people: ``0,1,2,8`` (``-`` for none)."""
    return ",".join(map(str, sorted(cpus))) or "-"


_WAITING = "runc\0init\0"
"""The command line until the program of the container takes its place."""


@dataclass(frozen=True, slots=True)
class Group:
    """The cgroup of one container that runs."""

    cpus: CpuSet
    mems: CpuSet


class Cgroups:
    """The pods' cgroups below *root* (cgroup v1, cpuset).

    A container runs while a process is in its cgroup; where there are no processes (the embedded runtime), while the
    cgroup exists. `has_begun` tells those that only wait for their start.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def running(self) -> dict[str, Group]:
        """By container id; sandboxes are among them."""
        looked = ((each.rpartition("/")[2], look(each)) for each in self._containers())
        return {identifier: group for identifier, group in looked if group}

    def one(self, identifier: str) -> Group | None:
        """A fresh look at one container; None if it does not run."""
        directory = self._of(identifier)
        return look(directory) if directory else None

    def has_begun(self, identifier: str) -> bool:
        """Whether one of its processes is more than the init of runc, which waits for the start and does nothing.

        That is the state "created" of the OCI runtime specification: nothing of the container has been executed. One
        whose start was cut by a restart of containerd stays so until its sandbox is stopped; one whose start a plugin
        has refused ends so.
        """
        directory = self._of(identifier)
        return directory is not None and not _only_waits(directory)

    def _of(self, identifier: str) -> str | None:
        return next((each for each in self._containers() if each.endswith(identifier)), None)

    def _containers(self) -> Iterator[str]:
        for parent in (self._root, f"{self._root}/burstable", f"{self._root}/besteffort"):
            for pod in _directories(parent):
                if pod.rpartition("/")[2].startswith("pod"):
                    yield from _directories(pod)


def _directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:  # gone meanwhile
        return []


def look(directory: str) -> Group | None:
    """What one cgroup says; None if nothing runs in it, or it is being made or removed."""
    try:
        if not _has_process(directory):
            return None
        cpus, mems = (parse(_read(f"{directory}/cpuset.{kind}")) for kind in ("cpus", "mems"))
    except (OSError, ValueError):
        return None
    return Group(cpus, mems) if cpus and mems else None


def _has_process(directory: str) -> bool:
    try:
        return bool(_read(f"{directory}/cgroup.procs"))
    except FileNotFoundError:
        return True


def _only_waits(directory: str) -> bool:
    try:
        processes = _read(f"{directory}/cgroup.procs").split()
    except OSError:  # there are none (the embedded runtime)
        return False
    return all(_command(process) in (_WAITING, "") for process in processes)


def _command(process: str) -> str:
    """Its command line; empty if it has ended."""
    try:
        return _read(f"/proc/{process}/cmdline")
    except OSError:
        return ""


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)
