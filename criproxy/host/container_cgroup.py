"""The cgroup of one container: found by a process or by its path, and read.

The files are in memory, so that reading them on the event loop takes microseconds.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criproxy.model.attributes import ATTRIBUTES, Attribute
from criproxy.model.grant import NO_CPUS, Applied

_READ_BYTES = 4096
"""Maximum size of a file of an attribute."""
_UNREAD: dict[str, Any] = {"cpus": NO_CPUS, "mems": NO_CPUS}


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The cgroup of a container; with cgroup v1, those of the same path in the hierarchies of the controllers."""

    mount: str
    below: str
    """Its path below the mount or, with v1, below the folder of a controller."""
    unified: bool
    """Whether it is one of cgroup v2."""

    @property
    def path(self) -> str:
        """The folder of the cgroup with its cpuset."""
        return f"{self.mount}/{self.below}" if self.unified else f"{self.mount}/cpuset/{self.below}"

    def read(self, attributes: tuple[Attribute[Any], ...] = ATTRIBUTES, *, written: bool = False) -> Applied:
        """Read *attributes*; the values of others are not set.

        Args:
            attributes: which ones; the file of one that is no cpuset may be missing.
            written: whether to read what was written instead of what is in effect: with v2, the parent may allow less,
                and empty means all it allows.

        Raises:
            OSError: The cpuset cannot be read; FileNotFoundError and ENODEV mean that the cgroup no longer exists.
        """
        return Applied(**_UNREAD | {each.name: self._value(each, written=written) for each in attributes})

    def file(self, attribute: Attribute[Any], *, written: bool = False) -> str:
        """Return the path of the file of *attribute*; *written* as for `read`."""
        if self.unified:
            return f"{self.mount}/{self.below}/{(written and attribute.written) or attribute.v2}"
        return f"{self.mount}/{attribute.controller}/{self.below}/{attribute.v1}"

    def _value(self, attribute: Attribute[Any], *, written: bool) -> Any:  # noqa: ANN401 (of any attribute)
        """Return a value; None if unknown, since there is no controller or the cgroup no longer exists."""
        try:
            return attribute.parse(_read_file(self.file(attribute, written=written)))
        except (OSError, IndexError):
            if attribute.is_cpuset:
                raise
            return None


def _read_file(path: str) -> str:
    # Thousands of these files are read every few seconds: Python's file objects would take most of the time.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _READ_BYTES).decode()
    finally:
        os.close(fd)


def find_group(host_root: Path, pid: int, container_id: str) -> ContainerGroup:
    """Find the cgroup of the container whose first process is *pid*.

    A process may be in a nested cgroup below the container's, which is the one with the ID in its name.

    Raises:
        OSError: The process no longer exists.
        LookupError: The process is in no cgroup of that container, since the PID has been reused.
    """
    mount, path, unified = _cgroup_of(host_root, pid)
    for part in (Path(path), *Path(path).parents):
        if container_id in part.name:
            return ContainerGroup(str(mount), str(part).lstrip("/"), unified)
    raise LookupError(f"process {pid} is in {path}, which is not a cgroup of container {container_id}")


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


def group_at(host_root: Path, path: str) -> ContainerGroup | None:
    """Return the cgroup at *path* below the mount, even if it does not exist; None for an invalid path."""
    below, mount = path.lstrip("/"), host_root / "sys/fs/cgroup"
    if not below or ".." in below.split("/"):
        return None
    return ContainerGroup(str(mount), below, unified=not (mount / "cpuset").is_dir())


def has_processes(group: ContainerGroup) -> bool:
    """Whether *group*, or a cgroup below it, has processes; False if it no longer exists.

    With systemd in a container, all of its processes are in cgroups below that of the container.
    """
    return any(_is_populated(Path(folder)) for folder, _, _ in os.walk(group.path))


def _is_populated(folder: Path) -> bool:
    try:
        return bool((folder / "cgroup.procs").read_text().strip())
    except OSError:  # it is gone, or a threaded cgroup: the processes are in the one above
        return False
