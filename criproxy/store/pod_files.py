"""The folder ``pods`` of the state directory: one file for each pod that has cards, named by the pod's UID.

They are copies of what the daemon knows, for programs beside it: the daemon never reads them. So nothing is synced to
the disk, and after a crash they are written anew.
"""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from errno import EPERM
from pathlib import Path

from criproxy.store.directory import why_refused

NAME = "pods"
_SUFFIX, _NEW = ".json", ".new"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


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
    if reason := why_refused(state_dir):
        raise OSError(EPERM, f"its directory {reason}")
    if not keep and not os.path.lexists(state_dir / NAME):
        return
    with _folder(state_dir) as folder:
        kept = {f"{uid}{_SUFFIX}" for uid in keep}
        for name in os.listdir(folder):  # noqa: PTH208 (an open folder has no path)
            if name.endswith((_SUFFIX, _NEW)) and name not in kept and is_newest():
                os.unlink(name, dir_fd=folder)
        for uid, text in files.items():
            if is_newest():
                _write(folder, f"{uid}{_SUFFIX}", text)


@contextmanager
def _folder(state_dir: Path) -> Iterator[int]:
    """The folder, open: whatever becomes of its name, files go nowhere else."""
    place = state_dir / NAME
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


def _write(folder: int, name: str, text: str) -> None:
    new = f"{name}{_NEW}"
    try:
        with os.fdopen(os.open(new, _FLAGS, 0o600, dir_fd=folder), "w", encoding="utf-8") as stream:
            stream.write(text)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=folder)
        raise
