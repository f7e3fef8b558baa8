"""The sockets of the data plane: accept the kubelet, dial the runtime, move bytes, run the handlers (asyncio)."""

import asyncio
import select
import socket
from collections.abc import Callable, Collection
from contextlib import suppress
from time import monotonic
from typing import TypeVar, cast

import structlog

from criproxy.errors import StatusCode, WireError
from criproxy.wire.calls import Call, ErrorHandler, Proceed, Refuse, Table, Verdict
from criproxy.wire.message import MessageError, decode
from criproxy.wire.splice import Splice
from criproxy.wire.state import Cancelled, Ended, Event, Held, Replied, Unreadable
from criproxy.wire.stats import Stats

T = TypeVar("T")
log = structlog.get_logger("criproxy.wire")

WRITE_HIGH_BYTES = 262_144
"""A side with more than this unwritten stops the reading of the other side."""
WRITE_LIMIT_BYTES = 1_048_576
"""With more than this unwritten, a side is not read either: what we answer it with piles up."""
DIAL_TIMEOUT_S = 10.0
LINGER_S = 5.0
"""How long a closing side may take to read what is left for it."""
GO_AWAY_S = 0.25
"""What a kubelet connection without calls gets to read our GOAWAY and to close; some never do."""
PAUSED_CHECK_S = 2.0
"""How often a side that is not read, because the other one is full, is asked whether it is still there."""


async def pass_on_error(call: Call, message: bytes | None, error: Exception) -> Verdict:
    """The simplest `ErrorHandler`: the call goes on as it came."""
    return Proceed()


class Proxy:
    """Listens for the kubelet and ties each of its connections to a connection of its own to the runtime."""

    def __init__(
        self,
        runtime_path: str,
        table: Table,
        *,
        on_error: ErrorHandler = pass_on_error,
        on_runtime_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare a proxy; nothing is opened yet.

        Args:
            runtime_path: path of the runtime's unix socket.
            table: what is done to the calls of which method.
            on_error: decides about held calls whose handler failed or whose message cannot be read.
            on_runtime_lost: told when the runtime ends a connection or cannot be dialled: it may have been restarted.
        """
        self.runtime_path = runtime_path
        self.stats = Stats(table)
        self.on_error = on_error
        self.on_runtime_lost = on_runtime_lost
        self.links: set[Link] = set()
        self._server: asyncio.AbstractServer | None = None
        self._all_closed = asyncio.Event()
        self._numbers = 0

    async def start(self, sock: socket.socket) -> None:
        """Accept connections from *sock*, a bound AF_UNIX socket; it is ours from now on, in place of a former one."""
        loop = asyncio.get_running_loop()
        if self._server:
            self._server.close()
        self._server = await loop.create_unix_server(self._accept, sock=sock, backlog=1024)

    def _accept(self) -> asyncio.Protocol:
        self._numbers += 1
        return Link(self, self._numbers).client

    def use(self, table: Table) -> None:
        """Treat new calls by *table*; those under way end as they began."""
        self.stats.use(table)

    @property
    def window_debt(self) -> int:
        """Bytes of window promised beyond what the receivers allow, over all connections and both directions."""
        connections = (link.splice.connection for link in self.links)
        return sum(connection.requests.debt + connection.replies.debt for connection in connections)

    @property
    def oldest_held_s(self) -> float:
        """For how long the call has been held that has been held longest; 0 where none is."""
        begun_s = (call.begun_s for link in self.links for call in link.held_calls)
        oldest_s = min(begun_s, default=None)
        return 0.0 if oldest_s is None else monotonic() - oldest_s

    async def drain(self, timeout_s: float = 2.0) -> None:
        """Stop accepting, tell every kubelet connection to go elsewhere, let open calls finish, close all.

        Calls that are still open after *timeout_s* seconds are cut.
        """
        if self._server:
            self._server.close()
        for link in list(self.links):
            # The kubelet closes the connection once its calls are over. If we closed it at once, a call that it sends
            # before it has read the GOAWAY would fail instead of going elsewhere.
            link.splice.go_away()
            link.flush()
        grace_s = min(GO_AWAY_S, timeout_s)
        if await self._closed_within(grace_s):
            return
        for link in list(self.links):
            if link.splice.idle:
                link.close()
        if not await self._closed_within(timeout_s - grace_s):
            busy = sum(not link.splice.idle for link in self.links)
            log.warning("connections cut", after_s=timeout_s, connections=len(self.links), with_open_calls=busy)
            for link in list(self.links):
                link.close()
            await self._closed_within(LINGER_S + 1)

    async def _closed_within(self, timeout_s: float) -> bool:
        self._all_closed.clear()
        if self.links:
            try:
                async with asyncio.timeout(timeout_s):  # wait_for of Python 3.11 may swallow a cancellation
                    await self._all_closed.wait()
            except TimeoutError:
                return False
        return True

    def opened(self, link: "Link") -> None:
        """A link has begun."""
        self.links.add(link)
        self.stats.connected_s = monotonic()
        self.stats.connections_total += 1
        self.stats.connections_open += 1

    def closed(self, link: "Link") -> None:
        """Both sides of a link are gone."""
        if link in self.links:
            self.links.remove(link)
            self.stats.connections_open -= 1
            if not self.links:
                self._all_closed.set()


class _Side(asyncio.Protocol):
    """One socket of a link."""

    transport: asyncio.Transport | None = None

    is_client = False

    def __init__(self, link: "Link") -> None:
        self.link = link
        self.full = False
        """More is unwritten than `WRITE_HIGH_BYTES`."""
        self.lost = False
        self._reading = True
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self.link.connected(self)

    def pause_writing(self) -> None:
        self.full = True
        self.link.adjust_reading()

    def resume_writing(self) -> None:
        self.full = False
        self.link.adjust_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._watch:
            self._watch.cancel()
        self.link.side_lost(self)

    @property
    def overfull(self) -> bool:
        """So much is unwritten that this peer must not make us write more."""
        return self.full and self.transport is not None and self.transport.get_write_buffer_size() > WRITE_LIMIT_BYTES

    def read(self, on: bool) -> None:
        """Go on or stop reading."""
        if self.transport is None or self._reading is on or self.transport.is_closing():
            return
        self._reading = on
        if on:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
            if self._watch is None:
                self._watch = asyncio.get_running_loop().call_later(PAUSED_CHECK_S, self._see_whether_gone)

    def _see_whether_gone(self) -> None:
        """While it is not read, a transport does not notice that its peer has closed; so we ask the socket."""
        self._watch = None
        if self.transport is None or self._reading or self.transport.is_closing():
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)  # POLLHUP is always told
        if poll.poll(0):
            self.transport.abort()
        else:
            self._watch = asyncio.get_running_loop().call_later(PAUSED_CHECK_S, self._see_whether_gone)

    def close(self) -> None:
        """Close after what is unwritten went out, or `LINGER_S` seconds."""
        if self.transport is None or self.lost:
            return
        self.transport.close()
        if self.transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)


class _Client(_Side):
    """The kubelet's socket."""

    is_client = True

    def data_received(self, data: bytes) -> None:
        link = self.link
        link.stats.bytes_from_kubelet += len(data)
        if link.runtime.transport is None:  # uvloop forgets a pause that comes before the first read
            self.read(False)
        try:
            link.splice.from_client(data)
        except WireError as error:
            link.broken(self, error)
        link.flush()


class _Runtime(_Side):
    """The runtime's socket."""

    def data_received(self, data: bytes) -> None:
        link = self.link
        link.stats.bytes_from_runtime += len(data)
        try:
            link.splice.from_runtime(data)
        except WireError as error:
            link.broken(self, error)
        link.flush()


class Link:
    """A kubelet connection, its runtime connection, and the splice between them."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self.proxy = proxy
        self.number = number
        self.stats = proxy.stats
        self.splice = Splice(number, proxy.stats)
        self.client = _Client(self)
        self.runtime = _Runtime(self)
        self._tasks: dict[Call, asyncio.Task[None]] = {}
        self._dial: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def held_calls(self) -> Collection[Call]:
        """The calls whose handlers are at work."""
        return self._tasks.keys()

    # -- opening ---------------------------------------------------------------------------------------------------

    def connected(self, side: _Side) -> None:
        """A socket is there: dial the runtime for the first, let bytes flow with the second."""
        if side.is_client:
            self.proxy.opened(self)
            self._dial = asyncio.get_running_loop().create_task(self._connect())
        elif self._closing:
            side.close()
        else:
            self.client.read(True)
            self.flush()

    async def _connect(self) -> None:
        path = self.proxy.runtime_path
        try:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await loop.create_unix_connection(lambda: self.runtime, path)
        except (OSError, TimeoutError) as error:
            self.proxy.stats.dial_failures += 1
            reason = str(error) or f"no answer within {DIAL_TIMEOUT_S:g} s"
            log.warning("runtime cannot be reached", endpoint=f"unix://{path}", reason=reason, connection=self.number)
            self.close()
            self.proxy.on_runtime_lost()

    # -- bytes -----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the splice has ready, then tell the handlers."""
        connection, client, runtime = self.splice.connection, self.client, self.runtime
        if connection.to_runtime.chunks and runtime.transport:
            data = connection.to_runtime.take()
            if not runtime.lost:
                runtime.transport.write(data)
        if connection.to_client.chunks and connection.greeted and client.transport:
            data = connection.to_client.take()
            if not client.lost:
                client.transport.write(data)
        if client.full or runtime.full:
            self.adjust_reading()
        if connection.events:
            for event in self.splice.take_events():
                self._tell(event)

    def adjust_reading(self) -> None:
        """Back-pressure: read from one side only while the other takes what comes."""
        if self.client.transport and self.runtime.transport:
            self.client.read(not self.runtime.full and not self.client.overfull)
            self.runtime.read(not self.client.full and not self.runtime.overfull)

    # -- handlers --------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        match event:
            case Ended(call, outcome):
                if call.rule and call.rule.done:
                    self._notify(call, call.rule.done, outcome)
            case Replied(call, message):
                if call.rule and call.rule.each:
                    self._notify(call, call.rule.each, message)
            case Held(call, body):
                self._tasks[call] = asyncio.get_running_loop().create_task(self._hold(call, body))
            case Cancelled(call):
                if task := self._tasks.pop(call, None):
                    task.cancel()
            case Unreadable(call, error):
                self._count_failure(call, error)

    def _notify(self, call: Call, handler: Callable[[Call, T], None], what: T) -> None:
        try:
            handler(call, what)
        except Exception as error:  # noqa: BLE001 - a handler's fault must not end the kubelet's connection
            self._count_failure(call, error)

    def _count_failure(self, call: Call, error: Exception, *, told: bool = False) -> None:
        """Count it, and log it unless somebody else has *told* or will tell of it."""
        stats = self.proxy.stats
        if isinstance(error, MessageError):
            stats.unreadable += 1
            if not told:
                log.warning("message cannot be read", method=call.method, reason=str(error), connection=self.number)
        else:
            stats.handler_errors += 1
            if not told:
                log.error("handler failed", method=call.method, connection=self.number, exc_info=error)

    async def _hold(self, call: Call, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        verdict = await self._decide(call, body)
        if self._tasks.pop(call, None) is None:
            return
        try:
            answered = self.splice.answer(call, body, verdict)
        except WireError as error:  # more waits for the runtime than we keep
            self.broken(self.runtime, error)
            return
        if answered:
            held_s = loop.time() - begun
            self.flush()
            with suppress(Exception):  # a count: whatever is wrong with it, the call has gone on
                self.proxy.stats.entries[call.method.encode()].held.add(held_s)

    async def _decide(self, call: Call, body: bytes) -> Verdict:
        rule = call.rule
        assert rule is not None
        assert rule.hold is not None
        try:
            call.request = decode(body, call.encoding)
            return await rule.hold(call, call.request)
        except Exception as error:  # noqa: BLE001 - whatever a handler does, the call gets an answer
            self._count_failure(call, error, told=True)  # by `on_error`
            return await self._decide_after(call, error)

    async def _decide_after(self, call: Call, error: Exception) -> Verdict:
        try:
            return await self.proxy.on_error(call, call.request, error)
        except Exception as second:  # noqa: BLE001 - the last resort has to hold
            self._count_failure(call, second)
            return Refuse(StatusCode.INTERNAL, f"criproxy: {call.method} could not be handled; its log has the cause")

    # -- closing ---------------------------------------------------------------------------------------------------

    def broken(self, side: _Side, error: WireError) -> None:
        """One peer broke the protocol: both connections end, and no other."""
        stats, peer, reason = self.proxy.stats, "kubelet" if side.is_client else "runtime", str(error)
        stats.protocol_errors += 1
        stats.broken_s.append(monotonic())
        stats.broken_why = f"the {peer} broke the protocol: {reason}"
        text = "connection closed: the peer broke the protocol"
        log.warning(text, peer=peer, reason=reason, connection=self.number)
        self.splice.fail(error.http2_code, str(error), by_client=side.is_client)
        self.flush()
        self.close()

    def side_lost(self, side: _Side) -> None:
        """One socket is gone: so is the other, after what is in flight is written."""
        ended_by_runtime = not self._closing and (not side.is_client or self.splice.connection.runtime_goes)
        self.close()
        if ended_by_runtime:
            self.proxy.on_runtime_lost()
        if self.client.lost and (self.runtime.lost or self.runtime.transport is None):
            self.proxy.closed(self)

    def close(self) -> None:
        """End the link; every open call ends with it."""
        if self._closing:
            return
        self._closing = True
        self.splice.lost()
        self.flush()
        if self._dial and self.runtime.transport is None and self._dial is not asyncio.current_task():
            self._dial.cancel()
        self.client.close()
        self.runtime.close()
