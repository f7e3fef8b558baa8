"""A gRPC client: calls of criproxy's own to the runtime and to the kubelet, over one HTTP/2 connection at a time.

Messages are bytes; callers build and parse them. It has no threads and no timers but those of calls in flight.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from functools import lru_cache
from math import ceil
from typing import cast
from urllib.parse import unquote

from hpack import Decoder
from hpack.exceptions import HPACKError

from criproxy.errors import CriproxyError, StatusCode, WireError, reason_of
from criproxy.wire import frames
from criproxy.wire.flow import Ledger, Outflow
from criproxy.wire.frame_forwarding import FrameLoop, increment_of
from criproxy.wire.message import MessageError, decompress, encode

STREAM_WINDOW_BYTES = 8 << 20
"""What the peer may send on one stream before it is read: a list of thousands of containers needs no round trips."""
UNLIMITED_BYTES = 1 << 32
"""More than the length of a message can say."""
_LONGEST_TIMEOUT_MS = 99_999_999
_FIRST = (
    frames.PREFACE
    + frames.frame(
        frames.SETTINGS,
        0,
        0,
        b"\x00\x02\x00\x00\x00\x00"  # no PUSH_PROMISE
        + frames.SETTINGS_INITIAL_WINDOW_SIZE.to_bytes(2, "big")
        + STREAM_WINDOW_BYTES.to_bytes(4, "big"),
    )
    + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)
_STATUS_OF_RESET = {
    frames.REFUSED_STREAM: StatusCode.UNAVAILABLE,
    frames.CANCEL: StatusCode.CANCELLED,
    frames.ENHANCE_YOUR_CALM: StatusCode.RESOURCE_EXHAUSTED,
}
"""By the mapping of gRPC's PROTOCOL-HTTP2; all others are INTERNAL."""


class CallError(CriproxyError):
    """A call that did not end with OK.

    Attributes:
        code: the gRPC status, of the peer or of the client: UNAVAILABLE without a connection, DEADLINE_EXCEEDED.
        details: the text of the peer, or the client's own.
        cause: why there is no connection; None if there was one.
        is_own: whether the client's own deadline has passed, not one of the peer.
        is_unseen: whether the peer says that it did not look at the call (RFC 9113, 6.8 and 8.7).
    """

    is_unseen = False

    def __init__(self, code: StatusCode, details: str, *, cause: OSError | None = None, is_own: bool = False) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code
        self.details = details
        self.cause = cause
        self.is_own = is_own


class Channel:
    """One gRPC peer on a Unix socket; safe to use from many tasks of one event loop.

    The first call connects, and so does the first call after the connection was lost: there is no pause between
    attempts, since callers have their own.

    Args:
        path: of the socket.
        most_bytes: the largest message to accept.
        name: who calls, for the peer's log.
    """

    def __init__(self, path: str, most_bytes: int = UNLIMITED_BYTES, name: str = "criproxy") -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._name = name
        self._connection: _Connection | None = None
        self._former: _Connection | None = None
        """The connection before the last `renew`: calls of it may still be answered."""
        self._connecting = asyncio.Lock()

    async def unary(self, method: str, message: bytes, timeout_s: float) -> bytes:
        """Return the reply to *message*; *method* is a path such as ``/runtime.v1.RuntimeService/Version``.

        A call that the peer did not look at is sent once more, as gRPC's own clients do: a peer that restarts ends its
        connections so.

        Raises:
            CallError: the status is not OK, or there is not exactly one reply.
        """
        end_s = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(end_s):
                try:
                    return await self._unary(method, message, timeout_s)
                except CallError as error:
                    if not error.is_unseen:
                        raise
                return await self._unary(method, message, end_s - asyncio.get_running_loop().time())
        except TimeoutError:
            raise CallError(StatusCode.DEADLINE_EXCEEDED, "no answer in time", is_own=True) from None

    async def _unary(self, method: str, message: bytes, timeout_s: float) -> bytes:
        call = (await self._connected()).start(method, message, timeout_s)
        try:
            reply = await call.next()
            if reply is None or await call.next() is not None:
                raise CallError(StatusCode.INTERNAL, "the reply is not exactly one message")
            return reply
        finally:
            call.cancel()

    async def stream(self, method: str, message: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the replies to *message*, without a deadline, until the peer ends the call.

        Raises:
            CallError: the status is not OK.
        """
        call = (await self._connected()).start(method, message, None)
        try:
            while (reply := await call.next()) is not None:
                yield reply
        finally:
            call.cancel()

    def renew(self) -> None:
        """Connect anew with the next call, since the peer accepts connections but does not answer on this one.

        It may be a program that hangs while it stops, and another one may listen on the path by now. Calls in flight
        keep the old connection until the next `renew`: if the peer is only slow, they are answered.
        """
        if self._former is not None:
            self._former.give_up()
        self._former, self._connection = self._connection, None

    def close(self) -> None:
        """Drop the connection; calls in flight fail with UNAVAILABLE."""
        for connection in (self._former, self._connection):
            if connection is not None:
                connection.give_up()
        self._former = self._connection = None

    async def _connected(self) -> "_Connection":
        async with self._connecting:  # calls that begin together share one connection
            connection = self._connection
            if connection is None or not connection.is_usable:
                loop = asyncio.get_running_loop()
                try:
                    _, connection = await loop.create_unix_connection(
                        lambda: _Connection(self._most_bytes, self._name), self.path
                    )
                except OSError as error:
                    raise CallError(StatusCode.UNAVAILABLE, reason_of(error), cause=error) from error
                self._connection = connection
        return connection


class _Call:
    """One call: what has come of its reply, and how it ended."""

    def __init__(self, connection: "_Connection", stream: int) -> None:
        self.stream = stream
        self.has_headers = False
        """Whether the block before the messages has come; the next one is the trailers."""
        self.encoding = "identity"
        self.error: CallError | None = None
        self.is_over = False
        self.unread_bytes = 0
        """What has come since the peer got more window."""
        self._connection = connection
        self._buffer = bytearray()
        self._messages = deque[bytes]()
        self._waiter: asyncio.Future[None] | None = None

    async def next(self) -> bytes | None:
        """Return the next message; None at the end.

        Raises:
            CallError: the call ended with another status than OK.
        """
        while not self._messages:
            if self.error is not None:
                raise self.error
            if self.is_over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self._messages.popleft()
        self._connection.more_window(self)
        return message

    @property
    def is_behind(self) -> bool:
        """Whether messages wait for the caller, so that the peer shall not send more."""
        return bool(self._messages)

    def feed(self, payload: bytes, most_bytes: int) -> None:
        """Take DATA of the reply."""
        buffer = self._buffer
        buffer += payload
        at = 0
        while len(buffer) - at >= 5:
            size = int.from_bytes(buffer[at + 1 : at + 5], "big")
            if size > most_bytes:
                raise CallError(
                    StatusCode.RESOURCE_EXHAUSTED, f"a message of {size} bytes: at most {most_bytes} are accepted"
                )
            if len(buffer) - at - 5 < size:
                break
            try:
                self._messages.append(decompress(buffer[at], _part(buffer, at + 5, size), self.encoding))
            except MessageError as error:
                raise CallError(StatusCode.INTERNAL, str(error)) from error
            at += 5 + size
        if at:
            del buffer[:at]
            self._wake()

    def end(self, error: CallError | None = None) -> None:
        """End the call, once: with *error*, or with OK."""
        if not self.is_over:
            if error is None and self._buffer:
                error = CallError(StatusCode.INTERNAL, "the last message is truncated")
            self.error, self.is_over = error, True
            self._buffer.clear()
            self._wake()

    def cancel(self) -> None:
        """Tell the peer that nobody waits any more, unless the call is over."""
        if not self.is_over:
            self._connection.cancel(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Connection(FrameLoop, asyncio.Protocol):
    """One connection as its client. Everything that it writes goes through an `Outflow`, which knows the windows."""

    def __init__(self, most_bytes: int, name: str) -> None:
        super().__init__(Outflow(Ledger()))
        self.handlers = [self._on_frame] * 256
        self.is_usable = False
        """Whether new calls can begin."""
        self._most_bytes = most_bytes
        self._name = name
        self._decoder = Decoder()
        self._calls: dict[int, _Call] = {}
        self._next_stream = 1
        self._unread_bytes = 0
        """Of DATA, since the peer got more window of the connection."""
        self._transport: asyncio.Transport | None = None

    # -- the caller's side -----------------------------------------------------------------------------------------

    def start(self, method: str, message: bytes, timeout_s: float | None) -> _Call:
        """Send a request. A peer that restarts may have ended the connection before who made it could go on."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        if not self.is_usable:
            (call := _Call(self, stream)).end(_unseen("the peer ended the connection at once"))
            return call
        if self._next_stream > frames.MAX_WINDOW:
            self.is_usable = False  # no numbers are left
        call = self._calls[stream] = _Call(self, stream)
        self.out.open(stream)
        block = _headers(method, self._name, timeout_s)
        self.out.chunks.append(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block))
        body = encode(message)
        self.out.ledger.received(len(body))
        self.out.send_data(stream, body, end=True)
        self._flush()
        return call

    def cancel(self, call: _Call) -> None:
        """End a call before the peer does."""
        self._over(call, CallError(StatusCode.CANCELLED, "nobody waits for the answer"), reset=True)
        self._flush()

    def more_window(self, call: _Call) -> None:
        """Let the peer send more on a stream when what has come was read."""
        if call.unread_bytes >= STREAM_WINDOW_BYTES // 2 and not call.is_over and not call.is_behind:
            self.out.chunks.append(frames.window_update(call.stream, call.unread_bytes))
            call.unread_bytes = 0
            self._flush()

    def give_up(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._end_all(CallError(StatusCode.UNAVAILABLE, "the connection was given up"))

    # -- the transport's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the peer; it need not answer before calls begin (RFC 9113, 3.4)."""
        self._transport = cast("asyncio.Transport", transport)  # one of uvloop is no subclass of it
        self.is_usable = True
        self._transport.write(_FIRST)

    def connection_lost(self, exc: Exception | None) -> None:
        """All calls end."""
        reason = f": {exc}" if exc else ""
        self._end_all(CallError(StatusCode.UNAVAILABLE, f"the connection was closed{reason}"))

    def data_received(self, data: bytes) -> None:
        """Take what came from the peer, cut anywhere."""
        try:
            self.feed(data)
        except WireError as error:
            self.out.chunks.append(frames.goaway(0, error.http2_code, str(error)))
            self._flush()
            if self._transport is not None:
                self._transport.close()
            self._end_all(CallError(StatusCode.UNAVAILABLE, f"the peer broke HTTP/2: {error}"))
        else:
            self._flush()

    def _flush(self) -> None:
        if self.out.chunks and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self.out.take())
        self.out.chunks.clear()

    def _end_all(self, error: CallError) -> None:
        self.is_usable = False
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.end(error)

    # -- frames of the peer ----------------------------------------------------------------------------------------

    def _on_frame(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        self.take(at, end)  # nothing is forwarded
        match buffer[at + 3]:
            case frames.DATA:
                self._on_data(stream, flags, buffer[at + 9 : end])
            case frames.HEADERS:
                self._on_headers(stream, flags, buffer[at:end])
            case frames.RST_STREAM:
                self._on_reset(stream, frames.parse_u31(buffer[at + 9 : end], "RST_STREAM"))
            case frames.SETTINGS if not flags & frames.ACK:
                self.out.apply(frames.parse_settings(buffer[at + 9 : end]))
                self.out.chunks.append(frames.frame(frames.SETTINGS, frames.ACK, 0))
            case frames.PING if not flags & frames.ACK:
                self.out.chunks.append(frames.frame(frames.PING, frames.ACK, 0, buffer[at + 9 : end]))
            case frames.GOAWAY:
                self._on_goaway(frames.parse_u31(buffer[at + 9 : end], "GOAWAY"))
            case frames.WINDOW_UPDATE:
                self._on_window(stream, increment_of(buffer, at, end))
            case frames.PUSH_PROMISE:
                raise WireError("a PUSH_PROMISE frame, which was not allowed", frames.PROTOCOL_ERROR)
            case frames.CONTINUATION:
                raise WireError("a CONTINUATION frame without HEADERS", frames.PROTOCOL_ERROR)

    def _on_data(self, stream: int, flags: int, payload: bytes) -> None:
        self._unread_bytes += len(payload)
        if self._unread_bytes >= frames.MAX_WINDOW // 2:
            self.out.chunks.append(frames.window_update(0, self._unread_bytes))
            self._unread_bytes = 0
        call = self._calls.get(stream)
        if call is None:  # it was cancelled
            return
        call.unread_bytes += len(payload)
        try:
            call.feed(frames.unpad(flags, payload), self._most_bytes)
        except CallError as error:
            self._over(call, error, reset=True)
            return
        self.more_window(call)
        if flags & frames.END_STREAM:
            self._over(call, CallError(StatusCode.INTERNAL, "the reply ended without a status"))

    def _on_headers(self, stream: int, flags: int, raw: bytes) -> None:
        try:
            fields = dict(frames.decode_block(self._decoder, frames.header_block(raw)))
        except HPACKError as error:
            raise WireError(f"a header block cannot be read: {error}", frames.COMPRESSION_ERROR) from error
        call = self._calls.get(stream)
        if call is None:
            return
        if not call.has_headers:
            if fields.get(b":status", b"").startswith(b"1"):  # informational: the real ones follow
                return
            call.has_headers = True
            if refusal := _refusal(fields):
                self._over(call, refusal, reset=not flags & frames.END_STREAM)
                return
            call.encoding = fields.get(b"grpc-encoding", b"identity").decode("latin-1")
        if flags & frames.END_STREAM:
            self._over(call, _status(fields))

    def _on_reset(self, stream: int, code: int) -> None:
        if call := self._calls.get(stream):
            status = _STATUS_OF_RESET.get(code, StatusCode.INTERNAL)
            error = CallError(status, f"the peer reset the call (HTTP/2 error {code})")
            error.is_unseen = code == frames.REFUSED_STREAM
            self._over(call, error)

    def _on_goaway(self, last_stream: int) -> None:
        self.is_usable = False
        for stream in [stream for stream in self._calls if stream > last_stream]:
            self._over(self._calls[stream], _unseen("the peer ends the connection and did not look at the call"))

    def _on_window(self, stream: int, increment: int) -> None:
        if not stream:
            self.out.ledger.granted(increment)
        elif stream in self.out.deltas:
            self.out.deltas[stream] += increment
        self.out.flush_stream(stream)

    def _over(self, call: _Call, error: CallError | None, *, reset: bool = False) -> None:
        """End a call with *error*, or with OK; *reset*: the peer has to learn of it."""
        self._calls.pop(call.stream, None)
        self.out.ledger.replaced(self.out.drop_data(call.stream)[0], 0)
        self.out.close(call.stream)
        call.end(error)
        if reset:
            self.out.chunks.append(frames.rst_stream(call.stream, frames.CANCEL))
        if not self.is_usable and not self._calls and self._transport is not None:
            self._transport.close()  # after GOAWAY, the last one is through


def _unseen(why: str) -> CallError:
    error = CallError(StatusCode.UNAVAILABLE, why)
    error.is_unseen = True
    return error


def _part(buffer: bytearray, at: int, size: int) -> bytes:
    with memoryview(buffer) as view:  # a slice of the buffer would be one copy more, of up to 200 MB
        return bytes(view[at : at + size])


def _headers(method: str, name: str, timeout_s: float | None) -> bytes:
    """Return the header block of a request, which touches no dynamic table."""
    if timeout_s is None:
        return _fixed_headers(method, name)
    timeout_ms = min(max(ceil(timeout_s * 1000), 1), _LONGEST_TIMEOUT_MS)
    return _fixed_headers(method, name) + frames.literal(b"grpc-timeout", b"%dm" % timeout_ms)


@lru_cache(maxsize=64)
def _fixed_headers(method: str, name: str) -> bytes:
    fields = (
        (b":path", method.encode()),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
        (b"user-agent", name.encode()),
        (b"grpc-accept-encoding", b"identity,gzip"),
    )
    # 0x83, 0x86: ":method POST" and ":scheme http" of the static table
    return b"\x83\x86" + b"".join(frames.literal(name, value) for name, value in fields)


def _refusal(fields: dict[bytes, bytes]) -> CallError | None:
    """Return why the first headers of a reply are none of gRPC; None if they are."""
    http = fields.get(b":status", b"")
    if http != b"200":
        said = http.decode("latin-1") or "none"
        return CallError(StatusCode.UNKNOWN, f"the peer answers with HTTP status {said}, not with gRPC")
    kind = fields.get(b"content-type", b"")
    if not kind.startswith(b"application/grpc"):
        return CallError(StatusCode.UNKNOWN, f"the peer answers with {kind.decode('latin-1')!r}, not with gRPC")
    return None


def _status(trailers: dict[bytes, bytes]) -> CallError | None:
    """Return the error that *trailers* report; None for OK."""
    value = trailers.get(b"grpc-status", b"")
    if value == b"0":
        return None
    details = unquote(trailers.get(b"grpc-message", b"").decode("latin-1"), errors="replace")
    try:
        return CallError(StatusCode(int(value)), details)
    except ValueError:
        return CallError(StatusCode.UNKNOWN, details or f"the reply ended with the status {value.decode('latin-1')!r}")
