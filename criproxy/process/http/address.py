"""The address of the HTTP API; separate from the API, which is slow to import."""

import socket
from dataclasses import dataclass

from criproxy.errors import CriproxyError, UsageError
from criproxy.wire.sockets import Listener, listen, unix_path

_EXPECTED = "use HOST:PORT, :PORT (on the loopback interface), [IPV6]:PORT or unix:///PATH"


@dataclass(frozen=True, slots=True)
class Address:
    """An address to serve on: a host and port, or a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read the value of ``--http``.

        Raises:
            UsageError: the value is invalid; the text has the valid forms.
        """
        if text.startswith(("unix:", "/")):
            return cls(path=unix_path(text, "--http"))
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or not _is_port(port) or (":" in host and not bracketed) or "/" in host:
            raise UsageError(f"--http: {text!r} is not an address; {_EXPECTED}")
        return cls(host=host.strip("[]") or "localhost", port=int(port))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it; False for all names except localhost, which are not resolved."""
        return self.path is not None or _leads_here(self.host)

    def listen(self) -> Listener:
        """Bind and listen; clients that connect wait until `HttpServer` accepts.

        Raises:
            CriproxyError: the address cannot be bound.
        """
        if self.path is not None:
            return listen(self.path, 0o660)
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
            family, _, _, _, place = min(found, key=lambda info: info[0] != socket.AF_INET)
            sock = socket.create_server(place[:2], family=family)
        except OSError as error:
            raise CriproxyError(f"--http: cannot listen on {self}: {error.strerror or error}") from error
        sock.setblocking(False)
        return Listener(sock, "")

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix://{self.path}"
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine by an address that no name server can give away."""
    return _leads_here(host.partition("]")[0].lstrip("[") if host.startswith("[") else host.rpartition(":")[0] or host)


def _leads_here(name: str) -> bool:
    from ipaddress import ip_address

    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16
