"""From the kubelet to the runtime: which call is it, and does its message wait?"""

import re
from collections.abc import Iterator
from time import monotonic

from hpack import Decoder
from hpack.exceptions import HPACKError

from criproxy.errors import StatusCode, WireError
from criproxy.wire import frames
from criproxy.wire.calls import Call, OutcomeKind, Refuse, Rule
from criproxy.wire.flow import Ledger
from criproxy.wire.frame_forwarding import FrameLoop, increment_of
from criproxy.wire.message import MAX_MESSAGE_BYTES, MessageError, MessageReader, decompress, timeout_s
from criproxy.wire.state import MAX_HELD_BYTES, MAX_KEPT_BYTES, Connection, Held, Hold, Stream, Unreadable

MAX_STREAMS = 10_000
"""Open calls on one connection; more is no kubelet."""
MAX_UNACKNOWLEDGED_SETTINGS = 1_000
MAX_HEADER_LIST_BYTES = 1 << 20
_INDEX = bytes(byte & 0x7F for byte in range(256))
"""Indexed field of one byte → its index."""


class Requests(FrameLoop):
    """Frames from the kubelet. The HPACK decoder listens to every header block; it never changes one."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.to_runtime)
        self.connection = connection
        self.decoder = Decoder(MAX_HEADER_LIST_BYTES)
        self.settings_to_apply: list[dict[int, int]] = []
        """What the runtime announced and the kubelet has not acknowledged."""
        self.settings_seen: list[dict[int, int]] = []
        """What the kubelet announced; `Replies` applies it when the runtime acknowledges."""
        self.replies: FrameLoop
        """The other direction: the runtime may send frames as large as the kubelet announced."""
        self._preface = frames.PREFACE
        self.handlers[frames.DATA] = self._on_data
        self.handlers[frames.HEADERS] = self._on_headers
        self.handlers[frames.RST_STREAM] = self._on_reset
        self.handlers[frames.SETTINGS] = self._on_settings
        self.handlers[frames.WINDOW_UPDATE] = self._on_window
        self.handlers[frames.PUSH_PROMISE] = self._on_push

    def take_preface(self, data: bytes) -> bytes | None:
        """Forward the connection preface, cut anywhere; what follows it in *data*, or None while it is not whole.

        Raises:
            WireError: *data* goes on in another way.
        """
        head = data[: len(self._preface)]
        if not self._preface.startswith(head):
            raise WireError("the client does not speak HTTP/2 with prior knowledge (its preface is wrong)")
        self._preface = self._preface[len(head) :]
        self.out.chunks.append(head)
        return None if self._preface else data[len(head) :]

    # -- DATA ------------------------------------------------------------------------------------------------------

    def _on_data(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        out, size = self.out, end - at - 9
        ledger = out.ledger
        state = self.connection.streams.get(stream)
        if state is not None and not (state.touched or ledger.debt or ledger.in_flight or out.queues):  # nearly always
            ledger.sender -= size
            ledger.receiver -= size
            out.deltas[stream] -= size
        elif state is None:
            self._on_stray_data(stream, size, at, end)
        elif state.hold:
            self._keep(state, state.hold, flags, buffer, at, end)
        elif state.drop_requests:
            self._swallow(size, at, end)
            self.connection.give_client(size, stream)
        else:
            if state.request:
                self._copy(state.call, state.request, frames.unpad(flags, buffer[at + 9 : end]))
            self._pass(stream, flags, buffer, at, end)
        if flags & frames.END_STREAM and state is not None:
            self._client_done(state)

    def _pass(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        """Forward DATA as it is if the runtime has room for it, else let it wait."""
        out, size = self.out, end - at - 9
        if (out.ledger.debt or out.queues) and not out.fits(stream, size):
            self.take(at, end)
            payload = frames.unpad(flags, buffer[at + 9 : end])
            out.ledger.received(size)
            self.connection.give_client(out.ledger.replaced(size, len(payload)))
            self.connection.give_client(size - len(payload), stream)
            out.send_data(stream, payload, bool(flags & frames.END_STREAM))
        else:
            out.ledger.passed(size)
            if stream in out.deltas:
                out.deltas[stream] -= size
        if out.ledger.in_flight:
            self.connection.top_up_requests()

    def _on_stray_data(self, stream: int, size: int, at: int, end: int) -> None:
        """DATA of a stream that is over; the runtime ignores it, but it counts for the connection window."""
        ledger = self.out.ledger
        if stream in self.connection.refused or ledger.debt or self.out.queues:
            self._swallow(size, at, end)
        else:
            ledger.passed(size)

    def _swallow(self, size: int, at: int, end: int) -> None:
        self.take(at, end)
        self.out.ledger.received(size)
        self.connection.give_client(self.out.ledger.replaced(size, 0))

    def _keep(self, state: Stream, hold: Hold, flags: int, buffer: bytes, at: int, end: int) -> None:
        """Add DATA to a held request."""
        connection, size = self.connection, end - at - 9
        self.take(at, end)
        payload = frames.unpad(flags, buffer[at + 9 : end])
        self.out.ledger.received(size)
        if payload:
            hold.chunks.append(payload)
        hold.size += len(payload)
        hold.consumed += size
        hold.window -= size
        connection.hold_more(size)
        is_full = connection.held_bytes > MAX_HELD_BYTES or connection.stats.kept_bytes > MAX_KEPT_BYTES
        if is_full or hold.size > MAX_MESSAGE_BYTES + 5:
            connection.refuse(state, StatusCode.RESOURCE_EXHAUSTED, _too_large(state, connection))
        elif flags & frames.END_STREAM:
            self._complete(state, hold)
        connection.top_up(state)

    def _complete(self, state: Stream, hold: Hold) -> None:
        if hold.complete:
            raise WireError("a call goes on after its end", frames.PROTOCOL_ERROR)
        hold.complete = True
        assert state.call is not None
        self.connection.events.append(Held(state.call, b"".join(hold.chunks)))

    def _copy(self, call: Call | None, reader: MessageReader, payload: bytes) -> None:
        """Keep the first request message of a watched call."""
        for raw in self.connection.copy(reader, payload):
            if call and call.request is None:
                try:
                    call.request = decompress(raw[0], raw[5:], call.encoding)
                except MessageError as error:
                    self.connection.events.append(Unreadable(call, error))

    def _client_done(self, state: Stream) -> None:
        state.client_done = True
        if state.runtime_done:
            self.connection.close(state)

    # -- HEADERS ---------------------------------------------------------------------------------------------------

    def _on_headers(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        try:
            plain = flags & (frames.END_HEADERS | frames.PADDED | frames.HAS_PRIORITY) == frames.END_HEADERS
            fields = self._decode(buffer[at + 9 : end] if plain else frames.header_block(buffer[at:end]))
        except HPACKError as error:
            reason = re.split(" from |: <", str(error))[0]  # not the bytes: they may be secret, or a memory address
            raise WireError(f"a header block cannot be decoded: {reason}", frames.COMPRESSION_ERROR) from None
        connection = self.connection
        state = connection.streams.get(stream)
        if state is None and stream > connection.last_stream:
            connection.last_stream = stream
            if connection.drained_above is not None:
                self._turn_away(stream, buffer, at, end)
                return
            opened = self._open(stream, flags, fields)
            if opened.touched and opened.entry.rule and opened.entry.rule.answer:
                self._answer(opened, opened.entry.rule.answer, buffer, at, end)
                return
        if state is not None and state.hold and flags & frames.END_STREAM:
            self.take(at, end)
            self.out.hold_back(stream)
            self.out.send_block(stream, buffer[at:end])
            state.hold.trailers = True
            self._complete(state, state.hold)
            self._client_done(state)
            return
        if self.out.queues:
            self.take(at, end)
            self.out.send_block(stream, buffer[at:end])
        if state is not None and flags & frames.END_STREAM:
            self._client_done(state)

    def _decode(self, block: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The fields of a header block, and the decoder's table afterwards as if it had decoded all of it.

        Most blocks of most calls are indices of one byte (RFC 7541, 6.1), which change nothing in the table. They are
        looked up only as far as somebody reads on.
        """
        if block and min(block) > 0x80 and (last := max(block)) < 0xFF:
            entry = self.decoder.header_table.get_by_index
            entry(last & 0x7F)  # if this one is in the table, they all are
            return map(entry, block.translate(_INDEX))
        return iter(frames.decode_block(self.decoder, block))

    def _open(self, stream: int, flags: int, fields: Iterator[tuple[bytes, bytes]]) -> Stream:
        """A new call: note its method, and what is to be done to it; returns it."""
        path = b""
        for name, value in fields:
            if name == b":path":
                path = value
                break  # what a rule needs comes later: pseudo-headers are first (RFC 9113, 8.3)
        connection = self.connection
        entry = connection.stats.entry(path)
        entry.last_s = monotonic()
        state = connection.streams[stream] = Stream(stream, entry)
        self.out.open(stream)
        connection.to_client.open(stream)
        if len(connection.streams) > MAX_STREAMS:
            raise WireError(f"more than {MAX_STREAMS} calls are open", frames.ENHANCE_YOUR_CALM)
        if flags & frames.END_STREAM:
            state.client_done = True
        if entry.rule is None:
            entry.calls += 1
        elif connection.stats.bypass:
            entry.bypassed += 1
        else:
            entry.calls += 1
            self._apply_rule(state, entry.rule, dict(fields))
        return state

    def _apply_rule(self, state: Stream, rule: Rule, header: dict[bytes, bytes]) -> None:
        state.touched = True
        connection = self.connection
        encoding = header.get(b"grpc-encoding", b"identity").decode("latin-1")
        limit_s = timeout_s(header.get(b"grpc-timeout", b""))
        state.call = Call(state.entry.method, connection.number, state.id, encoding, limit_s)
        state.call.rule = rule
        if state.id > connection.lost_above:  # it crossed the runtime's GOAWAY, and nobody will look at it
            connection.end(state, OutcomeKind.NOT_SENT)
            return
        if rule.hold and not state.client_done:
            state.hold = Hold()
            state.sent = False
            connection.top_up(state)
        if rule.done or rule.each:
            state.request = None if state.hold else MessageReader()
            state.reader = MessageReader()
        if rule.edit:
            state.editor, state.edit_call, state.ledger = MessageReader(skip=False), state.call, Ledger(0)

    def _answer(self, state: Stream, answer: Refuse, buffer: bytes, at: int, end: int) -> None:
        """End a call that is ours: the runtime gets its headers, for the table of its decoder, and a reset."""
        self.take(at, end)
        self.out.send_block(state.id, buffer[at:end])
        state.hold = Hold()
        state.hold.complete = state.client_done
        self.connection.refuse(state, answer.code, answer.text)

    def _turn_away(self, stream: int, buffer: bytes, at: int, end: int) -> None:
        """A call after our GOAWAY: the kubelet repeats it elsewhere, so the runtime must not do it."""
        self.take(at, end)
        self.out.send_block(stream, buffer[at:end])
        self.out.send_frame(stream, frames.rst_stream(stream, frames.CANCEL))
        self.connection.remember_refused(stream)

    def _on_push(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        raise WireError("a client sent PUSH_PROMISE", frames.PROTOCOL_ERROR)

    # -- other frames ----------------------------------------------------------------------------------------------

    def _on_reset(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        connection = self.connection
        if stream in connection.refused:
            self.take(at, end)
            return
        state = connection.streams.get(stream)
        self.take(at, at)
        if state is not None:
            connection.abort(state, reset_by_client=True)
        else:  # the call may be over for the runtime, but the end of its reply may wait for the kubelet's window
            connection.drop_requests(stream)
            connection.drop_replies(stream)
        if stream in self.out.queues:
            self.take(at, end)
            self.out.send_frame(stream, buffer[at:end])

    def _on_settings(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        if not flags & frames.ACK:
            settings = frames.parse_settings(buffer[at + 9 : end])
            self.settings_seen.append(settings)
            self.replies.max_frame = max(self.replies.max_frame, settings.get(frames.SETTINGS_MAX_FRAME_SIZE, 0))
            if len(self.settings_seen) > MAX_UNACKNOWLEDGED_SETTINGS:
                raise WireError("too many SETTINGS without acknowledgement", frames.ENHANCE_YOUR_CALM)
        elif self.settings_to_apply:
            self.take(at, end)
            self.out.chunks.append(buffer[at:end])  # before any DATA that only the new sizes allow
            self.out.apply(self.settings_to_apply.pop(0))
            for state in self.connection.held():
                self.connection.top_up(state)

    def _on_window(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        """The kubelet has room for more of the replies."""
        connection, increment = self.connection, increment_of(buffer, at, end)
        ledger = connection.replies
        if not (ledger.debt or ledger.in_flight or connection.to_client.queues or self.out.queues):  # nearly always
            if stream == 0:
                ledger.receiver += increment
                ledger.sender += increment
                return
            state = connection.streams.get(stream)
            if state is not None and not state.touched:
                connection.to_client.deltas[stream] += increment
                return
        if stream:
            forward = self._on_stream_window(stream, increment)
        else:
            forward = connection.replies.granted(increment)
        if forward != increment or (stream and stream in self.out.queues):
            self.take(at, end)
            connection.give_runtime(forward, stream)
        if connection.to_client.queues:
            connection.to_client.flush_stream(stream)
        if connection.replies.in_flight:
            connection.top_up_replies()

    def _on_stream_window(self, stream: int, increment: int) -> int:
        """Book a stream's increment; returns what of it the runtime may know."""
        connection = self.connection
        deltas = connection.to_client.deltas
        if stream in deltas:
            deltas[stream] += increment
        state = connection.streams.get(stream)
        if stream in connection.refused:
            return 0
        if state is None or state.ledger is None:
            return increment
        granted = state.ledger.granted(increment)
        return 0 if state.runtime_done else granted


def _too_large(state: Stream, connection: Connection) -> str:
    return (
        f"criproxy: the request of {state.entry.method} is too large to be looked at: at most {MAX_MESSAGE_BYTES} bytes"
        f" in a message, {MAX_HELD_BYTES} on a connection ({connection.held_bytes} are held),"
        f" and {MAX_KEPT_BYTES} on all connections ({connection.stats.kept_bytes} are held or copied)"
    )
