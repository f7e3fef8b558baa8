"""The host's files that vGPUs need: checked and created when the kubelet allocates a vGPU."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

FOLDER_MODE = 0o777
"""Containers run as any user. Only root can enter the parent directory, which systemd creates."""
MOST_FORMER = 16
"""Limit for former directories of one vGPU: their content may not be removable without capabilities."""
MOST_LEVELS = 10_000
"""Limit for the depth of nested directories that are removed in one call."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class VgpuFiles:
    """The files below a root; see `vgpus.VgpuHost`."""

    host_root: Path = Path("/")

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        return self._below(path).exists()

    def prepare(self, own: str, shared: str) -> None:
        """Create two directories for containers.

        Args:
            own: The directory of one container; always a new one, since the former container may have written to it.
            shared: The directory of all containers.

        Raises:
            OSError: A directory cannot be created.
        """
        _discard(self._below(own))
        for folder in (self._below(own), self._below(shared)):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_mode & FOLDER_MODE != FOLDER_MODE:
                folder.chmod(FOLDER_MODE)

    def _below(self, path: str) -> Path:
        return self.host_root / path.lstrip("/")


HOST = VgpuFiles()


def _discard(folder: Path) -> None:
    """Remove a directory with all that containers have put into it.

    It is renamed first. Therefore, it is out of the way even if it cannot be removed, and a container that still
    has it mounted cannot put anything into the next one.

    Raises:
        OSError: The directory cannot be renamed, or too many former ones remain.
    """
    if folder.exists():
        folder.rename(folder.with_name(f".{folder.name}.{uuid4().hex}"))
    former = list(_former(folder))
    for each in former:
        with suppress(OSError):
            _remove(each)
    if len(list(_former(folder))) > MOST_FORMER:
        text = f"more than {MOST_FORMER} former directories of this vGPU cannot be removed; remove them by hand"
        raise OSError(0, text, str(former[0]))


def _former(folder: Path) -> Iterator[Path]:
    beginning = f".{folder.name}."
    with suppress(FileNotFoundError):
        yield from (each for each in folder.parent.iterdir() if each.name.startswith(beginning))


def _remove(folder: Path) -> None:
    """Remove a directory without following links, and without recursion: containers can nest directories to any depth.

    Raises:
        OSError: Something in it cannot be removed, or it has too much content; then a part of it has been removed.
    """
    top = os.open(folder, _FOLDER)
    try:
        for _ in range(MOST_LEVELS):
            if not (inner := _without_files(top)):
                break
            for name in inner:
                _flatten(top, name)
    finally:
        os.close(top)
    folder.rmdir()


def _without_files(folder: int) -> list[str]:
    """Remove all files of an open directory; return the names of its subdirectories."""
    with os.scandir(folder) as found:
        kinds = [(each.name, each.is_dir(follow_symlinks=False)) for each in found]
    for name, is_folder in kinds:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in kinds if is_folder]


def _flatten(top: int, name: str) -> None:
    """Remove a subdirectory of an open directory; its own subdirectories move up into the open directory."""
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        for each in _without_files(inner):
            os.rename(each, uuid4().hex, src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
