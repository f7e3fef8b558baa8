"""Device nodes and folders on this machine: containerd looks for them where its host has them, and nowhere else."""

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

WITHOUT_DRIVER = 240
"""A major number of no driver: opening such a node tells whether the kernel's device rules allow it (ENXIO) or not."""


@contextmanager
def alone() -> Iterator[None]:
    """Let no other run of the tests change the machine meanwhile; wait for one that does."""
    with (Path(gettempdir()) / "criproxy-device-nodes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def device_nodes(numbers: Mapping[str, tuple[int, int]]) -> Iterator[None]:
    """Make nodes with these major and minor numbers, but for those that are there; remove the made ones."""
    with alone():
        made = [path for path in numbers if not Path(path).exists()]
        try:
            for path in made:
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*numbers[path]))
            yield
        finally:
            for path in made:
                Path(path).unlink(missing_ok=True)


@contextmanager
def folders(*paths: Path) -> Iterator[None]:
    """Make folders and those above them, but for those that are there; remove the made ones, which have to be empty."""
    made = list(dict.fromkeys(each for path in paths for each in _missing(path)))
    try:
        for path in made:
            path.mkdir()
        yield
    finally:
        for path in reversed(made):
            path.rmdir()


def _missing(path: Path) -> Iterable[Path]:
    return [each for each in (*reversed(path.parents), path) if not each.exists()]


def numbers_of(path: str) -> tuple[int, int]:
    """Major and minor number of a node on this machine."""
    found = Path(path).stat()
    return os.major(found.st_rdev), os.minor(found.st_rdev)
