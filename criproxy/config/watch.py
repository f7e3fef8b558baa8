"""Notices that the policy file may have changed: written, replaced, or another one behind a link, as in a ConfigMap.

What counts is what a name leads to: each link on the way to the file is watched in the directory where it lies. Where
the kernel has no more inotify instances for us, they are looked at again and again. A file system that reports nothing
(such as NFS for writes of other machines) is no error: changes go unnoticed there.
"""

import asyncio
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.config.files import GROUP_FILE

if TYPE_CHECKING:
    from asyncinotify import Event, Mask

QUIET_S = 0.2
"""Without news for so long, a writer is taken to be done."""
LONGEST_S = 2.0
"""After so long, a writer that is never done does not matter."""
POLL_S = 1.0
"""How often it is looked at what the kernel does not watch for us."""
_MAX_LINKS = 40
"""As many as the kernel follows."""

Places = Mapping[Path, frozenset[str]]
"""Directories, and the names in them that matter; none: all."""
Seen = Mapping[Path, tuple[int, ...] | None]
"""By name, which file it is and when it changed last; None: there is none."""


class PolicyFileWatch:
    """Watches the places of one policy file or directory of them.

    Args:
        path: as given to ``--config``.
        changed: called on the event loop after a change; read the files to see what it was.
    """

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._path = Path(os.path.abspath(path))  # noqa: PTH100 (resolve() would follow the links)
        self._changed = changed

    async def run(self) -> None:
        """Watch for ever; the first call is for whatever happened before."""
        seen: Seen | None = None
        while True:
            seen = await self._settled(await self._other_than(seen))
            self._changed()

    async def _other_than(self, before: Seen | None) -> Seen:
        """Return what is seen as soon as it is not what was seen *before*."""
        library = await asyncio.to_thread(import_module, "asyncinotify")  # 12 ms, in which calls shall not wait
        with suppress(OSError), library.Inotify() as inotify:  # else no instance, or no watch, is left for us
            places = await asyncio.to_thread(places_of, self._path)
            for place in places:
                # One that cannot be watched is found again when a link changes.
                with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    inotify.add_watch(place, _mask())
            # First watched, then seen: so nothing that follows is missed.
            while (seen := await asyncio.to_thread(_seen, self._path)) == before:
                while not _matters(await inotify.get(), places):
                    pass
            return seen
        while (seen := await asyncio.to_thread(_seen, self._path)) == before:  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(POLL_S)
        return seen

    async def _settled(self, seen: Seen) -> Seen:
        """What is seen when a writer is done, or does not end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_S):
                before = None
                while seen != before:
                    before = seen
                    await asyncio.sleep(QUIET_S)
                    seen = await asyncio.to_thread(_seen, self._path)
        return seen


def _matters(event: "Event", places: Places) -> bool:
    names = places.get(event.watch.path) if event.watch else None
    # Without a name it is about the directory itself, without a watch about all: news were lost.
    return event.name is None or not names or str(event.name) in names


def places_of(path: Path) -> Places:
    """Where something may happen that changes what *path* (a file, or a directory of them) says; reads disks."""
    places: defaultdict[Path, set[str]] = defaultdict(set)
    _follow(path, places)
    if path.is_dir():
        for name in _entries(path):
            if os.path.islink(path / name):  # noqa: PTH114 (which of them count, only who reads them knows)
                _follow(path / name, places)
        _follow(GROUP_FILE, places)
    found = {place: frozenset(names) for place, names in places.items() if place.is_dir()}
    return {**found, path.resolve(): frozenset()} if path.is_dir() else found


def _follow(path: Path, places: defaultdict[Path, set[str]]) -> None:
    """Add what leads from the name *path* to a file: each link on the way and the last name, as far as they exist."""
    links, parts, here = 0, list(reversed(path.parts[1:])), Path("/")
    while parts:
        name = parts.pop()
        if name == "..":
            here = here.parent
            continue
        step = here / name
        if step.is_symlink() and links < _MAX_LINKS:
            links += 1
            places[here].add(name)
            target = step.readlink()
            here = Path("/") if target.is_absolute() else here
            parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        elif not parts or not step.is_dir():
            places[here].add(name)
            return
        else:
            here = step


def _seen(path: Path) -> Seen:
    """What is the same as long as nothing has changed that matters for *path*; reads disks."""
    places = places_of(path)
    names = [place / name for place, names in places.items() for name in names or _entries(place)]
    return {each: _state(each) for each in (*places, *names)}


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (names are enough)
    except OSError:
        return []


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    if stat.S_ISDIR(found.st_mode):  # what is in it is seen by its names; others may not be able to write there
        return found.st_dev, found.st_ino, found.st_mode, found.st_uid
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _mask() -> "Mask":
    from asyncinotify import Mask

    written = Mask.CREATE | Mask.CLOSE_WRITE | Mask.DELETE | Mask.MOVED_FROM | Mask.MOVED_TO
    # Rights count too: a file that others could write is used as soon as they cannot.
    return written | Mask.ATTRIB | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.ONLYDIR
