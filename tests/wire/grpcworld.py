"""Real gRPC peers around a `Proxy`: a runtime whose methods do what their request says, and channels of all kinds."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from criproxy.wire.calls import Call, ErrorHandler, Outcome, OutcomeKind, Proceed, Rule, Table, Verdict
from criproxy.wire.server import Link, Proxy, pass_on_error

Options = list[tuple[str, Any]]
COMMON: Options = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
]
PEERS: dict[str, Options] = {
    "default": [],
    "smallest": [
        ("grpc.http2.max_frame_size", 16_384),
        ("grpc.http2.lookahead_bytes", 1_024),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.write_buffer_size", 1),
        ("grpc.http2.hpack_table_size.decoder", 0),
    ],
}
WAYS = ["pass", "watch", "hold", "edit", "both"]
"""The first part of a method's path: what is done to it."""
GROWN_BYTES = 500


class Runtime(grpc.GenericRpcHandler):
    """Methods ``/WAY/DOES``: Echo, Squeeze, Status, Count and Wait; see each."""

    def __init__(self) -> None:
        self.waiting = asyncio.Condition()
        self.started = 0
        """Calls of Wait and Drip that have begun."""
        self.go_on = asyncio.Event()
        """Set: Wait answers."""
        self.echoed = 0
        """Calls of Echo."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - the type of the library
        """Find what the last part of the path says."""
        does = handler_call_details.method.rsplit("/", 1)[-1].lower()
        if does in ("count", "drip"):
            return grpc.unary_stream_rpc_method_handler(getattr(self, "_" + does))
        return grpc.unary_unary_rpc_method_handler(getattr(self, "_" + does))

    async def _echo(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self.echoed += 1
        return request

    async def _version(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        return b"v1"

    async def _squeeze(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        context.set_compression(grpc.Compression.Gzip)
        return request

    async def _status(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        number, _, text = request.decode().partition(" ")
        code = next(code for code in grpc.StatusCode if code.value[0] == int(number))
        await context.send_initial_metadata((("x-initial", "first"),))
        await context.abort(code, text, (("x-trailing", "last"), ("x-raw-bin", bytes(range(256)))))

    async def _begun(self) -> None:
        async with self.waiting:
            self.started += 1
            self.waiting.notify_all()

    async def _wait(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        await self._begun()
        await self.go_on.wait()
        return request

    async def _count(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        count, size = map(int, request.split()[:2])
        for number in range(count):
            yield number.to_bytes(4, "big") + bytes(size)

    async def _drip(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        yield request
        await self._begun()
        await asyncio.Event().wait()


async def grow(call: Call, message: bytes) -> Verdict:
    """A hold handler that makes every request a bit longer."""
    return Proceed(message + b" " * GROWN_BYTES)


def edit(call: Call, message: bytes) -> bytes:
    """An edit that makes every reply a bit longer."""
    return message + b"!" * GROWN_BYTES


def invoke(
    channel: grpc.aio.Channel,
    path: str,
    request: bytes,
    **more: Any,  # noqa: ANN401
) -> grpc.aio.UnaryUnaryCall[bytes, bytes]:
    """Start a unary call on bytes."""
    call: Callable[..., grpc.aio.UnaryUnaryCall[bytes, bytes]] = channel.unary_unary(path)
    return call(request, **more)


class World:
    """A runtime, a proxy in front of it, and channels to both; use it as ``async with World(path) as world``."""

    def __init__(
        self,
        path: Path,
        *,
        options: Options | None = None,
        hold: Callable[[Call, bytes], Awaitable[Verdict]] = grow,
        table: Table | None = None,
        on_error: ErrorHandler = pass_on_error,
        serving: bool = True,
    ) -> None:
        """Prepare all three.

        Args:
            path: a directory for the sockets.
            options: of gRPC, beside `COMMON`.
            hold: what is done with held messages.
            table: of rules, in place of those that the first part of a method's path says.
            on_error: see `Proxy`.
            serving: whether there is a runtime.
        """
        self.outcomes: Counter[OutcomeKind] = Counter()
        self.options = COMMON + (options or [])
        self.path = path
        self.runtime = Runtime()
        rules = {"watch": Rule(done=self._done), "hold": Rule(hold=hold, done=self._done)}
        rules |= {"edit": Rule(edit=edit, done=self._done), "both": Rule(hold=hold, edit=edit, done=self._done)}
        names = ["Echo", "Squeeze", "Status", "Wait", "Count", "Drip"]
        by_way: Table = {f"/{way}/{name}": rule for way, rule in rules.items() for name in names}
        self.table = by_way if table is None else table
        self.proxy = Proxy(str(path / "runtime"), self.table, on_error=on_error)
        self._serving = serving

    def _done(self, call: Call, outcome: Outcome) -> None:
        self.outcomes[outcome.kind] += 1

    async def __aenter__(self) -> Self:
        self.server = grpc.aio.server(options=self.options)
        self.server.add_generic_rpc_handlers((self.runtime,))
        if self._serving:
            self.server.add_insecure_port(f"unix:{self.path}/runtime")
            await self.server.start()
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(self.path / "proxy"))
        await self.proxy.start(sock)
        self.channel = self.open_channel("proxy")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.channel.close()
        await self.proxy.drain(0.1)
        await self.server.stop(0)

    def open_channel(self, name: str) -> grpc.aio.Channel:
        """A new connection to the ``proxy`` or the ``runtime``."""
        return grpc.aio.insecure_channel(f"unix:{self.path}/{name}", options=self.options)

    @property
    def link(self) -> Link:
        """The only connection."""
        (link,) = self.proxy.links
        return link

    def call(
        self,
        path: str,
        request: bytes,
        *,
        timeout: float | None = 60,
        **more: Any,  # noqa: ANN401
    ) -> grpc.aio.UnaryUnaryCall[bytes, bytes]:
        """Start a unary call through the proxy."""
        return invoke(self.channel, path, request, timeout=timeout, **more)

    def stream(self, path: str, request: bytes, **more: Any) -> grpc.aio.UnaryStreamCall[bytes, bytes]:  # noqa: ANN401
        """Start a server-streaming call through the proxy."""
        call: Callable[..., grpc.aio.UnaryStreamCall[bytes, bytes]] = self.channel.unary_stream(path)
        return call(request, **more)

    async def begun(self, count: int) -> None:
        """Wait until that many calls of Wait and Drip have begun in the runtime."""
        async with self.runtime.waiting:
            await self.runtime.waiting.wait_for(lambda: self.runtime.started >= count)

    async def check_version(self) -> None:
        """A small call on the same connection is answered meanwhile."""
        assert await self.call("/pass/Version", b"") == b"v1"

    async def check_rest(self) -> None:
        """As soon as the last frames are through: the ledgers balance, nothing is held or waits."""
        await self.check_version()
        connection, limit = self.link.splice.connection, time.monotonic() + 60
        while not self.link.splice.idle or connection.requests.in_flight or connection.replies.in_flight:
            assert time.monotonic() < limit, f"{len(connection.streams)} streams are still open"
            await asyncio.sleep(0.01)
        for ledger in (connection.requests, connection.replies):
            assert ledger.sender + ledger.in_flight == ledger.receiver + ledger.debt
            assert ledger.sender >= 0
        assert connection.held_bytes == 0
        assert not self.link._tasks
        assert self.proxy.stats.connections_total == 1, "the connection was lost on the way"
        for out in (connection.to_runtime, connection.to_client):
            assert not out.queues
            assert out.queued_bytes == 0
            assert not out.deltas
        await self.check_version()
