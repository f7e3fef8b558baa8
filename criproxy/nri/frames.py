"""The frames of NRI: ttrpc messages of two connections, multiplexed over one socket.

Formats, after containerd/nri (pkg/net/multiplex) and containerd/ttrpc: a mux frame is two uint32 in network order, the
number of the connection and the length, and then so many bytes. The bytes of one connection are a stream of ttrpc
frames: uint32 length, uint32 stream id, uint8 kind, uint8 flags, and then so many bytes. Neither ends where the other
does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct

from criproxy.errors import CriproxyError

PLUGIN, RUNTIME = 1, 2
"""The connections on which the runtime calls the plugin, and the plugin the runtime."""
MESSAGE_MAX_BYTES = 4 << 20
"""The longest ttrpc message that Go reads."""
READ_MAX_BYTES = 128 << 20
"""The longest message that is read. Runtimes send longer ones than Go reads: a container may have 16 MiB, which is what
CRI takes, and before NRI 0.8, all that run are in one message. A tenant could else keep criproxy from connecting."""
PART_BYTES = 4096
"""The longest mux frame that is sent. Go reads the header of a ttrpc frame through a buffer of that size: of a longer
frame it loses the rest, and closes the plugin's connection (containerd 1.7.24), or starts the container without the
plugin's answer (2.1.9)."""
_MUX, _TTRPC = Struct(">II"), Struct(">IIBB")
_MUX_MAX_BYTES = READ_MAX_BYTES + _TTRPC.size


class Kind(IntEnum):
    """What a ttrpc frame is."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3
    """Of calls that stream, which NRI does not have."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One ttrpc message."""

    connection: int
    stream: int
    """Odd; names the call on its connection."""
    kind: int
    payload: bytes


class Malformed(CriproxyError):
    """The other side sends what is no NRI: the connection cannot be used any more."""


@dataclass(slots=True)
class Frames:
    """Reads frames from bytes that come in any pieces."""

    _mux: bytearray = field(default_factory=bytearray)
    _streams: dict[int, bytearray] = field(default_factory=lambda: {PLUGIN: bytearray(), RUNTIME: bytearray()})

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete with *data*; those of unknown connections are skipped, as Go does.

        Raises:
            Malformed: a length is out of range.
        """
        self._mux += data
        for connection, part in _cut(self._mux, _MUX, 1, _MUX_MAX_BYTES):
            if (stream := self._streams.get(connection[0])) is None:
                continue
            stream += part
            for (_, stream_id, kind, _), payload in _cut(stream, _TTRPC, 0, READ_MAX_BYTES):
                yield Frame(connection[0], stream_id, kind, payload)


def _cut(buffer: bytearray, header: Struct, length_at: int, most: int) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Take complete frames from the beginning of *buffer*: yield the fields of the header, and what follows it."""
    begin = 0
    try:
        while len(buffer) - begin >= header.size:
            fields = header.unpack_from(buffer, begin)
            if (length := fields[length_at]) > most:
                raise Malformed(f"a frame of {length} bytes: at most {most} are expected, so this is no NRI")
            if len(buffer) < (end := begin + header.size + length):
                break
            yield fields, bytes(buffer[begin + header.size : end])
            begin = end
    finally:
        del buffer[:begin]


def encoded(frame: Frame) -> bytes:
    """Return the bytes of *frame*, in mux frames of at most `PART_BYTES`."""
    whole = _TTRPC.pack(len(frame.payload), frame.stream, frame.kind, 0) + frame.payload
    parts = (whole[begin : begin + PART_BYTES] for begin in range(0, len(whole), PART_BYTES))
    return b"".join([_MUX.pack(frame.connection, len(part)) + part for part in parts])
