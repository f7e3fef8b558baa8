"""The cpuset cgroup of one container: found by a process or by its path, and read.

The files are in memory, so that reading them on the event loop takes microseconds.
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import Applied

_READ_BYTES = 4096
"""Maximum size of a cpuset file."""


@dataclass(frozen=True, slots=True)
class CpusetGroup:
    """The cpuset cgroup of a container."""

    path: str
    suffix: str
    """Suffix of the files with the effective sets: empty for cgroup v1, ``.effective`` for v2."""
    quota_file: str = ""
    """Path of its CFS quota, ``cpu.cfs_quota_us`` or, with v2, ``cpu.max``; the file may be missing."""

    def read(self) -> Applied:
        """Read the effective sets.

        Raises:
            OSError: They cannot be read; FileNotFoundError and ENODEV mean that the cgroup no longer exists.
        """
        return self._read(self.suffix)

    def configured(self) -> Applied:
        """Read the sets that were written to it: with v2, the parent may allow less, and empty means all it allows.

        Raises:
            OSError: As for `read`.
        """
        return self._read("")

    def lifted(self) -> bool | None:
        """Whether it has no CFS quota; None if unknown, since there is no controller or the cgroup no longer exists."""
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


@lru_cache(maxsize=1024)  # many containers of a pool have the same few sets, which then are one object
def _parse(content: bytes) -> CpuSet:
    return parse_cpuset(content.decode().strip())


def find_group(host_root: Path, pid: int, container_id: str) -> CpusetGroup:
    """Find the cpuset cgroup of the container whose first process is *pid*.

    A process may be in a nested cgroup below the container's, which is the one with the ID in its name.

    Raises:
        OSError: The process no longer exists.
        LookupError: The process is in no cgroup of that container, since the PID has been reused.
    """
    mount, path, unified = _cgroup_of(host_root, pid)
    for part in (Path(path), *Path(path).parents):
        if container_id in part.name:
            return _group(mount, str(part), unified=unified)
    raise LookupError(f"process {pid} is in {path}, which is not a cgroup of container {container_id}")


def _group(mount: Path, path: str, *, unified: bool) -> CpusetGroup:
    """Return the cgroup at *path*; with v1, the same path in the hierarchies of both controllers, as runc does."""
    below = path.lstrip("/")
    if unified:
        return CpusetGroup(str(mount / below), ".effective", str(mount / below / "cpu.max"))
    return CpusetGroup(str(mount / "cpuset" / below), "", str(mount / "cpu" / below / "cpu.cfs_quota_us"))


def _cgroup_of(host_root: Path, pid: int) -> tuple[Path, str, bool]:
    """Return the mount, the cgroup of process *pid* below it, and whether it is one of cgroup v2."""
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
    """Return the cpuset cgroup at *path* below the mount, even if it does not exist; None for an invalid path."""
    below, mount = path.lstrip("/"), host_root / "sys/fs/cgroup"
    if not below or ".." in below.split("/"):
        return None
    return _group(mount, below, unified=not (mount / "cpuset").is_dir())


def has_processes(group: CpusetGroup) -> bool:
    """Whether *group*, or a cgroup below it, has processes; False if it no longer exists.

    With systemd in a container, all of its processes are in cgroups below that of the container.
    """
    return any(_is_populated(Path(folder)) for folder, _, _ in os.walk(group.path))


def _is_populated(folder: Path) -> bool:
    try:
        return bool((folder / "cgroup.procs").read_text().strip())
    except OSError:  # it is gone, or a threaded cgroup: the processes are in the one above
        return False
