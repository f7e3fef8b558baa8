"""Sockets in the kubelet's directories: their names, whether a process listens, and problems with a directory.

gRPC removes any socket at a path before it listens there, and again when it stops; both could belong to another
process. Therefore, it listens under a hidden name, and the socket gets its real name by a link, which fails if there is
another one. The kubelet ignores names that begin with a dot.
"""

import asyncio
import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from criproxy.errors import for_kubelet
from criproxy.process.tasks import in_full

MAX_PATH_BYTES = 107
"""Limit for the path of a socket: the kernel adds a zero byte."""
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
Handlers = grpc.GenericRpcHandler
STOP_S = 1.0
"""How long calls in progress may take when the server stops."""
END_S = 2.0
"""Timeout for stopping: gRPC waits forever for a call that ignores its cancellation."""


class SocketError(Exception):
    """No socket can be created; the text has the path and the reason."""


class SocketVanished(SocketError):
    """The socket was removed while it was being created, for example by a kubelet that starts."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies the socket file at a path: one that is created again has another identity."""

    inode: int
    created_ns: int


def socket_name(resource: str, folder: Path) -> str:
    """Return the name of a resource's socket in *folder*.

    Names are unique: what is not allowed in a name, or too long, is replaced by a digest.

    Raises:
        SocketTrouble: The path of the directory leaves no room for a socket's name.
    """
    room = MAX_PATH_BYTES - len(os.fsencode(folder)) - 1 - len(PREFIX) - len(_SUFFIX)
    plain = resource.replace("/", "_", 1)
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", plain)
    if safe != plain or len(safe) > room:
        kept = room - _DIGEST_CHARS - 1
        if kept < 0:
            raise SocketError(f"{folder}: {_REASONS[errno.ENAMETOOLONG]}")
        safe = f"{safe[:kept]}-{sha256(resource.encode()).hexdigest()[:_DIGEST_CHARS]}"
    return f"{PREFIX}{safe}{_SUFFIX}"


@contextmanager
def owner_only_umask() -> Iterator[None]:
    """Create sockets with mode 0600 in this context, whatever the umask of the process.

    gRPC creates the socket and listens at once: if the mode were set later, other users could connect before that. The
    umask applies to all threads, but a stricter one is never a danger.
    """
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def hidden_path(folder: Path) -> Path:
    """Return a path in *folder* for gRPC to listen on: no other process uses it, and the kubelet ignores it.

    Raises:
        SocketTrouble: Nothing can be created in the directory.
    """
    try:
        with NamedTemporaryFile(dir=folder, prefix=".criproxy-"):
            return folder / f".{secrets.token_hex(6)}{_SUFFIX}"  # not longer than the names of `socket_name`
    except OSError as error:
        raise socket_error(folder, error) from error


def claim(hidden: Path, path: Path) -> Identity:
    """Rename the socket that listens at *hidden* to *path*; replaces a socket on which no process listens.

    Raises:
        SocketTrouble: Something else has the name.
    """
    try:
        _remove_dead(path)
        os.link(hidden, path)
        hidden.unlink()
        found = identity(path)
    except FileNotFoundError as error:
        raise SocketVanished(f"{path}: was removed immediately") from error
    except FileExistsError as error:
        raise SocketError(_in_use_text(path)) from error
    except OSError as error:
        raise socket_error(path.parent, error) from error
    if found is None:
        raise SocketVanished(f"{path}: was removed immediately")
    return found


def release(path: Path, claimed: Identity) -> None:
    """Remove the socket at *path* if it is still the claimed one."""
    with suppress(OSError):
        if identity(path) == claimed:
            path.unlink()


def identity(path: Path) -> Identity | None:
    """Return the identity of the socket at *path*; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Identity(found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


def is_alive(path: Path) -> bool:
    """Whether a process listens on the socket at *path*."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # the queue of the listener is full
            return True
        except OSError:
            return False
    return True


def remove_dead(folder: Path) -> list[str]:
    """Remove sockets that former processes of this program have left in *folder*, and return their names.

    Use it before any socket is created. The kubelet would go on dialling a socket in plugins_registry.
    """
    removed = []
    with suppress(OSError):
        for path in sorted(folder.glob(f"{PREFIX}*{_SUFFIX}")):
            if stat.S_ISSOCK(path.lstat().st_mode) and not is_alive(path):
                path.unlink()
                removed.append(path.name)
    return removed


def socket_error(folder: Path, error: OSError) -> SocketError:
    """Return an error that describes the problem with *folder* in a sentence."""
    return SocketError(f"{folder}: {_REASONS.get(error.errno or 0, error.strerror or str(error))}")


def _remove_dead(path: Path) -> None:
    """Remove a socket on which no process listens any more."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketError(f"{path}: exists, but is not a socket; remove it")
    if is_alive(path):
        raise SocketError(_in_use_text(path))
    path.unlink(missing_ok=True)


def _in_use_text(path: Path) -> str:
    return f"{path}: another process is listening on it; is a second criproxy device plugin running on this node?"


class Server:
    """Serves until `stop`.

    Args:
        path: Path of the socket.
        handlers: The services.
    """

    def __init__(self, path: Path, handlers: Sequence[Handlers]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: grpc.aio.Server | None = None
        self.claimed: Identity | None = None
        """The socket that it created; None if it has created none yet."""
        self._stopped = False

    async def start(self) -> None:
        """Listen, then give the socket its name, so that clients that see it can call. Leaves nothing if cancelled.

        Raises:
            SocketTrouble: No socket can be created; nothing is left behind.
        """
        try:
            await in_full(self._start(), None, END_S)
        except RuntimeError as error:  # gRPC's own log has the reason
            await self.stop()
            raise SocketError(f"{self.path.parent}: no socket can be created in it") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop, and remove the socket if it is still ours; calls in progress get `STOP_S`."""
        self._stopped = True
        with suppress(TimeoutError):
            await in_full(self._stop(), END_S, END_S)

    async def _start(self) -> None:
        hidden = await asyncio.to_thread(hidden_path, self.path.parent)
        self._server = server = grpc.aio.server()
        server.add_generic_rpc_handlers(tuple(self._handlers))
        with owner_only_umask():
            server.add_insecure_port(f"unix://{hidden.absolute()}")
        await server.start()
        self.claimed = await asyncio.to_thread(claim, hidden, self.path)
        if self._stopped:  # start() has been cancelled, or has timed out
            await self._stop()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if self.claimed is not None:
            await asyncio.to_thread(release, self.path, self.claimed)
        if server is not None:
            await server.stop(STOP_S)


def unary(
    act: Callable[..., Awaitable[Message]], request: type[Message], failed: Callable[[str, Exception], None]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a method with one reply. gRPC itself would send the text of any exception to the caller.

    Args:
        act: Returns the reply.
        request: The type of its request messages.
        failed: Called with the method and an unexpected exception.
    """

    async def call(data: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        try:
            reply = await act(request.FromString(data), context)
            return reply.SerializeToString()
        except grpc.aio.AbortError:
            raise
        except DecodeError:
            await context.abort(grpc.StatusCode.INTERNAL, "the request cannot be read")
        except Exception as error:  # noqa: BLE001 (no text of an exception may reach pods)
            failed(request.DESCRIPTOR.name, error)
            await context.abort(grpc.StatusCode.INTERNAL, for_kubelet(error))

    return grpc.unary_unary_rpc_method_handler(call)
