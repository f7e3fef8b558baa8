"""The host's files that vGPUs need: created when the kubelet allocates a vGPU, and former ones removed later."""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from uuid import uuid4

from criproxy.host.patience import Hangs, Patience
from criproxy.process.logger import Log, LogOnce
from criproxy.process.tasks import wait_at_most

MOST_AT_ONCE = 2000
"""Files and directories that are removed without a pause, of each former directory."""
PAUSE_S = 0.05
"""The pause before more of them are removed: a large directory must not use up a CPU, or the disk."""
PIECE_S = 10.0
"""Timeout for that many of all directories."""
RETRY_S = 60.0
"""When what cannot be removed is tried again, if no other directory is to be removed before."""
ASIDE = ".unremovable"
"""Before the names of former directories, of all vGPUs, that cannot be removed."""
MOST_ASIDE = 1024
"""Limit for such directories: beyond it, they keep their names, and count for their vGPU."""
_FORMER = re.compile(r"\..+\.[0-9a-f]{32}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o777
"""Containers run as any user. Only root can enter the parent directory, which systemd creates."""
MOST_FORMER = 16
"""Limit for former directories of one vGPU that are neither removed yet nor put aside: see `MOST_ASIDE`."""


def former_path(folder: Path) -> Path:
    """Return a new path beside *folder*, for its rename."""
    return folder.with_name(f".{folder.name}.{uuid4().hex}")


@dataclass(slots=True, repr=False)
class Sweeper:
    """Removes former directories in a thread, piece by piece: a container can leave more than a call may remove.

    `VgpuFiles` renames them aside when it prepares a new one. Root without capabilities can neither enter nor empty a
    directory that a container's user has closed. It can still rename it where it is (to another parent it could not:
    that writes to the directory itself), so such a former directory gets the prefix `ASIDE`, and its vGPU stays usable.

    Args:
        log: is told once if one cannot be removed.
        changed: called when `problem` has changed.
    """

    log: Log
    changed: Callable[[], None] = lambda: None
    folder: Path | None = None
    """The directory with those of the vGPUs; None: there is none."""
    _patience: Patience = field(default_factory=Patience)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _problems: LogOnce = field(init=False)
    problem: str = field(default="", init=False)
    """Why a former directory cannot be removed; empty: all could be removed at the last attempt."""

    def __post_init__(self) -> None:
        self._problems = LogOnce(self.log)

    def use(self, folder: Path) -> None:
        """Remove former directories in *folder* from now on."""
        self.folder = folder
        self.wake()

    def wake(self) -> None:
        """Look for former directories now; may be called from any thread."""
        if self._loop is not None:  # else `run` has not begun, and looks when it does
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def run(self) -> None:
        """Remove all that there is, and again after each `wake`."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._wanted.clear()
            before = self.problem
            remain = await self._remove_all(self.folder) if self.folder else False
            if self.problem != before:
                self.changed()
            await wait_at_most(RETRY_S if remain else None, self._wanted.wait())

    async def _remove_all(self, folder: Path) -> bool:
        """Remove what can be removed; return whether something remains."""
        while True:
            try:
                work = partial(_remove_piece, folder)
                more, problem = await self._patience.wait(f"former directories in {folder}", work, PIECE_S)
            except Hangs as error:
                more, problem = False, str(error)
            if not more:
                break
            await asyncio.sleep(PAUSE_S)
        self.problem = problem
        if problem:
            self._problems.warning("former directories of vGPUs are not removed", problem)
        else:
            self._problems.clear()
        return bool(problem)


def _remove_piece(folder: Path) -> tuple[bool, str]:
    """Remove a piece of each former directory in *folder*: a large one does not hold up the others.

    Return whether there is more that can be removed, and why one of them cannot be; empty if all can.
    """
    more, problem = False, ""
    for each in list(_former(folder)):
        try:
            more |= not remove(each, MOST_AT_ONCE)
        except OSError as error:
            place = _put_aside(folder, each)
            problem = problem or f"{place}: {error.strerror or error}"
    return more, problem


def _put_aside(folder: Path, former: Path) -> Path:
    """Rename a directory that cannot be removed, unless there are too many of them; return where it is then."""
    if former.name.startswith(ASIDE):
        return former
    if sum(1 for each in _former(folder) if each.name.startswith(ASIDE)) >= MOST_ASIDE:
        return former
    try:
        return former.rename(folder / f"{ASIDE}{former.name}")
    except OSError:  # it keeps its name, and the caller has a reason already
        return former


def _former(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError, NotADirectoryError):
        yield from (each for each in folder.iterdir() if _FORMER.fullmatch(each.name))


def remove(folder: Path, most: int) -> bool:
    """Remove at most *most* files and directories below *folder*; return whether nothing is left of it.

    No link is followed, and nothing is recursive: containers can nest directories to any depth.

    Raises:
        OSError: Something in it cannot be removed; then a part of it has been removed.
    """
    done, top = 0, os.open(folder, _FOLDER)
    try:
        while found := _entries(top, most):
            for name, is_folder in found:
                if done >= most:
                    return False
                if is_folder:
                    done += _flatten(top, name, most - done)
                else:
                    os.unlink(name, dir_fd=top)
                    done += 1
    finally:
        os.close(top)
    folder.rmdir()
    return True


def _entries(folder: int, most: int) -> list[tuple[str, bool]]:
    """Return the first entries of an open directory, and whether they are directories themselves."""
    with os.scandir(folder) as found:
        return [(each.name, each.is_dir(follow_symlinks=False)) for each in islice(found, most)]


def _flatten(top: int, name: str, most: int) -> int:
    """Remove *name* in an open directory, whose own subdirectories move up; return how many entries that were.

    If it has *most* entries or more, some of them remain.
    """
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        found = _entries(inner, most)
        for each, is_folder in found:
            if is_folder:
                os.rename(each, uuid4().hex, src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(each, dir_fd=inner)
    finally:
        os.close(inner)
    if len(found) < most:
        os.rmdir(name, dir_fd=top)
    return len(found) + 1


@dataclass(frozen=True, slots=True)
class VgpuFiles:
    """The files below a root; see `vgpus.VgpuHost`."""

    host_root: Path = Path("/")
    discarded: Callable[[], None] = field(default=lambda: None, compare=False)
    """Called in the thread of `prepare` when a former directory is to be removed."""

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        return self.below(path).exists()

    def prepare(self, own: str, shared: str) -> None:
        """Create two directories for containers.

        Args:
            own: The directory of one container; always a new one, since the former container may have written to it.
            shared: The directory of all containers.

        Raises:
            OSError: A directory cannot be created.
        """
        if _discard(self.below(own)):
            self.discarded()
        for folder in (self.below(own), self.below(shared)):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_mode & FOLDER_MODE != FOLDER_MODE:
                folder.chmod(FOLDER_MODE)

    def below(self, path: str) -> Path:
        """Return where a path of the host is for this process."""
        return self.host_root / path.lstrip("/")


HOST = VgpuFiles()


def _discard(folder: Path) -> bool:
    """Rename a directory with all that containers have put into it; return whether there was one.

    It is out of the way even if it cannot be removed, and a container that still has it mounted cannot put anything
    into the next one. Removing it here could take minutes: `Sweeper` does that.

    Raises:
        OSError: The directory cannot be renamed, or too many former ones remain.
    """
    was_there = folder.exists()
    if was_there:
        folder.rename(former_path(folder))
    former = [each for each in _former(folder.parent) if each.name.startswith(f".{folder.name}.")]
    if len(former) > MOST_FORMER:
        text = f"more than {MOST_FORMER} former directories of this vGPU remain; if they still do, remove them by hand"
        raise OSError(0, text, str(former[0]))
    return was_there
