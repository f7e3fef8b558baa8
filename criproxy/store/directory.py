"""Which directories may hold the state: those in which only criproxy and root can have put what is there."""

import errno
import os
import stat
from pathlib import Path
from shlex import quote

LINKS_MAX = 40
"""How many links the kernel follows."""
STRANGERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def why_refused(directory: Path) -> str:
    """Why the state is neither read from *directory* nor written to it, as the end of a sentence; empty if it may be.

    The mode of an empty directory does not matter: nobody has put anything there, and whoever takes it closes it to
    others. The top of a fresh tmpfs, for one, has the mode of /tmp.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    if found := _strange_link(directory):
        link, uid = found
        return f"is reached through {link}, a symbolic link of user {uid}: name the directory itself with --state-dir"
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


def _strange_link(path: Path) -> tuple[Path, int] | None:
    """Return the first symbolic link on the way to *path* that belongs to another user, and that user."""
    place, rest, left = Path("/"), [*Path.cwd().joinpath(path).parts[1:]], LINKS_MAX
    while rest:
        part = rest.pop(0)
        status = os.lstat(place / part)
        if not stat.S_ISLNK(status.st_mode):
            place = place.parent if part == ".." else place / part
            continue
        if status.st_uid not in {0, os.geteuid()}:
            return place / part, status.st_uid
        if (left := left - 1) < 0:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = (place / part).readlink()
        place = Path("/") if target.is_absolute() else place
        rest = [*(each for each in target.parts if each != "/"), *rest]
    return None
