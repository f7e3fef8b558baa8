"""Unix sockets that this process owns: their addresses, directory, mode and end of life.

A socket's lock file (``PATH.lock``) is held as long as the socket is: two daemons that start at the same
moment cannot both take a stale socket for theirs. The lock file stays behind, since removing one is a race.
"""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from criproxy.errors import CriproxyError, UsageError

BACKLOG = 128
PATH_MAX_BYTES = 107
"""What sun_path holds beside its final zero byte."""


def unix_path(address: str, what: str) -> str:
    """The path in *address*: ``unix:///run/x.sock``, ``unix:/run/x.sock`` or ``/run/x.sock``.

    Args:
        address: as a user wrote it.
        what: the option or key that holds it, for the error.

    Raises:
        UsageError: if it names no absolute path that fits into a socket address.
    """
    path = address.removeprefix("unix:").removeprefix("//") if address.startswith("unix:") else address
    if not path.startswith("/"):
        raise UsageError(f"{what}: {address!r} is not a Unix socket; use unix:///PATH, such as unix:///run/x.sock")
    if path.endswith("/") or "\0" in path:
        raise UsageError(f"{what}: {address!r} does not name a file; use unix:///PATH, such as unix:///run/x.sock")
    if len(os.fsencode(path)) > PATH_MAX_BYTES:
        raise UsageError(f"{what}: the path {path!r} is longer than the {PATH_MAX_BYTES} bytes of a socket address")
    return path


@dataclass(slots=True)
class Listener:
    """A listening socket, and what `close` must know to leave nothing behind."""

    sock: socket.socket
    path: str
    """Where it listens; for the log also where systemd owns it."""
    identity: tuple[int, int] | None = None
    """Device and inode of our socket file; None if the file belongs to systemd."""
    lock_fd: int = -1
    again: "Callable[[], Listener] | None" = None
    """Listens anew on the same path; None for one that systemd has passed, which is done as its unit does it."""
    _file: tuple[int, int] | None = field(init=False)
    """Device and inode of the file, whoever made it."""

    def __post_init__(self) -> None:
        self._file = self.identity or _identity(self.path)

    def close(self) -> None:
        """Close the socket; remove its file if that is still the one we made."""
        self.sock.close()
        if self.identity is not None and _identity(self.path) == self.identity:
            Path(self.path).unlink()
        self._unlock()

    @property
    def is_lost(self) -> bool:
        """Whether nobody can connect any more, because the file is gone or is another one."""
        try:
            return self._file is None or _identity(self.path) != self._file
        except OSError:  # as if it were gone
            return True

    def renew(self) -> None:
        """Listen on the same path with a new socket in `sock`; the old one stays open for its server.

        Raises:
            CriproxyError: as `listen`.
        """
        self._unlock()
        new = self.again() if self.again else listen(self.path, 0o660)
        self.sock, self.identity, self.lock_fd, self._file = new.sock, new.identity, new.lock_fd, new.identity

    def _unlock(self) -> None:
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1


def listen(path: str, mode: int) -> Listener:
    """Listen on *path* with file mode *mode*; make its directory (0755), replace a stale socket.

    Raises:
        CriproxyError: if another process listens there, if something that is not a socket is in the way,
            or if the directory cannot be made or could be changed by others.
    """
    try:
        _own_directory(Path(path).parent)
        _is_socket(path)  # before a lock file is made beside another file
        lock_fd = _lock(path)
    except OSError as error:
        raise CriproxyError(f"cannot listen on {path}: {error.strerror}: {error.filename}") from error
    try:
        _remove_stale(path)
        sock = _bind(path, mode)
    except BaseException:
        os.close(lock_fd)
        raise
    return Listener(sock, path, _identity(path), lock_fd, partial(listen, path, mode))


def listen_within(path: str) -> Listener:
    """Listen on *path* for every user who can reach its directory: on this machine, only the owner of the one above.

    A container of any user to whom the directory is mounted can connect.

    Raises:
        CriproxyError: as `listen`.
    """
    folder = Path(path).parent
    try:
        _own_directory(folder)
        folder.parent.chmod(0o700)
        folder.chmod(0o755)
    except OSError as error:
        raise CriproxyError(f"cannot listen on {path}: {error.strerror}: {error.filename}") from error
    return replace(listen(path, 0o666), again=partial(listen_within, path))


def turn_away(sock: socket.socket) -> None:
    """Close a connection to *sock* at once: nobody serves it, but systemd may hold it all the same."""
    with suppress(OSError):  # the client has gone
        sock.accept()[0].close()


def _own_directory(directory: Path) -> None:
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = directory.stat()
    shared = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    if shared or found.st_uid not in (0, os.geteuid()):
        raise CriproxyError(
            f"cannot listen in {directory}: other users can replace files in it; "
            f"the directory must belong to uid {os.geteuid()}, and not be writable by all users"
        )


def _lock(path: str) -> int:
    fd = os.open(path + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise CriproxyError(f"{path} is in use by another criproxy process, which holds {path}.lock") from None
    return fd


def _remove_stale(path: str) -> None:
    """Remove the socket of a dead process; with the lock held nobody else does."""
    if not _is_socket(path):
        return
    if _answers(path):
        raise CriproxyError(f"{path} is in use by another process; stop it or choose another path")
    Path(path).unlink()


def _is_socket(path: str) -> bool:
    """Whether a socket is at *path*, or nothing; raises CriproxyError if something else is."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise CriproxyError(f"cannot listen on {path}: it exists and is not a socket")
    return True


def _answers(path: str) -> bool:
    """Whether somebody listens: everything but a refusal says so, a full backlog and a missing right included."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) != errno.ECONNREFUSED


def _bind(path: str, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(sock.fileno(), mode)  # before bind: at no moment may more than *mode* says connect
        sock.bind(path)
        Path(path).chmod(mode)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise CriproxyError(f"cannot listen on {path}: {error.strerror}") from error
    return sock


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
