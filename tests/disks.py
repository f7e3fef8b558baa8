"""Small disks that tests may fill or make read-only."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SIZE_KB = 16_384  # the log of the database alone may take 4 MB


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A disk of `SIZE_KB` on *place*, which is made; skips where it cannot be mounted."""
    if os.geteuid():
        pytest.skip("a small disk needs root to be mounted")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k,mode=0700", "none", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0


def free(disk: Path) -> None:
    """Undo `fill`."""
    (disk / "filler").unlink()


def remount(disk: Path, how: str) -> None:
    """Make the disk ``ro`` or ``rw``; ro needs that no file is open for writing."""
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)
