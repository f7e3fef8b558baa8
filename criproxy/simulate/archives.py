"""Copies of a host's /sys in archives: unpacked without leaving the folder, and without filling the disk.

The filters of `tarfile` that see to the first came with Python 3.11.4, and Debian 12 has 3.11.2.
"""

import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from criproxy.errors import UsageError

MAX_BYTES = 1 << 30
"""Unpacked: a copy of /sys is small, and an archive may say that it is huge."""
_PIECE_BYTES = 1 << 20


def unpack(archive: Path, folder: Path, wanted: Callable[[str], object]) -> None:
    """Write files, folders and links of *archive* (tar, also compressed) below *folder*.

    What leads out of *folder*, a link or a name, is left out; so is all that is no file, folder or link.

    Args:
        archive: the file.
        folder: exists; what it has is replaced.
        wanted: asked with the name of each member; what it does not want is left out.

    Raises:
        UsageError: it cannot be read or written, or has more than `MAX_BYTES`.
    """
    try:
        with tarfile.open(archive) as opened:
            _Unpacking(opened, folder.resolve()).run(wanted)
    except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(
            f"{_why(error)}: it must be a copy of /sys and /proc, as a directory or a tar archive"
        ) from error


def _why(error: Exception) -> str:
    if isinstance(error, tarfile.ReadError) and not error.__context__ and "unexpected end" not in str(error):
        return "it is neither a directory nor an archive that tar can read"
    if isinstance(error, OSError) and error.strerror:
        return f"it cannot be read ({error.strerror})"
    if isinstance(error, EOFError | tarfile.ReadError):
        return "the archive ends too early: copy it once more"
    return "the archive is damaged: copy it once more"


class _Unpacking:
    """One archive on its way to a folder."""

    def __init__(self, archive: tarfile.TarFile, root: Path) -> None:
        self._archive = archive
        self._root = root
        self._left_bytes = MAX_BYTES
        self._links: list[Path] = []

    def run(self, wanted: Callable[[str], object]) -> None:
        """Write all that is wanted."""
        for member in self._archive:
            place = self._root / member.name.lstrip("/")
            if wanted(member.name) and self._is_inside(place.parent):
                self._write(member, place)
        for link in self._links:  # only now: what a link leads to may have become a link
            if not self._is_inside(link):
                link.unlink(missing_ok=True)

    def _is_inside(self, place: Path) -> bool:
        """Whether *place*, where its links really lead, is in the folder."""
        return Path(os.path.realpath(place)).is_relative_to(self._root)

    def _write(self, member: tarfile.TarInfo, place: Path) -> None:
        if member.isdir():
            if self._is_inside(place):
                place.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            self._make_room(place)
            place.symlink_to(member.linkname)
            self._links.append(place)
        elif (member.isreg() or member.islnk()) and (content := self._archive.extractfile(member)):
            self._take(member.size)
            self._make_room(place)
            with content, place.open("wb") as file:
                while piece := content.read(_PIECE_BYTES):
                    self._take(len(piece) if member.islnk() else 0)  # the archive says no size of a hard link
                    file.write(piece)

    def _make_room(self, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)

    def _take(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise UsageError(f"more than {MAX_BYTES >> 20} MiB unpacked")
