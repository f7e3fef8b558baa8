"""Strict endpoints on real sockets: `RawConnection` ties an `Endpoint` to one, `RawRuntime` answers every call."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, cast

from criproxy.wire.calls import Table
from criproxy.wire.server import Proxy
from tests.wire.rawpeer import Endpoint, Stream


class RawConnection(asyncio.Protocol):
    """One socket whose bytes an endpoint reads and writes."""

    def __init__(self, endpoint: Endpoint, answer: Callable[[Endpoint, Stream], None] | None = None) -> None:
        """Prepare; *answer* is called once for every request that came whole."""
        self.endpoint = endpoint
        self.error: Exception | None = None
        """What the endpoint found wrong."""
        self.moved = asyncio.Condition()
        self.made, self.closed = asyncio.Event(), asyncio.Event()
        self._answer = answer
        self._answered: set[int] = set()
        self._wake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self.transport = cast("asyncio.Transport", transport)
        self.made.set()
        self.write()

    def data_received(self, data: bytes) -> None:
        """Check it, answer it."""
        try:
            self.endpoint.feed(data)
        except Exception as error:  # noqa: BLE001 - kept for the test, which asserts that there is none
            self.error = self.error or error
        if self._answer:
            for stream, half in self.endpoint.streams.items():
                if half.got_end and stream not in self._answered:
                    self._answered.add(stream)
                    self._answer(self.endpoint, half)
        self.write()
        self._wake = asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self.moved:
            self.moved.notify_all()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let those go on who wait for it."""
        self.closed.set()

    async def abort(self) -> None:
        """Close it without a word, and wait until its socket is closed."""
        await self.made.wait()
        self.transport.abort()
        await self.closed.wait()

    def write(self) -> None:
        """Send what windows allow."""
        self.endpoint.push()
        self.transport.write(self.endpoint.take())

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until *done* after some read; at most a minute."""
        async with asyncio.timeout(60), self.moved:
            await self.moved.wait_for(lambda: done() or self.error is not None)
        assert self.error is None, self.error

    async def over(self, stream: int) -> Stream:
        """Wait until the call is over."""
        half = self.endpoint.streams[stream]
        await self.until(lambda: half.over)
        return half


def echo(runtime: Endpoint, half: Stream) -> None:
    """Answer with the request's message."""
    runtime.queue_reply(half.id, bytes(half.got[5:]))


class RawRuntime:
    """Listens as a runtime would; each connection is a new endpoint."""

    def __init__(
        self, path: str, make: Callable[[], Endpoint] | None = None, answer: Callable[[Endpoint, Stream], None] = echo
    ) -> None:
        self.path = path
        self._answer = answer
        self.connections: list[RawConnection] = []
        self._make = make or (lambda: Endpoint(client=False))

    def _accept(self) -> RawConnection:
        connection = RawConnection(self._make(), self._answer)
        self.connections.append(connection)
        return connection

    async def __aenter__(self) -> Self:
        self.server = await asyncio.get_running_loop().create_unix_server(self._accept, self.path, backlog=1_000)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Listen no more, and leave no connection open, however late the other side closes it."""
        self.server.close()
        await self.server.wait_closed()
        for connection in self.connections:
            await connection.abort()


@asynccontextmanager
async def proxy_at(directory: Path, table: Table | None = None) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of ``DIRECTORY/runtime``, and its own path."""
    proxy, path = Proxy(str(directory / "runtime"), table or {}), str(directory / "proxy")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    await proxy.start(sock)
    try:
        yield proxy, path
    finally:
        await proxy.drain(0.1)


@asynccontextmanager
async def raw_client(path: str, endpoint: Endpoint | None = None) -> AsyncIterator[RawConnection]:
    """A client's endpoint connected to *path*."""
    connection = RawConnection(endpoint or Endpoint(client=True))
    await asyncio.get_running_loop().create_unix_connection(lambda: connection, path)
    try:
        yield connection
    finally:
        await connection.abort()


def open_files() -> int:
    """File descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))
