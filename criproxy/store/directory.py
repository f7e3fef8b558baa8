"""Which directories may hold the state: those in which only criproxy and root can have put what is there."""

import os
import stat
from pathlib import Path
from shlex import quote

STRANGERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_refused(directory: Path) -> str:
    """Why the state is neither read from *directory* nor written to it, as the end of a sentence; empty if it may be.

    The mode of an empty directory does not matter: nobody has put anything there, and whoever takes it closes it to
    others. The top of a fresh tmpfs, for one, has the mode of /tmp.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    status = directory.stat()
    mode, other = stat.S_IMODE(status.st_mode), "is criproxy's, else name another one with --state-dir"
    if status.st_uid not in {0, os.geteuid()}:
        owner = "root" if os.geteuid() == 0 else f"root or user {os.geteuid()}"
        return f"belongs to user {status.st_uid}, not to {owner}: chown -R root {quote(str(directory))} if it {other}"
    if not mode & STRANGERS_WRITE or not any(directory.iterdir()):
        return ""
    if mode & stat.S_ISVTX:
        return "is also used by other programs: name one of criproxy's own with --state-dir"
    who = "every user" if mode & stat.S_IWOTH else "its group"
    return f"can be written by {who} (mode {mode:04o}): chmod 0700 {quote(str(directory))} if all in it {other}"
