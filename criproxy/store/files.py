"""Files that only root and criproxy read: written whole or not at all, and read back.

`why_refused` says which directories may hold them: those in which only criproxy and root can have put what is there.
The folder ``pods`` has a file for each pod that has cards, named by the pod's UID. These are copies of what the daemon
knows, for programs beside it: the daemon never reads them, so nothing is synced, and after a crash they are written
anew.
"""

import json
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import ECANCELED, ELOOP, EPERM
from pathlib import Path
from shlex import quote
from typing import Any

MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
LINKS_MAX = 40
"""How many links the kernel follows."""
STRANGERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
PODS = "pods"
_SUFFIX, _NEW = ".json", ".new"


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
            raise OSError(ELOOP, os.strerror(ELOOP), str(path))
        target = (place / part).readlink()
        place = Path("/") if target.is_absolute() else place
        rest = [*(each for each in target.parts if each != "/"), *rest]
    return None


def write_whole(
    directory: Path, name: str, text: str, is_wanted: Callable[[], bool] = lambda: True, *, synced: bool = True
) -> None:
    """Write the file *name* with *text* in *directory*, in place of a former one. Blocks.

    Args:
        directory: criproxy's own.
        name: of the file.
        text: its content.
        is_wanted: asked when the disk has the text, before it takes effect: the disk may have taken long.
        synced: whether it has to survive a power failure.

    Raises:
        OSError: the disk fails, the directory is not criproxy's own, or it is not wanted any more; what was there
            before is still there.
    """
    check_own(directory)
    new = directory / f"{name}.new"
    try:
        with os.fdopen(os.open(new, _FLAGS | os.O_TRUNC, MODE), "w", encoding="utf-8") as stream:
            stream.write(text)
            if synced:
                stream.flush()
                os.fsync(stream.fileno())
        if not is_wanted():
            raise OSError(ECANCELED, os.strerror(ECANCELED))
        new.replace(directory / name)
        if synced:
            sync_directory(directory)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def read_json(directory: Path, name: str, most_bytes: int) -> Any:  # noqa: ANN401 (any JSON value)
    """Return the value in the file *name* of *directory*; None if it is missing, unreadable or no JSON. Blocks."""
    try:
        if why_refused(directory):
            return None
        with (directory / name).open("rb") as stream:
            return json.loads(stream.read(most_bytes))
    except (OSError, ValueError, RecursionError):
        return None


def remove(directory: Path, name: str) -> None:
    """Remove the file *name* of *directory*, if it is there, for good: also after a crash. Blocks; raises OSError."""
    if os.path.lexists(directory / name):
        (directory / name).unlink()
        sync_directory(directory)


def check_own(directory: Path) -> None:
    """Raise OSError unless *directory* is one that only criproxy and root can write."""
    if reason := why_refused(directory):
        raise OSError(EPERM, f"its directory {reason}")


def sync_directory(directory: Path) -> None:
    """Make a change of names in *directory* survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_pods(
    state_dir: Path, files: Mapping[str, str], keep: Collection[str], is_newest: Callable[[], bool] = lambda: True
) -> None:
    """Write *files*, each whole or not at all, and remove those of other pods. Blocks.

    Args:
        state_dir: the state directory.
        files: texts by UID; each UID can be the name of a file.
        keep: the UIDs of the pods that have a file, those in *files* included.
        is_newest: whether no other write was begun meanwhile, because this one hung; else it ends.

    Raises:
        OSError: the disk fails, or a directory is not criproxy's own; some of the files may be written.
    """
    check_own(state_dir)
    if not keep and not os.path.lexists(state_dir / PODS):
        return
    with _folder(state_dir) as folder:
        kept = {f"{uid}{_SUFFIX}" for uid in keep}
        for name in os.listdir(folder):  # noqa: PTH208 (an open folder has no path)
            if name.endswith((_SUFFIX, _NEW)) and name not in kept and is_newest():
                os.unlink(name, dir_fd=folder)
        for uid, text in files.items():
            if is_newest():
                _write_pod(folder, f"{uid}{_SUFFIX}", text)


@contextmanager
def _folder(state_dir: Path) -> Iterator[int]:
    """The folder, open: whatever becomes of its name, files go nowhere else."""
    place = state_dir / PODS
    with suppress(FileExistsError):
        place.mkdir(0o700)
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid not in {0, os.geteuid()}:
            raise OSError(EPERM, f"{place} belongs to user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _write_pod(folder: int, name: str, text: str) -> None:
    new = f"{name}{_NEW}"
    try:
        with os.fdopen(os.open(new, _FLAGS | os.O_EXCL, MODE, dir_fd=folder), "w", encoding="utf-8") as stream:
            stream.write(text)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
