"""From the runtime to the kubelet: what a call came to, and replies that are edited on their way."""

from criproxy.errors import WireError
from criproxy.wire import frames
from criproxy.wire.calls import OutcomeKind
from criproxy.wire.flow import MAX_QUEUED_BYTES
from criproxy.wire.frame_forwarding import FrameLoop, increment_of
from criproxy.wire.message import MAX_MESSAGE_BYTES, MessageError, MessageReader, decompress, encode
from criproxy.wire.requests import MAX_UNACKNOWLEDGED_SETTINGS, Requests
from criproxy.wire.state import Connection, Replied, Stream, Unreadable, step_for


class Replies(FrameLoop):
    """Frames from the runtime. Nothing is decoded but the messages of watched and edited calls."""

    def __init__(self, connection: Connection, requests: Requests) -> None:
        super().__init__(connection.to_client)
        self.connection = connection
        self._requests = requests
        requests.replies = self
        self.handlers[frames.DATA] = self._on_data
        self.handlers[frames.HEADERS] = self._on_headers
        self.handlers[frames.PUSH_PROMISE] = self._on_push
        self.handlers[frames.RST_STREAM] = self._on_reset
        self.handlers[frames.SETTINGS] = self._on_settings
        self.handlers[frames.GOAWAY] = self._on_goaway
        self.handlers[frames.WINDOW_UPDATE] = self._on_window

    def expect_settings(self, data: bytes) -> None:
        """See whether *data*, the first bytes of the runtime, may begin its SETTINGS frame.

        Raises:
            WireError: they begin anything else.
        """
        head = (self._rest + data)[:4]
        if len(head) == 4 and head[3] != frames.SETTINGS:
            raise WireError("the runtime does not speak HTTP/2 (its first frame is not SETTINGS)")

    # -- DATA ------------------------------------------------------------------------------------------------------

    def _on_data(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        out, size = self.out, end - at - 9
        ledger = out.ledger
        state = self.connection.streams.get(stream)
        if state is None:
            self._on_stray_data(stream, size, at, end)
            return
        if state.touched or flags or ledger.debt or ledger.in_flight or out.queues:
            self._on_unusual_data(state, flags, buffer, at, end)
        else:  # nearly always; written out, because a long list is many frames
            ledger.sender -= size
            ledger.receiver -= size
            out.deltas[stream] -= size

    def _on_unusual_data(self, state: Stream, flags: int, buffer: bytes, at: int, end: int) -> None:
        """DATA of a call that has a rule or ends with it, or of any while a window is not as its sender sees it."""
        stream, size = state.id, end - at - 9
        if flags & frames.END_STREAM:
            self.take(at, at)
            self._end_request(state)
        if state.reader:
            self._copy(state, state.reader, frames.unpad(flags, buffer[at + 9 : end]))
        if state.editor:
            self.take(at, end)
            self._edit(state, state.editor, size, frames.unpad(flags, buffer[at + 9 : end]))
        else:
            self._pass(state, flags, buffer, at, end)
        if flags & frames.END_STREAM:
            if state.editor:
                self._flush_editor(state)
                self.out.send_data(stream, b"", True)
            self._runtime_done(state)

    def _pass(self, state: Stream, flags: int, buffer: bytes, at: int, end: int) -> None:
        """Forward DATA as it is if the kubelet has room for it, else let it wait."""
        out, stream, size = self.out, state.id, end - at - 9
        if (out.ledger.debt or out.queues or state.ledger) and not out.fits(stream, size):
            self.take(at, end)
            payload = frames.unpad(flags, buffer[at + 9 : end])
            self._received(state, size)
            self._return(state, size, len(payload))
            out.send_data(stream, payload, bool(flags & frames.END_STREAM))
        else:
            out.ledger.passed(size)
            if stream in out.deltas:
                out.deltas[stream] -= size
            if state.ledger:
                state.ledger.passed(size)
        if out.ledger.in_flight:
            self.connection.top_up_replies()

    def _on_stray_data(self, stream: int, size: int, at: int, end: int) -> None:
        """DATA of a stream that is over for the kubelet."""
        ledger = self.out.ledger
        if stream in self.connection.refused or ledger.debt or self.out.queues:
            self.take(at, end)
            ledger.received(size)
            self.connection.give_runtime(ledger.replaced(size, 0))
        else:
            ledger.passed(size)

    def _copy(self, state: Stream, reader: MessageReader, payload: bytes) -> None:
        """Show the handlers the reply messages as they pass."""
        each = state.entry.rule is not None and state.entry.rule.each is not None
        for raw in self.connection.copy(reader, payload):
            first, state.replied = not state.replied, True
            if state.call is None or not (first or each):
                continue
            try:
                message = decompress(raw[0], raw[5:], None)
            except MessageError as error:
                self.connection.events.append(Unreadable(state.call, error))
                continue
            if first:
                state.reply = message
            if each:
                self.connection.events.append(Replied(state.call, message))
        state.replied |= bool(reader.oversized)

    # -- edited replies --------------------------------------------------------------------------------------------

    def _edit(self, state: Stream, editor: MessageReader, size: int, payload: bytes) -> None:
        """Collect an edited call's DATA; each message that is whole goes on in its new form."""
        self._received(state, size)
        self._return(state, size - len(payload), 0)
        for raw in editor.feed(payload):
            self._send(state, len(raw), self._edited(state, raw))
        if editor.announced_bytes > MAX_MESSAGE_BYTES + 5:
            self._flush_editor(state)
            state.editor = None
        elif editor.waiting_bytes:
            self._top_up(state)
        if self.out.ledger.in_flight > MAX_QUEUED_BYTES:
            raise WireError(
                f"more than {MAX_QUEUED_BYTES} bytes of replies wait to be edited", frames.ENHANCE_YOUR_CALM
            )

    def _edited(self, state: Stream, raw: bytes) -> bytes:
        """The message as it goes on; unchanged if it cannot be read or edited."""
        rule, call = state.entry.rule, state.edit_call
        assert rule is not None
        assert rule.edit is not None
        assert call is not None
        try:
            new = rule.edit(call, decompress(raw[0], raw[5:], None))
        except Exception as error:  # noqa: BLE001 - a handler's fault must not cost the kubelet its reply
            self.connection.events.append(Unreadable(call, error))
            return raw
        return raw if new is None else encode(new)

    def _send(self, state: Stream, old: int, message: bytes) -> None:
        self._return(state, old, len(message))
        self.out.send_data(state.id, message, False)

    def _received(self, state: Stream, size: int) -> None:
        self.out.ledger.received(size)
        if state.ledger:
            state.ledger.received(size)

    def _return(self, state: Stream, old: int, new: int) -> None:
        """*old* received bytes go on as *new* bytes: settle both windows with the runtime."""
        self.connection.give_runtime(self.out.ledger.replaced(old, new))
        back = state.ledger.replaced(old, new) if state.ledger else max(0, old - new)
        if not state.runtime_done:
            self.connection.give_runtime(back, state.id)

    def _top_up(self, state: Stream) -> None:
        """A reply that is collected must not be stopped by the kubelet's window: lend the runtime some."""
        assert state.ledger is not None
        step = step_for(self.out.initial_window + state.ledger.sender)
        self.connection.give_runtime(state.ledger.advance(step), state.id)
        self.connection.top_up_replies()

    def _flush_editor(self, state: Stream) -> None:
        if state.editor and (rest := state.editor.take_rest()):
            self._send(state, len(rest), rest)

    # -- HEADERS and ends ------------------------------------------------------------------------------------------

    def _on_headers(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        connection = self.connection
        state = connection.streams.get(stream)
        if state is not None:
            state.started = True
            if flags & frames.END_STREAM and (state.hold or state.editor or connection.to_runtime.queues):
                self.take(at, at)
                self._end_request(state)
                self._flush_editor(state)
        elif flags & frames.END_STREAM:
            connection.refused.pop(stream, None)
        if self.out.queues:
            self.take(at, end)
            self.out.send_block(stream, buffer[at:end])
        if state is not None and flags & frames.END_STREAM:
            if state.touched or not state.client_done or self.out.queues or connection.to_runtime.queues:
                self._runtime_done(state)
            else:  # nearly always: nobody waits for the outcome, and nothing waits to be sent
                del connection.streams[stream], self.out.deltas[stream], connection.to_runtime.deltas[stream]

    def _end_request(self, state: Stream) -> None:
        """The runtime has ended the call: what we keep of the request is dropped, and its stream closed there, too."""
        connection, hold = self.connection, state.hold
        if hold:
            connection.drop_hold(state)
            ends = hold.trailers
        elif state.client_done and state.id in connection.to_runtime.queues:
            connection.drop_requests(state.id)
            ends = state.id in connection.to_runtime.queues
        else:
            return
        if not ends:  # the kubelet has sent its END_STREAM, or will and we swallow it
            connection.to_runtime.send_frame(state.id, frames.rst_stream(state.id, frames.CANCEL))

    def _runtime_done(self, state: Stream) -> None:
        """The runtime has ended its side: the call has an outcome."""
        state.runtime_done = True
        if state.replied:
            kind = OutcomeKind.OK
        else:
            kind = OutcomeKind.FAILED if state.sent else OutcomeKind.NOT_SENT
        self.connection.end(state, kind)
        if state.client_done:
            self.connection.close(state)

    def _on_push(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        """Nobody pushes in gRPC; if somebody does, the header block keeps its place in the order."""
        if self.out.queues:
            self.take(at, end)
            self.out.send_block(stream, buffer[at:end])

    def _on_reset(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        connection = self.connection
        if stream in connection.refused:
            del connection.refused[stream]
            self.take(at, end)
            return
        state = connection.streams.get(stream)
        if state is not None:
            self.take(at, at)
            self._flush_editor(state)
            connection.abort(state, reset_by_client=False)
        else:  # the call may be over, but not its request
            connection.drop_requests(stream)
        if stream in self.out.queues:
            self.take(at, end)
            self.out.send_frame(stream, buffer[at:end])

    # -- other frames ----------------------------------------------------------------------------------------------

    def _on_settings(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        requests = self._requests
        if not flags & frames.ACK:
            settings = frames.parse_settings(buffer[at + 9 : end])
            requests.settings_to_apply.append(settings)
            requests.max_frame = max(requests.max_frame, settings.get(frames.SETTINGS_MAX_FRAME_SIZE, 0))
            table = settings.get(frames.SETTINGS_HEADER_TABLE_SIZE, 0)
            requests.decoder.max_allowed_table_size = max(requests.decoder.max_allowed_table_size, table)
            if len(requests.settings_to_apply) > MAX_UNACKNOWLEDGED_SETTINGS:
                raise WireError("too many SETTINGS without acknowledgement", frames.ENHANCE_YOUR_CALM)
            if not self.connection.greeted:
                self.connection.greeted = True
                self.take(at, end)
                self.out.chunks.insert(0, buffer[at:end])
        elif requests.settings_seen:
            self.take(at, end)
            self.out.chunks.append(buffer[at:end])
            self.out.apply(requests.settings_seen.pop(0))
            for state in self.connection.streams.values():
                if state.editor and state.editor.waiting_bytes and not state.runtime_done:
                    self._top_up(state)

    def _on_goaway(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        """The runtime goes: what it has not looked at is not sent, the kubelet repeats it elsewhere."""
        connection = self.connection
        connection.runtime_goes = True
        connection.lost_above = min(connection.lost_above, frames.parse_u31(buffer[at + 9 : end], "GOAWAY"))
        for state in list(connection.streams.values()):
            if state.id > connection.lost_above:
                if state.hold:
                    connection.drop_hold(state)
                connection.end(state, OutcomeKind.NOT_SENT)

    def _on_window(self, stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        """The runtime has room for more of the requests."""
        connection, increment = self.connection, increment_of(buffer, at, end)
        ledger = connection.requests
        if not (stream or ledger.debt or ledger.in_flight or connection.to_runtime.queues):  # nearly always
            ledger.receiver += increment
            ledger.sender += increment
            return
        if stream:
            forward = self._on_stream_window(stream, increment)
        else:
            forward = connection.requests.granted(increment)
        if forward != increment:
            self.take(at, end)
            connection.give_client(forward, stream)
        if connection.to_runtime.queues:
            connection.to_runtime.flush_stream(stream)
        if connection.requests.in_flight:
            connection.top_up_requests()

    def _on_stream_window(self, stream: int, increment: int) -> int:
        """Book a stream's increment; returns what of it the kubelet may know."""
        connection = self.connection
        deltas = connection.to_runtime.deltas
        if stream in deltas:
            deltas[stream] += increment
        state = connection.streams.get(stream)
        if stream in connection.refused or (state is not None and state.swallow_window):
            return 0
        if state is not None and state.hold:
            state.hold.window += increment
        return increment
