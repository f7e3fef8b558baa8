"""Which process uses a state directory: a daemon that hangs or ends, or a release."""

import os
from contextlib import suppress
from pathlib import Path

from criproxy.errors import reason_of
from criproxy.store.store import LOCK_NAME, WHY_IT_STAYS, is_ending, is_release


def still_running(state_dir: Path, *, is_removed: bool = False) -> str:
    """Return a sentence about a daemon that runs with *state_dir* and does not answer; empty if there is none.

    Args:
        state_dir: its state directory.
        is_removed: whether the file of its socket was removed, which is why it does not answer.
    """
    try:
        holder = holding(state_dir)
    except OSError as error:
        remedy = ": this needs root" if isinstance(error, PermissionError) else ""
        unknown = f"it is unknown whether a process uses the state directory {state_dir}"
        return f"{unknown} ({reason_of(error)}){remedy}"
    if not holder:
        return ""
    used = f"process {holder} uses the state directory {state_dir}"
    if is_release(state_dir):
        return f"{used}: it is a 'criproxy release'; ask again when it has ended"
    if is_ending(holder):
        return f"{used}: it {WHY_IT_STAYS}"
    if is_removed:
        return used
    return f"{used}: it hangs, or listens on another control socket"


def holding(state_dir: Path) -> int | None:
    """Return the process that uses the state directory. Trying the lock instead could keep a daemon from starting.

    Raises:
        OSError: that cannot be found out.
    """
    try:
        lock = os.stat(state_dir / LOCK_NAME)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        is_candidate = len(fields) > 5 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(lock.st_ino)
        if is_candidate and _has_open(int(fields[4]), lock):
            return int(fields[4])
    return None


def _has_open(pid: int, file: os.stat_result) -> bool:
    """Whether a process has a file open: another file system may have a locked file with the same inode number.

    The device that /proc/locks names is not compared, since btrfs and overlayfs report another one to stat(2).
    """
    with suppress(FileNotFoundError):  # the process has ended
        for task in Path(f"/proc/{pid}/task").iterdir():  # of one that was killed, only the thread that hangs has it
            with suppress(FileNotFoundError, ProcessLookupError):
                if any(_is_open_as(descriptor, file) for descriptor in (task / "fd").iterdir()):
                    return True
    return False


def _is_open_as(descriptor: Path, file: os.stat_result) -> bool:
    with suppress(FileNotFoundError):  # it has been closed
        return os.path.samestat(descriptor.stat(), file)
    return False
