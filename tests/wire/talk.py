"""A conversation with a `Splice` in memory: what each peer sends, and what reaches the other, frame by frame."""

import hpack

from criproxy.wire import frames
from criproxy.wire.calls import Outcome, Rule, Verdict
from criproxy.wire.message import encode
from criproxy.wire.splice import Splice
from criproxy.wire.state import Ended, Event, Held
from criproxy.wire.stats import Stats

HOLD, WATCH, EDIT, PASS = "/test/Hold", "/test/Watch", "/test/Edit", "/test/Pass"


async def never_called(call: object, message: bytes) -> Verdict:
    """A handler of held calls: what they are told is read from the events."""
    raise AssertionError("a splice calls no hold handler itself")


def ignore(call: object, what: object) -> None:
    """A handler that only makes the method a watched one."""


TABLE = {
    HOLD: Rule(hold=never_called, done=ignore),
    WATCH: Rule(done=ignore),
    EDIT: Rule(edit=lambda call, message: b"edited " + message if message != b"same" else None, done=ignore),
}

Frame = tuple[str, int, int, bytes]
"""(kind, flags, stream, payload)."""

NAMES = "DATA HEADERS PRIORITY RST_STREAM SETTINGS PUSH_PROMISE PING GOAWAY WINDOW_UPDATE CONTINUATION".split()


def split(raw: bytes) -> list[Frame]:
    """The frames in *raw*, which must be whole ones."""
    found = []
    while raw:
        end = 9 + int.from_bytes(raw[:3], "big")
        assert len(raw) >= end, "a frame is cut"
        found.append((NAMES[raw[3]], raw[4], int.from_bytes(raw[5:9], "big"), raw[9:end]))
        raw = raw[end:]
    return found


def kinds(sent: list[Frame]) -> list[tuple[str, int]]:
    """Kind and stream of each frame."""
    return [(kind, stream) for kind, _, stream, _ in sent]


def settings(**values: int) -> bytes:
    """A SETTINGS frame: ``settings(initial_window_size=0)``."""
    numbers = {"header_table_size": 1, "initial_window_size": 4, "max_frame_size": 5}
    entries = [numbers[name].to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items()]
    return frames.frame(frames.SETTINGS, 0, 0, b"".join(entries))


SETTINGS_ACK = frames.frame(frames.SETTINGS, frames.ACK, 0)


class Talk:
    """Both peers of one splice, with HPACK state at all four ends."""

    def __init__(self, table: dict[str, Rule] | None = None) -> None:
        self.stats = Stats(TABLE if table is None else table)
        self.splice = Splice(1, self.stats)
        self.client_encoder, self.runtime_encoder = hpack.Encoder(), hpack.Encoder()
        self.client_decoder, self.runtime_decoder = hpack.Decoder(), hpack.Decoder()
        assert self.client(frames.PREFACE + settings()) == [("SETTINGS", 0, 0, b"")]
        assert self.runtime(settings()) == [("SETTINGS", 0, 0, b"")]

    def client(self, raw: bytes) -> list[Frame]:
        """The kubelet sends *raw*; what the runtime gets (the preface left out)."""
        self.splice.from_client(raw)
        return self.at_runtime()

    def runtime(self, raw: bytes) -> list[Frame]:
        """The runtime sends *raw*; what the kubelet gets."""
        self.splice.from_runtime(raw)
        return self.at_client()

    def at_runtime(self) -> list[Frame]:
        """What reached the runtime since the last time."""
        return split(self.splice.take_for_runtime().removeprefix(frames.PREFACE))

    def at_client(self) -> list[Frame]:
        """What reached the kubelet since the last time."""
        return split(self.splice.take_for_client())

    def events(self) -> list[Event]:
        """What the handlers are told."""
        return self.splice.take_events()

    def outcomes(self) -> list[Outcome]:
        """The outcomes among the events."""
        return [event.outcome for event in self.events() if isinstance(event, Ended)]

    def held(self) -> Held:
        """The only event: a call that is held."""
        (event,) = self.events()
        assert isinstance(event, Held)
        return event

    def call(self, stream: int, path: str, *, end: bool = False, extra: dict[str, str] | None = None) -> bytes:
        """The HEADERS of a new call."""
        fields = {":method": "POST", ":scheme": "http", ":path": path, **(extra or {})}
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        return frames.frame(frames.HEADERS, flags, stream, self.client_encoder.encode(list(fields.items())))

    def reply(self, stream: int, message: bytes = b"reply") -> bytes:
        """A whole successful reply."""
        return self.reply_headers(stream) + data(stream, message) + self.trailers(stream)

    def reply_headers(self, stream: int) -> bytes:
        """The header block that begins a reply."""
        block = self.runtime_encoder.encode([(":status", "200"), ("content-type", "application/grpc")])
        return frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block)

    def trailers(self, stream: int, status: int = 0) -> bytes:
        """The header block that ends a reply."""
        block = self.runtime_encoder.encode([("grpc-status", str(status)), ("x-stream", str(stream))])
        return frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block)

    def hold(self, stream: int, message: bytes = b"message") -> Held:
        """Begin a held call and send its message; its `Held` event."""
        sent = self.client(self.call(stream, HOLD) + data(stream, message, end=True))
        assert kinds(sent) == [("HEADERS", stream)]
        return self.held()

    def watch(self, stream: int, path: str = WATCH, extra: dict[str, str] | None = None) -> None:
        """Send a whole call that is not held."""
        self.client(self.call(stream, path, extra=extra) + data(stream, b"request", end=True))

    def answer(self, held: Held, verdict: Verdict) -> list[Frame]:
        """Answer a held call; what the runtime gets."""
        assert self.splice.answer(held.call, held.body, verdict)
        return self.at_runtime()

    def decoded(self, sent: list[Frame], decoder: hpack.Decoder) -> list[dict[str, str]]:
        """The header lists in *sent*, decoded in order as the far end does."""
        blocks = [payload for kind, _, _, payload in sent if kind == "HEADERS"]
        return [{str(name): str(value) for name, value in decoder.decode(block)} for block in blocks]

    def check_windows(self) -> None:
        """The ledgers balance, and at rest nothing is in flight."""
        connection = self.splice.connection
        for ledger in (connection.requests, connection.replies):
            assert (ledger.sender + ledger.in_flight, ledger.in_flight) == (ledger.receiver + ledger.debt, 0)
        assert connection.held_bytes == 0


def data(stream: int, message: bytes, *, end: bool = False) -> bytes:
    """A DATA frame with one whole gRPC message."""
    return frames.frame(frames.DATA, frames.END_STREAM if end else 0, stream, encode(message))
