"""The interface to systemd: passed sockets, readiness, status, watchdog."""

import os
import socket
import time
from collections.abc import Mapping, MutableMapping

from criproxy.errors import UsageError
from criproxy.model.text.bounded import printable

FIRST_FD = 3
SOCKET_NAMES = ("criproxy", "criproxy-image", "control")
"""FileDescriptorName= of each socket unit; without one systemd passes the unit's name."""


class Notifier:
    """Notifies systemd of the daemon's state; does nothing without systemd."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of *environ*.

        Raises:
            UsageError: the socket's address is neither a path nor abstract.
        """
        self._address = _notify_address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_interval_s = _watchdog_interval_s(environ)
        """How often to notify the watchdog: half of its timeout; None without a watchdog."""

    def ready(self, status: str) -> None:
        """Notify that the daemon serves."""
        self._send(f"READY=1\nSTATUS={printable(status)}\nMAINPID={os.getpid()}")

    def status(self, text: str) -> None:
        """Set the status line that ``systemctl status`` shows: one line, whatever is in the text."""
        self._send(f"STATUS={printable(text)}")

    def reloading(self) -> None:
        """Notify that the configuration is being reloaded; `ready` ends that."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the daemon is stopping."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        """Notify the watchdog, if there is one, that the event loop runs."""
        if self.watchdog_interval_s is not None:
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(message.encode(), self._address)
            except OSError:  # the manager is gone or busy: that must not stop the daemon
                return


def _notify_address(value: str) -> str | None:
    if not value:
        return None
    if value[0] not in "/@" or len(value) < 2:
        raise UsageError(f"NOTIFY_SOCKET: {value!r} is neither an absolute path nor an abstract socket (@NAME)")
    return "\0" + value[1:] if value[0] == "@" else value


def _watchdog_interval_s(environ: Mapping[str, str]) -> float | None:
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return None
    return int(usec) / 2e6


def adopt_sockets(environ: MutableMapping[str, str], first_fd: int = FIRST_FD) -> dict[str, socket.socket]:
    """Take over the listening sockets that systemd passed to this process, by name from `SOCKET_NAMES`.

    LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES are removed from *environ*, so that no child takes them too.

    Raises:
        UsageError: a descriptor has an unknown or duplicate name, or is not a listening Unix stream socket.
    """
    pid, count, names = (environ.pop(key, "") for key in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if pid != str(os.getpid()) or not count.isdigit():
        return {}
    labels = [label.removesuffix(".socket") for label in (names or "criproxy").split(":")]
    if int(count) and (len(labels) != int(count) or len(set(labels)) != len(labels) or set(labels) - set(SOCKET_NAMES)):
        raise UsageError(
            f"systemd passed {count} sockets named {', '.join(labels)}; "
            f"set FileDescriptorName= of each to another one of {', '.join(SOCKET_NAMES)}"
        )
    return {labels[index]: _adopt(first_fd + index, labels[index]) for index in range(int(count))}


def _adopt(fd: int, name: str) -> socket.socket:
    try:
        sock = socket.socket(fileno=fd)
        listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise UsageError(f"systemd's descriptor {fd} ({name}) is not a socket: {error.strerror}") from error
    if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_STREAM) or not listening:
        sock.close()
        raise UsageError(f"systemd's socket {name!r} must be a ListenStream= with an absolute path")
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
