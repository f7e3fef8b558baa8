"""Cgroups of real processes, in every hierarchy of cgroup v1 or in cgroup v2, as those of containers."""

import os
import subprocess
import uuid
from pathlib import Path
from typing import Self

MOUNT = Path("/sys/fs/cgroup")
UNIFIED = not (MOUNT / "cpuset").is_dir()


class Cgroup:
    """A cgroup; as a context manager it is removed with its processes."""

    def __init__(self, path: str = "", outer: "Cgroup | None" = None) -> None:
        self.path = path or f"criproxy-test-{uuid.uuid4().hex[:12]}"
        """Below the mount, or below the folder of a controller."""
        self.folders = [each / self.path for each in _hierarchies()]
        self._processes: list[subprocess.Popen[str]] = outer._processes if outer else []
        for folder in self.folders:
            folder.mkdir()
            _fill(folder)

    @classmethod
    def at(cls, path: str) -> Self:
        """Return one that is there already, and that somebody else removes."""
        found = cls.__new__(cls)
        found.path, found.folders, found._processes = path, [], []
        return found

    def nested(self, name: str) -> "Cgroup":
        """Make a cgroup below it; it is removed with it."""
        return Cgroup(f"{self.path}/{name}", self)

    def file(self, name: str) -> Path:
        """Return a file of it; with cgroup v1, the controller is the first part of *name*."""
        return MOUNT / self.path / name if UNIFIED else MOUNT / name.partition(".")[0] / self.path / name

    def run(self, *command: str) -> "subprocess.Popen[str]":
        """Start a program in it, with pipes as standard input and output."""
        files = " ".join(str(folder / "cgroup.procs") for folder in self.folders)
        script = f'for file in {files}; do echo 0 >$file; done; echo; exec "$@"'
        process = subprocess.Popen(
            ["sh", "-c", script, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        assert process.stdout
        assert process.stdout.readline() == "\n", "it is in the cgroup"
        return process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        # Where both versions are mounted, runc also makes it in that of cgroup v2.
        for folder in (*self.folders, MOUNT / "unified" / self.path):
            for place, _, _ in os.walk(folder, topdown=False):
                Path(place).rmdir()


def _hierarchies() -> list[Path]:
    if UNIFIED:
        return [MOUNT]
    return [each for each in MOUNT.iterdir() if (each / "tasks").exists() and not each.is_symlink()]


def _fill(folder: Path) -> None:
    """A new cpuset cgroup of v1 is empty, and nothing can be put into it until both files are written."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not UNIFIED and (folder / name).exists():
            (folder / name).write_text((folder.parent / name).read_text())
