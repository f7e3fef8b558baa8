"""The frame loop: bytes in, runs of untouched frames out, and a handler for each frame that matters."""

from collections.abc import Callable
from struct import Struct

from criproxy.errors import WireError
from criproxy.wire import frames
from criproxy.wire.flow import Outflow
from criproxy.wire.frames import CONTINUATION, END_HEADERS, FRAME_SIZE_ERROR, MAX_WINDOW, PROTOCOL_ERROR

MAX_BLOCK_BYTES = 262_144
"""The largest header block (HEADERS and CONTINUATION frames with their headers) that is forwarded."""

_BLOCK_KINDS = frozenset({frames.HEADERS, frames.PUSH_PROMISE})
_HEAD = Struct(">HBBBI").unpack_from
_INCREMENT = Struct(">I").unpack_from

FrameHandler = Callable[[int, int, bytes, int, int], None]
"""(stream, flags, buffer, start, end): the frame, header included, is ``buffer[start:end]``."""


class FrameLoop:
    """One direction of a connection. Subclasses fill `handlers`; a frame without one is forwarded unchanged.

    Frames are forwarded in runs. A handler that keeps, replaces or delays its frame, or writes in the same
    direction, first calls `take`: what came before is then written, and the frame itself is the handler's.
    """

    def __init__(self, out: Outflow) -> None:
        self.out = out
        self.max_frame = frames.DEFAULT_MAX_FRAME
        """The largest payload that the receiver of these frames ever announced."""
        self.handlers: list[FrameHandler | None] = [None] * 256
        self.handlers[CONTINUATION] = _on_lone_continuation
        self._rest = b""
        self._buffer = b""
        self._run = 0
        self._scanned = 0

    def feed(self, data: bytes) -> None:
        """Take what came from the peer, cut anywhere.

        Raises:
            WireError: the peer broke the framing; the connection is beyond repair.
        """
        buffer = self._buffer = self._rest + data if self._rest else data
        size, at, handlers = len(buffer), 0, self.handlers
        self._run = 0
        try:
            while size - at >= 9:
                high, low, kind, flags, stream = _HEAD(buffer, at)
                end = at + 9 + (high << 8 | low)
                if end - at - 9 > self.max_frame:
                    raise WireError(
                        f"a frame of {end - at - 9} bytes: at most {self.max_frame} were announced", FRAME_SIZE_ERROR
                    )
                if end > size:
                    break
                if not flags & END_HEADERS and kind in _BLOCK_KINDS:
                    end = self._block_end(at, end, stream)
                    if not end:
                        break
                handler = handlers[kind]
                if handler is not None:
                    handler(stream & MAX_WINDOW, flags, buffer, at, end)
                at = end
        except WireError:
            self.take(at, at)  # what came before was right
            raise
        if at == size and not self._run:  # nearly always: all of it goes on as it came
            self._rest = self._buffer = b""
            if at:
                self.out.chunks.append(buffer)
        else:
            self.take(at, at)
            self._rest, self._buffer = buffer[at:], b""

    def take(self, at: int, end: int) -> None:
        """Write the run before the frame at *at*; the frame itself, up to *end*, is not forwarded."""
        if at > self._run:
            self.out.chunks.append(self._buffer[self._run : at])
        self._run = end

    def _block_end(self, at: int, end: int, stream: int) -> int:
        """Where the header block that starts at *at* ends; 0 if it is not whole yet."""
        buffer, scan = self._buffer, max(end, at + self._scanned)
        while len(buffer) - scan >= 9:
            high, low, kind, flags, of = _HEAD(buffer, scan)
            after = scan + 9 + int(high << 8 | low)
            if kind != CONTINUATION or of != stream:
                raise WireError("a header block is interrupted by another frame", PROTOCOL_ERROR)
            if after - at > MAX_BLOCK_BYTES or after - scan - 9 > self.max_frame:
                raise WireError(f"a header block of more than {MAX_BLOCK_BYTES} bytes", FRAME_SIZE_ERROR)
            if after > len(buffer):
                break
            scan = after
            if flags & END_HEADERS:
                self._scanned = 0
                return scan
        self._scanned = scan - at
        return 0


def _on_lone_continuation(stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
    raise WireError("a CONTINUATION frame without HEADERS", PROTOCOL_ERROR)


def increment_of(buffer: bytes, at: int, end: int) -> int:
    """The increment of the WINDOW_UPDATE frame at *at*.

    Raises:
        WireError: its payload is not 4 bytes.
    """
    if end - at != 13:
        raise WireError(f"a WINDOW_UPDATE frame of {end - at - 9} bytes: must be 4", FRAME_SIZE_ERROR)
    return int(_INCREMENT(buffer, at + 9)[0]) & MAX_WINDOW
