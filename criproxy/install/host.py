"""The node's files and programs, seen from this process: on the node itself, or in a container that has its root."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from criproxy.errors import CriproxyError
from criproxy.store.files import sync_directory

TIMEOUT_S = 300.0
"""A k3s server that starts takes minutes."""
_LINKS_MAX = 40
_SUFFIX = ".criproxy-install"


class CommandFailed(CriproxyError):
    """A program on the node has failed."""


class Attributes(NamedTuple):
    """What is restored of a file beside its content."""

    mode: int
    uid: int
    gid: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Host:
    """A node.

    Args:
        root: its root directory; if that is not /, programs run in the node's mount namespace (that of process 1).
        overlay: path → the text that `read` returns for it, whatever the node has; None: that there is no such file.
    """

    root: Path = Path("/")
    overlay: Mapping[str, str | None] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return where the node's absolute path *name* is for this process; links lead to paths below the root."""
        return self.root / _resolved(self.root, [part for part in name.split("/") if part])

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is no such file.

        Raises:
            OSError: it cannot be read, or is a pipe, a socket or a device, on which reading may never end.
        """
        if name in self.overlay:
            return self.overlay[name]
        try:
            path = self.path(name)
            if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
                raise OSError(errno.EINVAL, "it is not a regular file", str(path))
            return path.read_bytes().decode("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def attributes(self, name: str) -> Attributes:
        """Return the attributes of a file that exists."""
        status = self.path(name).stat()
        return Attributes(status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_mtime_ns)

    def has_other_names(self, name: str) -> bool:
        """Whether a file has several names (hard links), of which a `write` would change one."""
        return self.path(name).exists() and self.path(name).stat().st_nlink > 1

    def is_socket(self, name: str) -> bool:
        """Whether there is a socket at *name*."""
        return self.path(name).is_socket()

    def exists(self, name: str) -> bool:
        """Whether there is anything at *name*."""
        return os.path.lexists(self.path(name))

    def entries(self, folder: str) -> list[str]:
        """Return the paths of the entries of a directory, sorted; none if there is no such directory."""
        try:
            return [f"{folder}/{name}" for name in sorted(path.name for path in self.path(folder).iterdir())]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def missing_folders(self, name: str) -> list[str]:
        """Return the directories above *name* that do not exist, the outermost first."""
        parents = [str(parent) for parent in Path(name).parents]
        return [parent for parent in reversed(parents) if not self.exists(parent)]

    def write(self, name: str, text: str, attributes: Attributes | None = None, *, mode: int = 0o644) -> None:
        """Write a file so that it has the former or the new content whenever this process is killed.

        Args:
            name: its path on the node.
            text: the new content.
            attributes: for the file; None: it keeps mode and owner.
            mode: of a file that does not exist yet.
        """
        place = self.path(name)
        _make_parents(place)
        temporary = _temporary(place)
        kept = self.attributes(name) if place.exists() else Attributes(mode, os.geteuid(), os.getegid(), 0)
        wanted = attributes or kept
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fchown(descriptor, wanted.uid, wanted.gid)
            os.fchmod(descriptor, wanted.mode)
            os.fsync(descriptor)
        if attributes:
            os.utime(temporary, ns=(attributes.mtime_ns, attributes.mtime_ns))
        temporary.replace(place)
        sync_directory(place.parent)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        place = self.path(name)
        _unlink(place)
        if place.parent.exists():
            sync_directory(place.parent)

    def forget_temporary(self, name: str) -> None:
        """Remove what a `write` that was killed has left."""
        _unlink(_temporary(self.path(name)))

    def remove_folders(self, names: Sequence[str]) -> None:
        """Remove those of the directories that are empty, the last one first."""
        for name in reversed(names):
            with suppress(OSError):  # others have put something into it, or it is gone
                self.path(name).rmdir()

    def remove_tree(self, name: str) -> None:
        """Remove a directory with all that is in it, if it is there."""
        if self.exists(name):
            shutil.rmtree(self.path(name))

    def copy_tree(self, source: str, name: str) -> None:
        """Put a copy of the directory *source* of this process to *name*; what is there gets the name `former`."""
        place, new = self.path(name), self.path(name + _SUFFIX)
        self.remove_tree(name + _SUFFIX)
        _make_parents(new)
        shutil.copytree(source, new, symlinks=True)
        if place.exists():
            place.rename(self.path(former(name)))
        new.rename(place)

    def restore_tree(self, name: str) -> None:
        """Put what `copy_tree` has replaced back, if anything."""
        self.remove_tree(name + _SUFFIX)
        if self.exists(former(name)):
            self.remove_tree(name)
            self.path(former(name)).rename(self.path(name))

    def run(self, command: Sequence[str], timeout_s: float = TIMEOUT_S) -> tuple[int, str, str]:
        """Run a program on the node; returns its exit status, standard output and standard error.

        Raises:
            CommandFailed: there is no such program, or it did not end within *timeout_s*.
        """
        inside = () if self.root == Path("/") else ("nsenter", "--target", "1", "--mount", "--")
        try:
            done = subprocess.run(
                [*inside, *command], capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
            )
        except FileNotFoundError as error:
            raise CommandFailed(f"there is no program {error.filename}") from error
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(f"'{' '.join(command)}' did not end within {timeout_s:g} s") from error
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def must(self, command: Sequence[str]) -> str:
        """Run a program on the node that has to end with status 0; returns its standard output.

        Raises:
            CommandFailed: it does not.
        """
        status, stdout, stderr = self.run(command)
        if status:
            message = " ".join((stderr.strip() or stdout.strip()).splitlines()[-3:]) or "no message"
            raise CommandFailed(f"'{' '.join(command)}' exited with status {status}: {message}")
        return stdout

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let no second installation run at the same time; the lock leaves no file.

        Raises:
            CriproxyError: one runs.
        """
        descriptor = os.open(self.path("/var/lib"), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise CriproxyError("another 'criproxy install' or 'criproxy uninstall' runs on this node") from error
        finally:
            os.close(descriptor)


def former(name: str) -> str:
    """Return the name of what `copy_tree` has replaced."""
    return f"{name}.before-criproxy-install"


def _make_parents(place: Path) -> None:
    """Make the directories above *place* that do not exist, for all to read, whatever the umask is."""
    for parent in reversed([each for each in place.parents if not each.exists()]):
        parent.mkdir()
        parent.chmod(0o755)


def _unlink(place: Path) -> None:
    """Remove a file, if it is there; if it is not, a read-only file system is no error."""
    if os.path.lexists(place):
        place.unlink()


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}{_SUFFIX}")


def _resolved(root: Path, parts: list[str]) -> Path:
    """Return the path of *parts* relative to *root*, with links replaced as a process with that root would do it."""
    resolved, rest, links = list[str](), [*parts], 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            resolved = resolved[:-1]
        elif part != ".":
            place = root.joinpath(*resolved, part)
            if place.is_symlink() and (links := links + 1) <= _LINKS_MAX:
                target = str(place.readlink())
                resolved = [] if target.startswith("/") else resolved
                rest = [*(each for each in target.split("/") if each), *rest]
            else:
                resolved.append(part)
    return Path(*resolved)
