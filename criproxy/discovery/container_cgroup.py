"""The cpuset cgroup of one container: found through a process or by its path, and read.

The files are in memory, so reading them on the event loop costs microseconds.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Applied

_READ_BYTES = 4096
"""What the kernel writes of a cpuset file at most."""


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
    raise LookupError(f"process {pid} is in {path}, which is not a cgroup of container {container_id}")


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


def group_at(host_root: Path, path: str) -> CpusetGroup | None:
    """The cpuset cgroup at *path* below the mount, whether it is there or not; None where the path names none."""
    below, mount = path.lstrip("/"), host_root / "sys/fs/cgroup"
    if not below or ".." in below.split("/"):
        return None
    return _group(mount, below, unified=not (mount / "cpuset").is_dir())


def has_processes(group: CpusetGroup) -> bool:
    """Whether anything runs in *group*; not if it is gone."""
    try:
        return bool((Path(group.path) / "cgroup.procs").read_text().strip())
    except OSError:
        return False
