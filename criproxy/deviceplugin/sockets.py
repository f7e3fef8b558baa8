"""Sockets in the kubelet's folders: their names, whether they live, and what is wrong with a folder.

gRPC removes whatever socket lies at a path before it listens there, and again when it stops; both could be that of
another process. So it listens under a name of its own, and the socket gets its real name by a link, which fails where
there is another one. Names that begin with a dot are ignored by the kubelet.
"""

import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

MAX_PATH_BYTES = 107
"""Of a socket, after which the kernel wants a zero."""
PREFIX = "criproxy-"
_SUFFIX = ".sock"
_DIGEST_CHARS = 12
_CONNECT_S = 1.0
_REASONS = {
    errno.ENOENT: "is missing; the kubelet creates it at startup (--kubelet-dir selects another directory)",
    errno.ENOTDIR: "is not a directory",
    errno.EROFS: "is read-only for this process; under systemd, it must exist, and ReadWritePaths= must list it",
    errno.EACCES: "is not writable by this process",
    errno.EPERM: "is not writable by this process",
    errno.ENOSPC: "is on a full disk",
    errno.EDQUOT: "is on a disk whose quota is used up",
    errno.ENAMETOOLONG: "has a path that is too long for a socket",
}


class SocketTrouble(Exception):
    """No socket can be made; the text says where and why."""


class Taken(SocketTrouble):
    """Another process serves it."""


class Vanished(SocketTrouble):
    """It was removed while it was made, as by a kubelet that starts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which socket lies at a path: one that is made anew is another one."""

    inode: int
    made_ns: int


def socket_name(resource: str, folder: Path) -> str:
    """The name of a resource's socket in *folder*.

    Two resources never have the same one: what cannot stand in a name, or is too long, is replaced by a digest.

    Raises:
        SocketTrouble: no socket in the folder can have a path as short as it has to be.
    """
    room = MAX_PATH_BYTES - len(os.fsencode(folder)) - 1 - len(PREFIX) - len(_SUFFIX)
    plain = resource.replace("/", "_", 1)
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", plain)
    if safe != plain or len(safe) > room:
        kept = room - _DIGEST_CHARS - 1
        if kept < 0:
            raise SocketTrouble(f"{folder}: {_REASONS[errno.ENAMETOOLONG]}")
        safe = f"{safe[:kept]}-{sha256(resource.encode()).hexdigest()[:_DIGEST_CHARS]}"
    return f"{PREFIX}{safe}{_SUFFIX}"


@contextmanager
def for_owner_only() -> Iterator[None]:
    """Let sockets that are made meanwhile have the mode 0600, whatever the umask of the process.

    gRPC makes the socket and listens at once: a mode that is set later would leave others a moment to connect. The
    umask is that of all threads, for which a stricter one is never a danger.
    """
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def hidden_path(folder: Path) -> Path:
    """Where gRPC may listen in *folder*: a path that no other process uses, and that the kubelet ignores.

    Raises:
        SocketTrouble: nothing can be made in the folder.
    """
    try:
        with NamedTemporaryFile(dir=folder, prefix=".criproxy-"):
            return folder / f".{secrets.token_hex(6)}{_SUFFIX}"  # not longer than any that `socket_name` gives
    except OSError as error:
        raise trouble(folder, error) from error


def claim(hidden: Path, path: Path) -> Identity:
    """Give the socket that listens at *hidden* the name *path*, in place of one that is dead.

    Raises:
        SocketTrouble: the name is that of something else.
    """
    try:
        _clear(path)
        os.link(hidden, path)
        hidden.unlink()
        found = identity(path)
    except FileNotFoundError as error:
        raise Vanished(f"{path}: was removed immediately") from error
    except FileExistsError as error:
        raise Taken(_taken(path)) from error
    except OSError as error:
        raise trouble(path.parent, error) from error
    if found is None:
        raise Vanished(f"{path}: was removed immediately")
    return found


def release(path: Path, claimed: Identity) -> None:
    """Remove the socket at *path* if it is still that which was claimed."""
    with suppress(OSError):
        if identity(path) == claimed:
            path.unlink()


def identity(path: Path) -> Identity | None:
    """Which socket lies at *path*; None: none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Identity(found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


def is_alive(path: Path) -> bool:
    """Whether somebody listens on the socket at *path*."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
    return True


def trouble(folder: Path, error: OSError) -> SocketTrouble:
    """What is wrong with *folder*, in a sentence."""
    return SocketTrouble(f"{folder}: {_REASONS.get(error.errno or 0, error.strerror or str(error))}")


def _clear(path: Path) -> None:
    """Remove a socket that nobody serves any more."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketTrouble(f"{path}: exists, but is not a socket; remove it")
    if is_alive(path):
        raise Taken(_taken(path))
    path.unlink(missing_ok=True)


def _taken(path: Path) -> str:
    return f"{path}: another process is listening on it; is a second criproxy device plugin running on this node?"
