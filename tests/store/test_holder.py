"""What is found out about a daemon that does not answer."""

import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from criproxy.store.holder import holding
from criproxy.store.store import LOCK_NAME
from tests.disks import small_disk


def test_a_lock_on_another_disk_is_no_lock_of_this_state(tmp_path: Path) -> None:
    """/proc/locks has inode numbers, which are the same on two new disks; the process has only its own file open."""
    with ExitStack() as disks:
        locked, free = (disks.enter_context(small_disk(tmp_path / name)) for name in ("locked", "free"))
        files = [disks.enter_context((disk / LOCK_NAME).open("w")) for disk in (locked, free)]
        assert os.fstat(files[0].fileno()).st_ino == os.fstat(files[1].fileno()).st_ino
        fcntl.flock(files[0], fcntl.LOCK_EX)
        files[1].close()

        assert holding(locked) == os.getpid()
        assert holding(free) is None
