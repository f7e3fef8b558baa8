"""A peer that obeys HTTP/2: what it may send, and a check of everything that it gets.

Its view of each stream and window is a model of its own, made from the frames that it sent and read.
"""

from collections import deque
from collections.abc import Iterable

from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError

from criproxy.wire import frames

Fields = tuple[tuple[bytes, bytes], ...]


class Violation(Exception):
    """The data plane did what it must not do."""


def require(fact: bool, what: str, *values: object) -> None:
    """Complain unless *fact*."""
    if not fact:
        raise Violation(" ".join((what, *map(repr, values))))


def is_refusal(block: Fields) -> bool:
    """Whether it is the status of a call that criproxy refused."""
    return any(name == b"grpc-message" and value.startswith(b"refused") for name, value in block)


class Half:
    """One stream as one peer sees it."""

    def __init__(self, stream: int) -> None:
        self.id = stream
        self.todo = bytearray()
        """Bytes of messages that are begun and not sent yet."""
        self.sent = bytearray()
        self.got = bytearray()
        self.blocks_sent: list[Fields] = []
        self.blocks_got: list[Fields] = []
        self.send_delta = 0
        self.recv_delta = 0
        self.ended = False
        """This peer has sent END_STREAM."""
        self.early = False
        """It did so before it had all from the other side: it does not care what else comes."""
        self.got_end = False
        self.reset = False
        """This peer has sent RST_STREAM."""
        self.got_reset = False
        self.dead = False
        """Given up because of a GOAWAY."""

    def end(self, now: bool) -> None:
        """This peer sends END_STREAM *now*, or goes on."""
        self.ended |= now
        self.early |= now and not self.got_end

    @property
    def may_send(self) -> bool:
        """DATA and trailers of this peer are still allowed."""
        return not (self.ended or self.reset or self.got_reset or self.dead)


class Peer:
    """State that the client and the runtime have in common."""

    name = "peer"

    def __init__(self) -> None:
        self.encoder = Encoder()
        self.decoder = Decoder(1 << 22)
        self.streams: dict[int, Half] = {}
        self.out: deque[bytes] = deque()
        """Units (a frame, or a whole header block) that are not delivered yet."""
        self.inbox: deque[tuple[int, int, int, bytes]] = deque()
        self.send_window = self.recv_window = frames.DEFAULT_WINDOW
        self.send_initial = self.recv_initial = frames.DEFAULT_WINDOW
        self.send_max = self.recv_max = frames.DEFAULT_MAX_FRAME
        self.announced: deque[dict[int, int]] = deque()
        """Settings that are not acknowledged yet."""
        self.goaway: int | None = None
        """The last stream of a GOAWAY that was read."""
        self.pings: deque[bytes] = deque()
        self._rest = b""
        self._block: tuple[int, int, bytes] | None = None

    # -- sending ---------------------------------------------------------------------------------------------------

    def emit(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        """Queue one frame."""
        self.out.append(frames.frame(kind, flags, stream, payload))

    def send_data(self, half: Half, size: int, pad: int | None, *, end: bool) -> bool:
        """Send up to *size* bytes of what is to do, with *pad* bytes of padding; False if nothing could be sent."""
        overhead = 0 if pad is None else pad + 1
        room = min(self.send_window, self.send_initial + half.send_delta, self.send_max) - overhead
        size = min(size, len(half.todo), max(room, 0))
        end = end and size == len(half.todo)
        if (room < 0 and overhead) or not (size or end or overhead):
            return False
        body = bytes(half.todo[:size])
        del half.todo[:size]
        half.sent += body
        half.end(end)
        self.send_window -= size + overhead
        half.send_delta -= size + overhead
        padded = body if pad is None else bytes((pad,)) + body + bytes(pad)
        self.emit(frames.DATA, end * frames.END_STREAM + (pad is not None) * frames.PADDED, half.id, padded)
        return True

    def send_block(self, half: Half, fields: Fields, cuts: Iterable[int], *, end: bool, pad: int | None = None) -> None:
        """Send a header block, its HPACK bytes cut at *cuts* into HEADERS and CONTINUATION frames."""
        block = self.encoder.encode(fields, huffman=half.id % 8 == 1)
        points = sorted({at % (len(block) + 1) for at in cuts})
        pieces = [block[a:b] for a, b in zip([0, *points], [*points, len(block)], strict=True)]
        flags = end * frames.END_STREAM + (pad is not None) * frames.PADDED
        first = pieces[0] if pad is None else bytes((pad,)) + pieces[0] + bytes(pad)
        whole = not pieces[1:]
        unit = frames.frame(frames.HEADERS, flags | whole * frames.END_HEADERS, half.id, first)
        for number, piece in enumerate(pieces[1:], 2):
            last = number == len(pieces)
            unit += frames.frame(frames.CONTINUATION, last * frames.END_HEADERS, half.id, piece)
        half.blocks_sent.append(fields)
        half.end(end)
        self.out.append(unit)

    def send_reset(self, half: Half, code: int) -> None:
        """Give a stream up."""
        half.reset = True
        self.out.append(frames.rst_stream(half.id, code))

    def grant(self, half: Half | None, size: int) -> None:
        """Give window for a stream, or for the connection."""
        if half is None:
            self.recv_window += size
        else:
            half.recv_delta += size
        self.out.append(frames.window_update(half.id if half else 0, size))

    def announce(self, settings: dict[int, int]) -> None:
        """Send SETTINGS; they hold when the other side acknowledges them."""
        self.announced.append(settings)
        table = settings.get(frames.SETTINGS_HEADER_TABLE_SIZE, 0)
        self.decoder.max_allowed_table_size = max(self.decoder.max_allowed_table_size, table)
        body = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in settings.items())
        self.emit(frames.SETTINGS, 0, 0, body)

    # -- reading ---------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Cut what the splice wrote into frames; they wait until they are read."""
        data = self._rest + data
        at = 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            self.inbox.append((data[at + 3], data[at + 4], stream, data[at + 9 : end]))
            at = end
        self._rest = data[at:]

    def read(self, count: int) -> int:
        """Look at up to *count* frames; returns how many there were."""
        for number in range(count):
            if not self.inbox:
                return number
            self._read_one(*self.inbox.popleft())
        return count

    def _read_one(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        longest = max([self.recv_max, *(s.get(frames.SETTINGS_MAX_FRAME_SIZE, 0) for s in self.announced)])
        require(len(payload) <= longest, f"{self.name} got a frame that is too long:", kind, len(payload))
        if self._block:
            require(kind == frames.CONTINUATION, f"{self.name}: a header block is interrupted by a frame", kind)
        match kind:
            case frames.DATA:
                self._on_data(stream, flags, payload)
            case frames.HEADERS:
                self._block = (stream, flags, frames.header_fragment(flags, payload))
                self._end_block(flags)
            case frames.CONTINUATION:
                self._on_continuation(stream, flags, payload)
            case frames.RST_STREAM:
                self._on_reset(stream)
            case frames.SETTINGS:
                self._on_settings(flags, payload)
            case frames.PING:
                self._on_ping(flags, payload)
            case frames.GOAWAY:
                self.on_goaway(int.from_bytes(payload[:4], "big"))
            case frames.WINDOW_UPDATE:
                self._on_window(stream, int.from_bytes(payload, "big"))

    def half(self, stream: int, what: str) -> Half:
        """The stream that a frame is about."""
        require(stream in self.streams, f"{self.name} got {what} on a stream that was never opened:", stream)
        return self.streams[stream]

    def _on_data(self, stream: int, flags: int, payload: bytes) -> None:
        half, size = self.half(stream, "DATA"), len(payload)
        body = frames.unpad(flags, payload)
        window = self.recv_initial + half.recv_delta
        self.recv_window -= size
        half.recv_delta -= size
        require(self.recv_window >= 0, f"{self.name}'s connection window is overrun by", -self.recv_window)
        if half.reset:
            return
        require(not half.got_end and not half.got_reset, f"{self.name} got DATA after the end of stream", stream)
        require(
            size <= max(window, 0), f"{self.name}'s window of stream", stream, window, "is overrun by DATA of", size
        )
        half.got += body
        half.got_end |= bool(flags & frames.END_STREAM)

    def _on_continuation(self, stream: int, flags: int, payload: bytes) -> None:
        require(self._block is not None and self._block[0] == stream, f"{self.name}: a stray CONTINUATION")
        assert self._block is not None
        self._block = (stream, self._block[1], self._block[2] + payload)
        self._end_block(flags)

    def _end_block(self, flags: int) -> None:
        if not flags & frames.END_HEADERS or self._block is None:
            return
        stream, first_flags, block = self._block
        self._block = None
        try:
            fields = tuple((bytes(name), bytes(value)) for name, value in self.decoder.decode(block, raw=True))
        except HPACKError as error:
            raise Violation(f"{self.name} cannot decode a header block of stream {stream}: {error!r}") from error
        self.on_block(stream, fields, end=bool(first_flags & frames.END_STREAM))

    def on_block(self, stream: int, fields: Fields, *, end: bool) -> None:
        """A header block is whole."""
        half = self.half(stream, "HEADERS")
        half.blocks_got.append(fields)
        if half.reset or half.got_reset:
            return
        self.check_block(half, fields)
        half.got_end |= end

    def check_block(self, half: Half, fields: Fields) -> None:
        """Complain about a block that comes too late."""
        require(not half.got_end, f"{self.name} got a header block after the end of stream", half.id)

    def _on_reset(self, stream: int) -> None:
        half = self.half(stream, "RST_STREAM")
        twice = half.got_reset and not half.ended  # a reset of ours, after an early end, may cross one of the client
        require(not twice, f"{self.name} got RST_STREAM twice on stream", stream)
        half.got_reset = True

    def _on_settings(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            require(bool(self.announced), f"{self.name} got an acknowledgement too many")
            settings = self.announced.popleft()
            self.recv_initial = settings.get(frames.SETTINGS_INITIAL_WINDOW_SIZE, self.recv_initial)
            self.recv_max = settings.get(frames.SETTINGS_MAX_FRAME_SIZE, self.recv_max)
            return
        settings = frames.parse_settings(payload)
        self.send_initial = settings.get(frames.SETTINGS_INITIAL_WINDOW_SIZE, self.send_initial)
        self.send_max = settings.get(frames.SETTINGS_MAX_FRAME_SIZE, self.send_max)
        size = settings.get(frames.SETTINGS_HEADER_TABLE_SIZE, self.encoder.header_table_size)
        if size != self.encoder.header_table_size:  # the same size once more makes hpack forget the change before
            self.encoder.header_table_size = size
        self.emit(frames.SETTINGS, frames.ACK, 0)

    def _on_ping(self, flags: int, payload: bytes) -> None:
        if flags & frames.ACK:
            require(bool(self.pings) and self.pings.popleft() == payload, f"{self.name} got a wrong answer to PING")
        else:
            self.emit(frames.PING, frames.ACK, 0, payload)

    def on_goaway(self, last_stream: int) -> None:
        """No stream behind that one is looked at."""
        self.goaway = last_stream

    def _on_window(self, stream: int, increment: int) -> None:
        require(increment > 0, f"{self.name} got a WINDOW_UPDATE of 0 on stream", stream)
        if stream:
            half = self.half(stream, "WINDOW_UPDATE")
            half.send_delta += increment
            window = self.send_initial + half.send_delta
        else:
            self.send_window += increment
            window = self.send_window
        require(window <= frames.MAX_WINDOW, f"{self.name}'s sending window is too large on stream", stream, window)


class Client(Peer):
    """The kubelet: opens streams."""

    name = "client"

    def __init__(self) -> None:
        super().__init__()
        self.next_stream = 1

    def open(self, fields: Fields, cuts: Iterable[int], *, end: bool, pad: int | None = None) -> Half:
        """Begin a call."""
        half = self.streams[self.next_stream] = Half(self.next_stream)
        self.next_stream += 2
        self.send_block(half, fields, cuts, end=end, pad=pad)
        return half

    def check_block(self, half: Half, fields: Fields) -> None:
        """A block after the end is allowed on a refused stream only: HPACK needs it."""
        begins = len(half.blocks_got) > 1 or any(name == b":status" for name, _ in fields)
        require(begins, "a reply begins without a status on stream", half.id)
        if not any(map(is_refusal, half.blocks_got)):
            super().check_block(half, fields)

    def on_goaway(self, last_stream: int) -> None:
        """The streams behind it are given up."""
        super().on_goaway(last_stream)
        for half in self.streams.values():
            half.dead |= half.id > last_stream


class Runtime(Peer):
    """The runtime: sees streams when their first header block comes."""

    name = "runtime"

    def __init__(self) -> None:
        super().__init__()
        self._preface = frames.PREFACE

    def receive(self, data: bytes) -> None:
        """The connection preface comes before all frames."""
        head = data[: len(self._preface)]
        require(self._preface.startswith(head), "the runtime got a wrong preface:", head)
        self._preface = self._preface[len(head) :]
        super().receive(data[len(head) :])

    def on_block(self, stream: int, fields: Fields, *, end: bool) -> None:
        """The first block of a stream opens it."""
        if stream not in self.streams:
            require(stream > max(self.streams, default=0), "streams are opened out of order:", stream)
            self.streams[stream] = Half(stream)
        super().on_block(stream, fields, end=end)
