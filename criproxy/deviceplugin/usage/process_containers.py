"""The container of a process, from the text of ``/proc/<pid>/cgroup``.

The runtime names a container's cgroup after its id, 64 hexadecimal digits: alone (cgroupfs driver), or between the
runtime's name and ``.scope`` (systemd driver). Cgroups below are created inside the container and may have any name,
even that of another container; therefore the first match from the root counts.
"""

import re

_RUNTIMES = "cri-containerd|crio|docker|libpod"
_CONTAINER = re.compile(rf"(?:.*:)?(?:(?:{_RUNTIMES})[-:])?([0-9a-f]{{64}})(?:\.scope)?")
"""A component of a path. If the kubelet uses systemd's names and containerd does not use systemd's driver, containerd
names the cgroup ``<slice>:cri-containerd:<id>``."""
_LINE = re.compile(r"[0-9]+:[^:]*:(/.*)")
"""Hierarchy, controllers, path: one line for each hierarchy of v1, and ``0::<path>`` for v2."""


def container_of(cgroups: str) -> str:
    """Return the id of the container of a process; empty if its cgroups name none.

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
