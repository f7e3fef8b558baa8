"""Target 2: arbitrary frames and bytes in both directions, small limits; nothing may come of it but a `WireError`."""

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from criproxy.errors import StatusCode, WireError
from criproxy.wire import flow, frames, message, replies, requests
from criproxy.wire.calls import Proceed, Refuse
from criproxy.wire.flow import Outflow
from criproxy.wire.state import Held
from lab.fuzz.calls import METHODS, prefixed
from lab.fuzz.peer import require
from lab.fuzz.source import BLOCK, Source
from lab.fuzz.tap import Tap

MAX_BYTES = 65_536
MAX_CPU_S_PER_INPUT = 2.0
"""A stall is more CPU time than this for at most `MAX_BYTES`."""
MAX_PIECES = 200
LIMIT_BYTES = 30_000
"""Stands in for all limits of the data plane while raw bytes are fed, so that they are reached."""
_LIMITS = (
    *((module, "MAX_MESSAGE_BYTES") for module in (message, requests, replies)),
    *((module, "MAX_QUEUED_BYTES") for module in (flow, replies)),
    (requests, "MAX_HELD_BYTES"),
)
_SETTINGS = frames.frame(frames.SETTINGS, 0, 0)
_ACK = frames.frame(frames.SETTINGS, frames.ACK, 0)
_KINDS = (*(frames.DATA,) * 5, *range(11), frames.RST_STREAM, frames.SETTINGS, *(frames.WINDOW_UPDATE,) * 4, 10, 200, 2)
Piece = tuple[int, bytes]
"""(0: from the runtime, 1: from the client, 2: answer all held calls, bytes)."""


@contextmanager
def small_limits() -> Iterator[None]:
    """Lower what may be held, queued and collected to `LIMIT_BYTES`."""
    before = [getattr(module, name) for module, name in _LIMITS]
    for module, name in _LIMITS:
        setattr(module, name, LIMIT_BYTES)
    try:
        yield
    finally:
        for (module, name), value in zip(_LIMITS, before, strict=True):
            setattr(module, name, value)


def run(data: bytes) -> None:
    """Feed one input, whole and in pieces.

    Raises:
        Violation: too much memory or time, or a result that depends on chunking. Any other exception is a finding, too.
    """
    pieces = list(_pieces(Source(data)))
    with small_limits():
        whole = _Run(pieces, None)
        cut = _Run(pieces, Random(zlib.crc32(data)))
    require(whole.failed == cut.failed, "an error depends on chunking:", whole.failed, cut.failed)
    if whole.failed is None:
        require(whole.tap.result == cut.tap.result, "what comes out depends on chunking")


class _Run:
    """One connection that is fed *pieces*; with *cuts*, in smaller parts."""

    def __init__(self, pieces: list[Piece], cuts: Random | None) -> None:
        self.tap = Tap()
        self.cuts = cuts
        self.failed: str | None = None
        self.fed = 0
        started = time.process_time()
        self._feed_all(pieces)
        self._end()
        spent = time.process_time() - started
        require(spent < MAX_CPU_S_PER_INPUT, f"a stall: {self.fed} bytes took {spent:.1f} s of CPU time")

    def _feed_all(self, pieces: list[Piece]) -> None:
        side = 0
        try:
            for side, data in pieces:
                if side == 2:
                    self._answer(data)
                else:
                    self._feed(side, data)
        except WireError as error:
            self.failed = f"{'client' if side else 'runtime'}: {error}"
            self.tap.splice.fail(error.http2_code, str(error), by_client=bool(side))
            self.tap.collect()

    def _feed(self, side: int, data: bytes) -> None:
        self.fed += len(data)
        while data:
            size = self.cuts.choice((1, 9, 100, 5000)) if self.cuts else len(data)
            self.tap.feed(side, data[:size])
            data = data[size:]
            self.check_memory()
        self.tap.collect()

    def _answer(self, choices: bytes) -> None:
        done = self.tap.splice.connection.streams
        for event in [event for event in self.tap.events if isinstance(event, Held) and event.call.stream in done]:
            verdict = (Proceed(), Proceed(BLOCK[:9000]), Refuse(StatusCode.ABORTED, "no"))[choices[0] % 3]
            self.tap.splice.answer(event.call, event.body, verdict)
        self.tap.collect()

    def _end(self) -> None:
        self.tap.collect()
        for round_ in range(2):
            self.tap.splice.lost()
            *_, events = self.tap.collect()
            require(round_ == 0 or not events, "a connection that is lost twice tells of it twice")
        require(self.tap.splice.connection.held_bytes == 0, "a lost connection holds bytes")

    def check_memory(self) -> None:
        """Everything that is kept is bounded, whatever the peers send."""
        connection = self.tap.splice.connection
        queued = connection.to_client.queued_bytes + connection.to_runtime.queued_bytes
        require(queued <= 2 * LIMIT_BYTES + frames.DEFAULT_MAX_FRAME, "too much waits:", queued)
        for outflow in (connection.to_client, connection.to_runtime):
            require(outflow.queued_bytes == _size(outflow), "queued_bytes is wrong:", outflow.queued_bytes)
        held = sum(stream.hold.size for stream in connection.held() if stream.hold)
        require(held <= connection.held_bytes <= LIMIT_BYTES + frames.DEFAULT_MAX_FRAME, "too much is held:", held)


def _size(outflow: Outflow) -> int:
    return sum(item.size for queue in outflow.queues.values() for item in queue)


def _pieces(source: Source) -> Iterator[Piece]:
    """Greetings, then pieces until the bytes or the size run out."""
    if not source.chance(16):
        yield 1, frames.PREFACE + _SETTINGS
        yield 0, _SETTINGS + _ACK
        yield 1, _ACK
    total = 0
    for _ in range(MAX_PIECES):
        if source.exhausted or total >= MAX_BYTES:
            return
        side = source.below(2)
        match source.below(12):
            case 0:
                yield 2, bytes((source.byte(),))
                continue
            case 1:
                piece = source.rest()
            case 2:
                piece = _repeated(source, MAX_BYTES - total)
            case 3 | 4 | 5 if side:
                piece = _call(source)
            case _:
                piece = _frame(source)
        total += len(piece)
        yield side, piece


def _call(source: Source) -> bytes:
    """The headers of a call of a known method, without HPACK state."""
    fields = frames.literal(b":path", source.pick(METHODS).path.encode()) + frames.literal(b"grpc-encoding", b"gzip")
    flags = frames.END_HEADERS if not source.chance(8) else source.byte()
    return frames.frame(frames.HEADERS, flags, _stream(source), fields)


def _stream(source: Source) -> int:
    choice = source.below(64)
    return choice if choice < 32 else source.pick((0, 1, 1, 3, 3, 5, 2**31 - 1, 2**32 - 1))


def _frame(source: Source) -> bytes:
    """A frame of any kind, flags, stream and payload; the payload is often one that means something."""
    kind = source.pick(_KINDS)
    flags = source.pick((0, 0, 1, 4, 5, 8, 9, 13, 0x20, 0x2D, 0xFF))
    return frames.frame(kind, flags, _stream(source), _payload(source, kind))


def _payload(source: Source, kind: int) -> bytes:
    if source.chance(8):
        return source.payload()[:20_000]
    match kind:
        case frames.DATA:
            return prefixed(source.below(3), source.payload()[: source.pick((0, 9, 16_000))])
        case frames.HEADERS | frames.CONTINUATION | frames.PUSH_PROMISE:
            return bytes(source.byte() for _ in range(source.below(12)))
        case frames.SETTINGS:
            return b"".join(_setting(source) for _ in range(source.below(4)))
        case frames.PING:
            return bytes(8)
    return _number(source) + (bytes(4) if kind == frames.GOAWAY else b"")


def _setting(source: Source) -> bytes:
    return source.below(7).to_bytes(2, "big") + _number(source)


def _number(source: Source) -> bytes:
    numbers = (0, 1, 100, 16_384, 65_535, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
    return (source.pick(numbers) if source.chance(2) else source.below(1 << 16)).to_bytes(4, "big")


def _repeated(source: Source, room: int) -> bytes:
    """One or two frames over and over, each time on the same stream or on the next one: finds what is not linear."""
    pattern = [_call(source) if source.chance(2) else _frame(source) for _ in range(1 + source.below(2))]
    step = source.pick((0, 0, 2))
    size = sum(map(len, pattern))
    count = min(max(0, room) // size, source.pick((10, 100, 10_000)))
    first = [int.from_bytes(part[5:9], "big") & 0xFFFF | 1 for part in pattern]
    return b"".join(
        part[:5] + (stream + step * number).to_bytes(4, "big") + part[9:]
        for number in range(count)
        for part, stream in zip(pattern, first, strict=True)
    )
