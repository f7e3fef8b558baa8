"""A kubelet connection tied to a runtime connection, sans-io.

Bytes in (`from_client`, `from_runtime`), bytes out (`take_for_runtime`, `take_for_client`), held calls out and
answers in (`take_events`, `answer`). The rules are in the two directions: `requests` and `replies`.
"""

from collections.abc import Callable

from criproxy.wire import frames
from criproxy.wire.calls import Call, Proceed, Refuse, Verdict
from criproxy.wire.message import encode
from criproxy.wire.replies import Replies
from criproxy.wire.requests import Requests
from criproxy.wire.state import Connection, Event, Stream
from criproxy.wire.stats import Stats

Feed = Callable[[bytes], None]


class Splice:
    """One connection of the kubelet and the connection to the runtime that it is tied to."""

    def __init__(self, number: int, stats: Stats) -> None:
        self.connection = Connection(number, stats)
        self._requests = Requests(self.connection)
        self._replies = Replies(self.connection, self._requests)
        self.from_client: Feed = self._open_client
        """Take bytes of the kubelet; raises WireError if it broke the protocol: the connection has to be closed."""
        self.from_runtime: Feed = self._open_runtime
        """Take bytes of the runtime; raises WireError like `from_client`."""

    def _open_client(self, data: bytes) -> None:
        """The first bytes of the kubelet: after its preface, nothing stands before the frame loop any more."""
        frames_only = self._requests.take_preface(data)
        if frames_only is not None:
            self.from_client = self._requests.feed
            self._requests.feed(frames_only)

    def _open_runtime(self, data: bytes) -> None:
        """The first bytes of the runtime, which must be its SETTINGS."""
        if not self.connection.greeted:
            self._replies.expect_settings(data)
        self._replies.feed(data)
        if self.connection.greeted:
            self.from_runtime = self._replies.feed

    def take_for_runtime(self) -> bytes:
        """What is to be written to the runtime."""
        return self.connection.to_runtime.take()

    def take_for_client(self) -> bytes:
        """What is to be written to the kubelet; nothing before the runtime's SETTINGS (RFC 9113, 3.4)."""
        return self.connection.to_client.take() if self.connection.greeted else b""

    def take_events(self) -> list[Event]:
        """What the handlers are to be told, in order; tell them after the bytes are written."""
        events, self.connection.events = self.connection.events, []
        return events

    def answer(self, call: Call, body: bytes, verdict: Verdict) -> bool:
        """Let a held call go on or end it.

        Args:
            call: as in its `Held` event.
            body: the raw body of that event.
            verdict: what is to become of it.

        Returns:
            False if the call had ended before: the verdict comes too late and changes nothing.
        """
        state = self.connection.streams.get(call.stream)
        if state is None or state.hold is None or state.call is not call:
            return False
        match verdict:
            case Refuse(code, text):
                self.connection.refuse(state, code, text)
            case Proceed(message):
                self._send_on(state, body if message is None else encode(message))
        self.connection.top_up_requests()
        return True

    def _send_on(self, state: Stream, body: bytes) -> None:
        connection = self.connection
        hold = connection.release_hold(state)
        state.sent = state.swallow_window = True
        connection.give_client(connection.requests.replaced(hold.consumed, len(body)))
        if hold.trailers:
            connection.to_runtime.put_first(state.id, body)
        else:
            connection.to_runtime.send_data(state.id, body, True)

    def go_away(self) -> None:
        """Tell the kubelet to use another connection; the calls that are open may finish here."""
        connection = self.connection
        if connection.drained_above is None:
            connection.drained_above = connection.last_stream
            connection.to_client.chunks.append(frames.goaway(connection.last_stream, frames.NO_ERROR))

    @property
    def idle(self) -> bool:
        """No call is open, and nothing waits for a window."""
        connection = self.connection
        return not (connection.streams or connection.to_client.queues or connection.to_runtime.queues)

    def fail(self, code: int, text: str, *, by_client: bool) -> None:
        """One peer broke the protocol: say so to it; both connections are closed after what was in flight."""
        connection = self.connection
        blamed = frames.goaway(connection.last_stream if by_client else 0, code, text)
        (connection.to_client if by_client else connection.to_runtime).chunks.append(blamed)
        connection.greeted = True

    def lost(self) -> None:
        """The connection is over: every open call ends, see `take_events`."""
        self.connection.lost()
