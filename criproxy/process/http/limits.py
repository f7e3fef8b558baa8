"""Limits for the HTTP API: its clients must not delay the calls of the kubelet.

The port of a loopback address is open to every process of the host, and its connections are served by the event loop
that also forwards calls. So a connection has one request, of bounded size; connections are accepted at a bounded rate,
and wait in the kernel beyond that; and if there are too many, the oldest is closed: it had most time for its request.
The streams of open pages, of which there are few, stay open.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from logging import Logger
from socket import AF_UNIX, SO_PEERCRED, SOL_SOCKET, socket
from struct import calcsize, unpack
from time import monotonic
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from criproxy.process.tasks import Bucket

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_CONNECTIONS = 32
"""The largest number of open connections."""
CONNECTIONS_PER_S = 50.0
BURST = 100
MOST_REQUEST_BYTES = 16 * 1024
MOST_PEERS = 64
"""The largest number of clients that have a share of their own."""
RENDERS_PER_S = 5.0
RENDER_BURST = 20
REFUSED_S = 1.0
"""How long a client that sends too much may take to read the answer: if the connection were closed while it is still
sending, the answer would be lost."""
FULL_PAUSE_S = 1.0
"""Pause before accepting again when the process has no file descriptor left."""


class Shares:
    """Token buckets: one for each client, and one for all together.

    Args:
        per_s: tokens that are added per second for each client.
        burst: the capacity for each client.
        all_per_s: tokens that are added per second for all.
        all_burst: the capacity for all.
        now: a clock, in seconds.
    """

    def __init__(
        self,
        per_s: float,
        burst: float,
        all_per_s: float,
        all_burst: float,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._new, self._all = partial(Bucket, per_s, burst, now), Bucket(all_per_s, all_burst, now)
        self._buckets: dict[str, Bucket] = {}
        """The client that asked last is last."""

    def take(self, peer: str) -> bool:
        """Take a token for *peer*; False if there is none."""
        bucket = self._buckets.pop(peer, None) or self._new()
        self._buckets[peer] = bucket
        if len(self._buckets) > MOST_PEERS:
            del self._buckets[next(iter(self._buckets))]
        return bucket.take() and self._all.take()


def peer_of(request: web.Request) -> str:
    """Return whose request it is: a user of a Unix socket, or a host."""
    sock = request.get_extra_info("socket")
    if sock is None:  # the client is gone
        return ""
    if sock.family == AF_UNIX:
        _, uid, _ = unpack("iii", sock.getsockopt(SOL_SOCKET, SO_PEERCRED, calcsize("iii")))
        return f"uid {uid}"
    return peer_at(request.get_extra_info("peername")[0])


def peer_at(address: str) -> str:
    """Return the name of the host with an IP address: all of loopback is one host, and so is a network of IPv6."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    if found.is_loopback:
        return "loopback"
    return str(found) if isinstance(found, IPv4Address) else str(ip_network((found, 64), strict=False))


class Rendered:
    """Renders metrics for each request while there are few requests; otherwise returns the last text.

    Args:
        render: Accept header → the metrics and their content type.
        bucket: limits how often they are rendered.
    """

    def __init__(self, render: Callable[[str], tuple[bytes, str]], bucket: Bucket) -> None:
        self._render, self._bucket = render, bucket
        self._last: tuple[bytes, str] | None = None

    def __call__(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics and their content type."""
        if self._bucket.take() or self._last is None:
            self._last = self._render(accept)
        return self._last


class _OneRequest(RequestHandler):
    """A connection with a limit on received bytes; what it sends is nothing for the log."""

    _left_bytes = MOST_REQUEST_BYTES
    is_kept = False
    """Whether it is not closed to make room: see `keep`."""

    def data_received(self, data: bytes) -> None:
        """Process *data*, or end a connection that sends too much."""
        left_bytes, self._left_bytes = self._left_bytes, self._left_bytes - len(data)
        if self._left_bytes >= 0:
            super().data_received(data)
        elif left_bytes >= 0:
            self._end(data[:left_bytes])

    def _end(self, data: bytes) -> None:
        """Read no more after *data*, and close the connection: at once if there is no request that can be answered."""
        super().data_received(data)
        if self.transport is None or not (self._messages or self._current_request):
            self.force_close()
            return
        self.transport.pause_reading()
        asyncio.get_running_loop().call_later(REFUSED_S, self.force_close)

    def log_exception(self, *args: Any, **keys: Any) -> None:  # noqa: ANN401 (as in aiohttp)
        """Log what fails here, not malformed requests and clients that go away, which could fill the log."""
        if not isinstance(keys.get("exc_info"), HttpProcessingError | ConnectionError):
            super().log_exception(*args, **keys)


@web.middleware
async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request whose body is too long, or of unknown length, before anybody waits for the body."""
    length = request.content_length
    if length is None and request.can_read_body:
        return _refused(request, 411, "a body needs a Content-Length")
    if length is not None and length > MOST_REQUEST_BYTES:
        return _refused(request, 413, f"a body may have at most {MOST_REQUEST_BYTES} bytes")
    return await handler(request)


def _refused(request: web.Request, status: int, text: str) -> web.Response:
    if request.path.startswith("/api/"):  # for programs
        response = web.json_response({"error": text}, status=status)
    else:
        response = web.Response(status=status, text=f"{text}\n")
    response.force_close()
    return response


def keep(request: web.Request) -> None:
    """Never close the connection of *request* to make room for others; for the few whose answers do not end."""
    if isinstance(request.protocol, _OneRequest):
        request.protocol.is_kept = True


class Acceptor:
    """Accepts connections for a server of aiohttp.

    Args:
        server: answers the requests.
        bucket: limits the rate of connections.
    """

    def __init__(self, server: web.Server, bucket: Bucket) -> None:
        self._server, self._bucket = server, bucket
        self._open: dict[_OneRequest, None] = {}
        """The oldest first."""

    async def run(self, listener: socket) -> None:
        """Accept for ever."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            await asyncio.sleep(self._bucket.reserve())
            try:
                connection, _ = await loop.sock_accept(listener)
                self._make_room()
                await loop.connect_accepted_socket(self._protocol, connection)
            except OSError:  # the client has closed it before, or no descriptor is left
                await asyncio.sleep(FULL_PAUSE_S)

    def _protocol(self) -> _OneRequest:
        no_log = cast("Logger", None)  # as `web.AppRunner` passes it
        handler = _OneRequest(self._server, loop=asyncio.get_running_loop(), access_log=no_log)
        self._open[handler] = None
        return handler

    def _make_room(self) -> None:
        connected = self._server.connections
        self._open = {handler: None for handler in self._open if handler in connected}
        while len(self._open) >= MOST_CONNECTIONS:
            oldest = next((each for each in self._open if not each.is_kept), next(iter(self._open)))
            del self._open[oldest]
            oldest.force_close()
