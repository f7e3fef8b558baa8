"""The parent cgroups of pods, made as the kubelet makes them: for the demo and for tests on a real runtime.

Only cgroups under a root of our own are made and removed, so that a kubelet on the same machine is not touched.
"""

import os
from pathlib import Path
from typing import Literal

CgroupDriver = Literal["cgroupfs", "systemd"]
"""Who makes cgroups, and thereby how they are named."""

_CGROUP_MOUNT = Path("/sys/fs/cgroup")
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


class PodCgroups:
    """Makes and removes pod cgroups under *root*, on cgroup v1 (every controller) or v2.

    Args:
        root: absolute cgroup path that stands in front of ``kubepods``; removed with all below it by `remove`.
    """

    def __init__(self, root: str) -> None:
        if not root.startswith("/") or root.strip("/") == "" or ".." in root:
            raise ValueError(f"cgroup root {root!r} must be an absolute path below /")
        self.root = root.rstrip("/")
        self._mount = _CGROUP_MOUNT

    def make(self, path: str) -> None:
        """Make the cgroup *path* and what is missing above it, able to hold containers with a cpuset."""
        # v2's one tree, or v1's cpuset: runc makes the others by itself.
        current = self._mount if self._unified else self._mount / "cpuset"
        for part in path.strip("/").split("/"):
            self._enable(current)
            current /= part
            current.mkdir(exist_ok=True)
            self._fill(current)

    def remove(self, path: str = "") -> None:
        """Remove every cgroup under *path*, or the root, in all hierarchies; those with processes raise OSError."""
        for tree in [self._mount] if self._unified else [each for each in self._mount.iterdir() if each.is_dir()]:
            for directory, _, _ in os.walk(tree / (path or self.root).strip("/"), topdown=False):
                Path(directory).rmdir()

    @property
    def _unified(self) -> bool:
        return (self._mount / "cgroup.controllers").exists()

    def _enable(self, parent: Path) -> None:
        if self._unified:
            wanted = {"cpu", "cpuset", "memory", "pids"}
            usable = wanted & set((parent / "cgroup.controllers").read_text().split())
            (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(usable)))

    def _fill(self, cgroup: Path) -> None:
        """A new cpuset cgroup of v1 is empty, and nothing can be put into it until both files are written."""
        if self._unified:
            return
        for name in _CPUSET_FILES:
            if not (cgroup / name).read_text().strip():
                (cgroup / name).write_text((cgroup.parent / name).read_text())
