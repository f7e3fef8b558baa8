"""A strict HTTP/2 endpoint for tests: a peer of the fuzzer that sends what a test queues, and gives windows back."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from criproxy.wire import frames
from criproxy.wire.message import encode
from lab.fuzz.peer import Fields, Half, Peer, Violation, require

Texts = Sequence[tuple[str, str]]
__all__ = ["Endpoint", "Stream", "Style", "Texts", "Violation"]


@dataclass(slots=True)
class Part:
    """Something an endpoint still has to send on a stream: DATA, or a header block if *fields* is given."""

    data: bytes = b""
    end: bool = False
    fields: Texts | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """How an endpoint writes its frames."""

    data_max: int = 16_384
    pad: int | None = None
    """Bytes of padding on every DATA and HEADERS frame; None: frames are not padded."""
    block_max: int = 0
    """Header blocks are cut into HEADERS and CONTINUATION frames of this size; 0: whole."""


class Stream(Half):
    """One stream as one endpoint sees it."""

    def __init__(self, stream: int) -> None:
        super().__init__(stream)
        self.parts: deque[Part] = deque()
        self.late_blocks: list[Fields] = []
        """Received after the end: allowed, for HPACK's sake."""
        self.unreturned = 0
        """Bytes received and not given back by WINDOW_UPDATE."""

    @property
    def over(self) -> bool:
        """Nothing more will happen here."""
        return self.got_reset or self.reset or (self.got_end and self.ended)

    @property
    def status(self) -> str:
        """The grpc-status received; empty if there is none."""
        return dict(self.blocks_got[-1]).get(b"grpc-status", b"").decode() if self.blocks_got else ""


class Endpoint(Peer):
    """The kubelet's end (*client*) or the runtime's end of a spliced connection."""

    streams: dict[int, Stream]  # type: ignore[assignment] # these are of this class alone

    def __init__(
        self, *, client: bool, settings: dict[int, int] | None = None, grants: str = "eager", style: Style | None = None
    ) -> None:
        """Say hello.

        Args:
            client: whether this is the kubelet's end.
            settings: announced at once.
            grants: when windows are given back: ``eager`` (at once), ``half`` (when half of a window is used, as
                nghttp2 and C-core do) or ``manual``.
            style: how frames are written.
        """
        super().__init__()
        self.client, self.grants, self.style = client, grants, style or Style()
        self.name = "client" if client else "runtime"
        self.unreturned = 0
        self._awaited = b"" if client else frames.PREFACE
        self._greeted = False
        self._last = -1
        if client:
            self.out.append(frames.PREFACE)
        self.announce(settings or {})

    # -- sending ---------------------------------------------------------------------------------------------------

    def take(self) -> bytes:
        """What is to be written."""
        data = b"".join(self.out)
        self.out.clear()
        return data

    def open(self, path: str, *, end: bool = False, extra: Texts = ()) -> int:
        """Start a call; returns its stream."""
        self._last += 2
        self.streams[self._last] = Stream(self._last)
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        self.block(self._last, [*fields, ("te", "trailers"), *extra], end=end)
        return self._last

    def block(self, stream: int, fields: Texts, *, end: bool = False) -> None:
        """Send one header block, cut as the style says."""
        packed = tuple((name.encode(), value.encode()) for name, value in fields)
        cuts = range(self.style.block_max, 400, self.style.block_max) if self.style.block_max else ()
        self.send_block(self.streams[stream], packed, cuts, end=end, pad=self.style.pad)

    def queue(self, stream: int, data: bytes = b"", *, end: bool = False, fields: Texts | None = None) -> None:
        """Send this on *stream* as soon as windows allow; see `push`."""
        self.streams[stream].parts.append(Part(data, end, fields))

    def queue_reply(self, stream: int, *messages: bytes, status: int = 0) -> None:
        """A whole reply; an error without messages is trailers-only."""
        first: Texts = [(":status", "200"), ("content-type", "application/grpc")]
        if messages:
            self.queue(stream, fields=first)
        for message in messages:
            self.queue(stream, encode(message))
        trailers = [("grpc-status", str(status)), ("x-stream", str(stream))]
        self.queue(stream, fields=trailers if messages else [*first, *trailers], end=True)

    def push(self, stream: int | None = None) -> None:
        """Send what the windows allow, of one stream or of all."""
        for half in [self.streams[stream]] if stream is not None else list(self.streams.values()):
            while half.parts and not half.over and self._push_part(half, half.parts[0]):
                half.parts.popleft()

    def _push_part(self, half: Stream, part: Part) -> bool:
        """Send of a part what the windows allow; whether all of it is sent."""
        if part.fields is not None:
            self.block(half.id, part.fields, end=part.end)
            return True
        half.todo, part.data = half.todo + part.data, b""
        pads = dict.fromkeys((self.style.pad, None))  # without padding, if it would not fit
        while half.todo or (part.end and not half.ended):
            if not any(self.send_data(half, self.style.data_max, pad, end=part.end) for pad in pads):
                return False
        return True

    def data(self, stream: int, payload: bytes, *, end: bool = False, pad: int | None = None) -> None:
        """One DATA frame, whatever the windows are."""
        padded = payload if pad is None else bytes((pad,)) + payload + bytes(pad)
        self.emit(frames.DATA, end * frames.END_STREAM | (pad is not None) * frames.PADDED, stream, padded)
        self.send_window -= len(padded)
        self.streams[stream].send_delta -= len(padded)
        self.streams[stream].end(end)

    def cancel(self, stream: int) -> None:
        """Give the stream up."""
        self.send_reset(self.streams[stream], frames.CANCEL)

    def give(self, stream: int, size: int) -> None:
        """Give window; stream 0 is the connection."""
        self.grant(self.streams[stream] if stream else None, size)

    def forget_closed(self) -> None:
        """Forget streams that are over."""
        self.streams = {stream: half for stream, half in self.streams.items() if not half.over}

    # -- receiving -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer.

        Raises:
            Violation: they are not what HTTP/2 allows now.
        """
        head = data[: len(self._awaited)]
        require(self._awaited.startswith(head), f"{self.name}: a wrong preface:", head)
        self._awaited = self._awaited[len(head) :]
        self.receive(data[len(head) :])
        self.read(len(self.inbox))

    def _read_one(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        require(self._greeted or kind in (frames.SETTINGS, frames.GOAWAY), f"{self.name}: first frame is of kind", kind)
        self._greeted = True
        super()._read_one(kind, flags, stream, payload)

    def _on_data(self, stream: int, flags: int, payload: bytes) -> None:
        super()._on_data(stream, flags, payload)
        half = self.streams[stream]
        self.unreturned += len(payload)
        half.unreturned += len(payload)
        if self.grants == "manual":
            return
        is_eager = self.grants == "eager"
        if self.unreturned >= (1 if is_eager else 32_768):
            self.give(0, self.unreturned)
            self.unreturned = 0
        if (
            not half.over
            and not half.got_end
            and half.unreturned >= (1 if is_eager else max(1, self.recv_initial // 2))
        ):
            self.give(stream, half.unreturned)
            half.unreturned = 0

    def on_block(self, stream: int, fields: Fields, *, end: bool) -> None:
        """A header block is whole; the first one of a stream opens it at the runtime."""
        if not self.client and stream > max(self.streams, default=0):
            self.streams[stream] = Stream(stream)
        half = self.streams[stream]
        if half.got_end or half.got_reset:
            half.late_blocks.append(fields)
            return
        half.blocks_got.append(fields)
        half.got_end |= end
