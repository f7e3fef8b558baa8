"""A strict HTTP/2 endpoint for tests: it sends what a script says and checks everything that it gets.

Framing is its own, so that a mistake in `criproxy.wire.frames` does not cancel out. An `Endpoint` is sans-io and
plays the kubelet or the runtime. It raises `Violation` for whatever RFC 9113 forbids its peer, and keeps both of its
windows, which are the oracle for the ledgers of the data plane.
"""

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import hpack

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, HAS_PRIORITY = 4, 8, 32
INITIAL_WINDOW, MAX_FRAME = 4, 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TOP = 2**31 - 1
CANCEL = 8

Fields = list[tuple[str, str]]
RawFrame = tuple[int, int, int, bytes]
"""(kind, flags, stream, payload)."""


class Violation(AssertionError):
    """The data plane sent this endpoint what HTTP/2 forbids."""


def build(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def cut_frames(buffer: bytearray) -> Iterator[RawFrame]:
    """Take every whole frame off the front of *buffer*."""
    while len(buffer) >= 9:
        word, flags, stream = struct.unpack_from(">IBI", buffer)
        size = word >> 8
        if len(buffer) < 9 + size:
            return
        payload = bytes(buffer[9 : 9 + size])
        del buffer[: 9 + size]
        yield word & 255, flags, stream, payload


def grpc(message: bytes) -> bytes:
    """A length-prefixed message."""
    return struct.pack(">BI", 0, len(message)) + message


@dataclass(slots=True)
class Part:
    """Something an endpoint still has to send on a stream: DATA, or a header block if *fields* is given."""

    data: bytes = b""
    end: bool = False
    fields: Fields | None = None


@dataclass(slots=True)
class Half:
    """One stream as one endpoint sees it."""

    id: int
    send_window: int
    recv_window: int
    todo: deque[Part] = field(default_factory=deque)
    blocks: list[Fields] = field(default_factory=list)
    """Header lists received."""
    late_blocks: list[Fields] = field(default_factory=list)
    """Header lists received after the end: allowed, for HPACK's sake."""
    body: bytearray = field(default_factory=bytearray)
    unreturned: int = 0
    """Bytes received and not given back by WINDOW_UPDATE."""
    ended: bool = False
    """The peer has sent END_STREAM."""
    reset: int | None = None
    """Code of the RST_STREAM received."""
    sent_end: bool = False
    sent_reset: bool = False

    @property
    def over(self) -> bool:
        """Nothing more will happen here."""
        return self.reset is not None or self.sent_reset or (self.ended and self.sent_end)

    @property
    def status(self) -> str:
        """The grpc-status received; empty if there is none."""
        return dict(self.blocks[-1]).get("grpc-status", "") if self.blocks else ""


@dataclass(slots=True)
class Style:
    """How an endpoint writes its frames."""

    data_max: int = 16_384
    pad: int = 0
    """Bytes of padding on every DATA and HEADERS frame; 0 is no padding at all."""
    block_max: int = 0
    """Header blocks are cut into HEADERS and CONTINUATION frames of this size; 0: whole."""
    priority: bool = False
    huffman: bool = True
    """Whether texts in header blocks are packed."""


class Endpoint:
    """The kubelet's end (*client*) or the runtime's end of a spliced connection."""

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
        self.client = client
        self.grants = grants
        self.style = style or Style()
        self.out = bytearray(PREFACE if client else b"")
        self.streams: dict[int, Half] = {}
        self.log: list[RawFrame] = []
        self.goaway: tuple[int, int, bytes] | None = None
        self.send_window = self.recv_window = 65_535
        self.unreturned = 0
        self.peer_initial, self.peer_max_frame = 65_535, 16_384
        self.own_initial = 65_535
        self.own_max_frame = 16_384
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self._unacked: deque[dict[int, int]] = deque()
        self._buffer = bytearray()
        self._preface = b"" if client else PREFACE
        self._greeted = False
        self._block: tuple[int, int, bytearray] | None = None
        self._last = -1 if client else 0
        self._highest_seen = 0
        self.send_settings(settings or {})

    # -- sending ---------------------------------------------------------------------------------------------------

    def take(self) -> bytes:
        """What is to be written."""
        data = bytes(self.out)
        self.out.clear()
        return data

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        """Any frame at all, right or wrong."""
        self.out += build(kind, flags, stream, payload)

    def send_settings(self, values: dict[int, int]) -> None:
        """Announce; what is announced holds for the peer from its acknowledgement on."""
        self._unacked.append(values)
        self.own_max_frame = max(self.own_max_frame, values.get(MAX_FRAME, 0))
        self.send(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *item) for item in values.items()))

    def open(self, path: str, *, end: bool = False, extra: Fields | None = None) -> int:
        """Start a call; returns its stream."""
        self._last += 2
        self.streams[self._last] = Half(self._last, self.peer_initial, self.own_initial)
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        self.send_block(self._last, [*fields, ("te", "trailers"), *(extra or [])], end=end)
        return self._last

    def send_block(self, stream: int, fields: Fields, *, end: bool = False) -> None:
        """One header block, cut as the style says."""
        block = self.encoder.encode(fields, huffman=self.style.huffman)
        flags, head, tail = (END_STREAM if end else 0), b"", b""
        if self.style.priority:
            flags, head = flags | HAS_PRIORITY, b"\x00\x00\x00\x00\x10"
        if self.style.pad:
            flags, head, tail = flags | PADDED, bytes((self.style.pad,)) + head, bytes(self.style.pad)
        size = self.style.block_max or 16_000
        pieces = [block[at : at + size] for at in range(0, len(block), size)]
        self.send(HEADERS, flags | (0 if pieces[1:] else END_HEADERS), stream, head + pieces[0] + tail)
        for left, piece in zip(range(len(pieces) - 2, -1, -1), pieces[1:], strict=True):
            self.send(CONTINUATION, 0 if left else END_HEADERS, stream, piece)
        if end and stream in self.streams:
            self.streams[stream].sent_end = True

    def queue(self, stream: int, data: bytes = b"", *, end: bool = False, fields: Fields | None = None) -> None:
        """Send this on *stream* as soon as windows allow; see `push`."""
        self.streams[stream].todo.append(Part(data, end, fields))

    def queue_reply(self, stream: int, *messages: bytes, status: int = 0) -> None:
        """A whole reply; an error without messages is trailers-only."""
        if messages:
            self.queue(stream, fields=[(":status", "200"), ("content-type", "application/grpc")])
        for message in messages:
            self.queue(stream, grpc(message))
        first = [] if messages else [(":status", "200"), ("content-type", "application/grpc")]
        trailers = [*first, ("grpc-status", str(status)), ("x-stream", str(stream))]
        self.queue(stream, fields=trailers, end=True)

    def push(self, stream: int | None = None) -> bool:
        """Send what the windows allow, of one stream or of all; whether anything went out."""
        before = len(self.out)
        for half in [self.streams[stream]] if stream is not None else list(self.streams.values()):
            while half.todo and not half.over and self._push_part(half):
                pass
            if half.over:
                half.todo.clear()
        return len(self.out) > before

    def _push_part(self, half: Half) -> bool:
        part = half.todo[0]
        if part.fields is not None:
            self.send_block(half.id, part.fields, end=part.end)
            half.todo.popleft()
            return True
        pad = self.style.pad + 1 if self.style.pad else 0
        room = min(self.send_window, half.send_window, self.style.data_max, self.peer_max_frame) - pad
        if room <= 0 and part.data and pad:
            pad, room = 0, min(self.send_window, half.send_window, 1)
        if part.data and room <= 0:
            return False
        if not part.data and pad > min(self.send_window, half.send_window):
            pad = 0
        piece, part.data = part.data[: max(room, 0)], part.data[max(room, 0) :]
        self.data(half.id, piece, end=part.end and not part.data, pad=pad - 1 if pad else None)
        if not part.data:
            half.todo.popleft()
        return True

    def data(self, stream: int, payload: bytes, *, end: bool = False, pad: int | None = None) -> None:
        """One DATA frame, whatever the windows are."""
        flags = (END_STREAM if end else 0) | (0 if pad is None else PADDED)
        if pad is not None:
            payload = bytes((pad,)) + payload + bytes(pad)
        self.send(DATA, flags, stream, payload)
        self.send_window -= len(payload)
        if stream in self.streams:
            self.streams[stream].send_window -= len(payload)
            self.streams[stream].sent_end |= end

    def reset(self, stream: int, code: int = CANCEL) -> None:
        """Give the stream up."""
        self.send(RST, 0, stream, struct.pack(">I", code))
        if stream in self.streams:
            self.streams[stream].sent_reset = True
            self.streams[stream].todo.clear()

    def grant(self, stream: int, size: int) -> None:
        """Give window; stream 0 is the connection."""
        self.send(WINDOW, 0, stream, struct.pack(">I", size))
        if not stream:
            self.recv_window += size
        elif stream in self.streams:
            self.streams[stream].recv_window += size

    def go_away(self, last: int, code: int = 0) -> None:
        """Announce the end."""
        self.send(GOAWAY, 0, 0, struct.pack(">II", last, code))

    def forget_closed(self) -> None:
        """Forget streams that are over, and the log."""
        self.log.clear()
        for stream in [stream for stream, half in self.streams.items() if half.over]:
            del self.streams[stream]

    # -- receiving -------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer.

        Raises:
            Violation: they are not what HTTP/2 allows now.
        """
        self._buffer += data
        if self._preface:
            head = bytes(self._buffer[: len(self._preface)])
            self._require(self._preface.startswith(head), f"preface {head!r}")
            self._preface = self._preface[len(head) :]
            del self._buffer[: len(head)]
            if self._preface:
                return
        for frame in cut_frames(self._buffer):
            self._frame(*frame)

    def _require(self, ok: bool, what: str) -> None:
        if not ok:
            raise Violation(f"{'client' if self.client else 'runtime'}: {what}")

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.log.append((kind, flags, stream, payload))
        self._require(self._greeted or kind in (SETTINGS, GOAWAY), f"first frame is of kind {kind}")
        self._require(len(payload) <= self.own_max_frame, f"frame of {len(payload)} bytes")
        if self._block is not None:
            self._require(kind == CONTINUATION and stream == self._block[0], f"kind {kind} within a header block")
        if stream and kind not in (PRIORITY, HEADERS, CONTINUATION) and kind <= CONTINUATION:
            highest = self._last if self.client else self._highest_seen
            self._require(stream <= highest, f"frame of kind {kind} on idle stream {stream}")
        match kind:
            case 0:
                self._on_data(flags, stream, payload)
            case 1 | 9:
                self._on_block(kind, flags, stream, payload)
            case 3:
                self._on_reset(stream, payload)
            case 4:
                self._on_settings(flags, payload)
            case 6 if not flags & ACK:
                self.send(PING, ACK, 0, payload)
            case 7:
                last, code = struct.unpack_from(">II", payload)
                self.goaway = last, code, payload[8:]
            case 8:
                self._on_window(stream, payload)

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        self.recv_window -= len(payload)
        self._require(self.recv_window >= 0, f"connection window exceeded by {-self.recv_window}")
        self.unreturned += len(payload)
        half = self.streams.get(stream)
        if half is not None:
            half.recv_window -= len(payload)
            self._require(
                half.recv_window >= 0 or not payload or half.sent_reset,
                f"window of stream {stream} exceeded by {-half.recv_window}",
            )
            self._require(half.sent_reset or not half.ended, f"DATA on ended stream {stream}")
            self._require(half.sent_reset or half.reset is None, f"DATA on reset stream {stream}")
            self._require(bool(half.blocks) or half.sent_reset, f"DATA before HEADERS on stream {stream}")
            if not half.sent_reset:
                half.body += payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
            half.unreturned += len(payload)
            half.ended |= bool(flags & END_STREAM)
        self._give_back(half)

    def _give_back(self, half: Half | None) -> None:
        if self.grants == "manual":
            return
        limit = 1 if self.grants == "eager" else 32_768
        if self.unreturned >= limit:
            self.grant(0, self.unreturned)
            self.unreturned = 0
        limit = 1 if self.grants == "eager" else max(1, self.own_initial // 2)
        if half and not half.over and not half.ended and half.unreturned >= limit:
            self.grant(half.id, half.unreturned)
            half.unreturned = 0

    def _on_block(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == HEADERS:
            if flags & PADDED:
                payload = payload[1 : len(payload) - payload[0]]
            self._block = stream, flags, bytearray(payload[5:] if flags & HAS_PRIORITY else payload)
        else:
            self._require(self._block is not None, "CONTINUATION without HEADERS")
            assert self._block is not None
            self._block[2].extend(payload)
        if flags & END_HEADERS:
            stream, first_flags, block = self._block
            self._block = None
            self._on_fields(stream, bool(first_flags & END_STREAM), bytes(block))

    def _on_fields(self, stream: int, end: bool, block: bytes) -> None:
        try:
            fields = [(str(name), str(value)) for name, value in self.decoder.decode(block)]
        except hpack.exceptions.HPACKError as error:
            raise Violation(f"a header block on stream {stream} cannot be decoded: {error!r}") from error
        half = self.streams.get(stream)
        if half is None and not self.client and stream > self._highest_seen:
            half = self.streams[stream] = Half(stream, self.peer_initial, self.own_initial)
            self._highest_seen = stream
        self._require(not self.client or stream <= self._last, f"HEADERS on idle stream {stream}")
        if half is None:
            return
        if half.ended or half.reset is not None:
            half.late_blocks.append(fields)
            return
        half.blocks.append(fields)
        half.ended |= end

    def _on_reset(self, stream: int, payload: bytes) -> None:
        half = self.streams.get(stream)
        if half is not None:
            half.reset = struct.unpack(">I", payload)[0]
            half.todo.clear()

    def _on_settings(self, flags: int, payload: bytes) -> None:
        self._greeted = True
        if flags & ACK:
            self._require(bool(self._unacked), "SETTINGS acknowledged that were never sent")
            self._acked(self._unacked.popleft())
            return
        values = dict(struct.iter_unpack(">HI", payload))
        initial = values.get(INITIAL_WINDOW, self.peer_initial)
        for half in self.streams.values():
            half.send_window += initial - self.peer_initial
            self._require(half.send_window <= TOP or half.over, f"window of stream {half.id} overflows")
        self.peer_initial = initial
        self.peer_max_frame = values.get(MAX_FRAME, self.peer_max_frame)
        self.send(SETTINGS, ACK, 0)

    def _acked(self, values: dict[int, int]) -> None:
        initial = values.get(INITIAL_WINDOW, self.own_initial)
        for half in self.streams.values():
            half.recv_window += initial - self.own_initial
        self.own_initial = initial
        if MAX_FRAME in values:
            self.own_max_frame = max([values[MAX_FRAME], *(later.get(MAX_FRAME, 0) for later in self._unacked)])

    def _on_window(self, stream: int, payload: bytes) -> None:
        (size,) = struct.unpack(">I", payload)
        self._require(size > 0, f"zero increment on stream {stream}")
        if not stream:
            self.send_window += size
            self._require(self.send_window <= TOP, "connection window overflows")
        elif half := self.streams.get(stream):
            half.send_window += size
            self._require(half.send_window <= TOP or half.over, f"window of stream {stream} overflows")
