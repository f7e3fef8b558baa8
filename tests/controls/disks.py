"""Disks for tests: loop devices, whose I/O scheduler may be changed."""

import os
import subprocess
from pathlib import Path
from typing import Self

_BYTES = 16 << 20


class Disk:
    """A loop device; as a context manager it is detached, with its scheduler as before."""

    def __init__(self, folder: Path, name: str) -> None:
        file = folder / name
        file.touch()
        os.truncate(file, _BYTES)
        found = subprocess.run(["losetup", "-f", "--show", str(file)], capture_output=True, text=True, check=True)
        self.path = found.stdout.strip()
        number = Path(self.path).stat().st_rdev
        self.number = f"{os.major(number)}:{os.minor(number)}"
        self.scheduler = Path(f"/sys/block/{Path(self.path).name}/queue/scheduler")
        self._scheduler = self.scheduler.read_text().partition("[")[2].partition("]")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.write_text(self._scheduler)
        subprocess.run(["losetup", "-d", self.path], check=True)
