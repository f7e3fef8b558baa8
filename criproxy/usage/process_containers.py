"""Which container a process belongs to, by the text of ``/proc/<pid>/cgroup``.

The runtime names a container's cgroup after its id, 64 hexadecimal digits: alone (cgroupfs driver), or between the
runtime's name and ``.scope`` (systemd driver). Cgroups below that one are made inside the container, where they may
have any name, also that of another container: so the first match from the root counts.
"""

import re

_RUNTIMES = "cri-containerd|crio|docker|libpod"
_CONTAINER = re.compile(rf"(?:.*:)?(?:(?:{_RUNTIMES})[-:])?([0-9a-f]{{64}})(?:\.scope)?")
"""A part of a path. containerd makes ``<slice>:cri-containerd:<id>`` of systemd's names without systemd's driver."""
_LINE = re.compile(r"[0-9]+:[^:]*:(/.*)")
"""Hierarchy, controllers, path: one line for each hierarchy of v1, and ``0::<path>`` for v2."""


def container_of(cgroups: str) -> str:
    """The id of the container of a process; empty where it belongs to none that is known by its cgroup.

    Args:
        cgroups: what its file says. With v1 some hierarchies may have the process elsewhere, such as the one of v2 that
            is mounted beside them: the first that names a container counts.
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
