"""HTTP/2 frames as bytes: building and taking apart, by RFC 9113 and RFC 7541.

A frame is a 9-byte header (24-bit payload length, 8-bit kind, 8-bit flags, 31-bit stream id) and its payload.
"""

from collections.abc import Iterator

from hpack import Decoder, HPACKDecodingError, OversizedHeaderListError
from hpack.hpack import decode_integer
from hpack.huffman_table import decode_huffman

from criproxy.errors import WireError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (RFC 9113, 3.4)."""

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

SETTINGS_HEADER_TABLE_SIZE = 1
SETTINGS_INITIAL_WINDOW_SIZE = 4
SETTINGS_MAX_FRAME_SIZE = 5

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11

DEFAULT_WINDOW = 65_535
"""Bytes: of the connection at start, and of a stream until SETTINGS say another size (RFC 9113, 6.9.2)."""
DEFAULT_MAX_FRAME = 16_384
"""Bytes of payload that every peer accepts (RFC 9113, 4.2)."""
MAX_WINDOW = 2**31 - 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One whole frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def window_update(stream: int, increment: int) -> bytes:
    """Give the peer *increment* bytes (1 to 2^31-1) of window; stream 0 is the connection."""
    return b"\x00\x00\x04\x08\x00" + stream.to_bytes(4, "big") + increment.to_bytes(4, "big")


def rst_stream(stream: int, code: int) -> bytes:
    """End one stream at once."""
    return b"\x00\x00\x04\x03\x00" + stream.to_bytes(4, "big") + code.to_bytes(4, "big")


def goaway(last_stream: int, code: int, text: str = "") -> bytes:
    """Announce the end of the connection: streams above *last_stream* were not looked at."""
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode()[:512])


def data_frames(stream: int, payload: bytes, end: bool, max_frame: int) -> Iterator[bytes]:
    """Cut *payload* into DATA frames of at most *max_frame* bytes; END_STREAM, if *end*, on the last one only."""
    if not payload:
        yield frame(DATA, END_STREAM if end else 0, stream)
    for at in range(0, len(payload), max_frame):
        last = at + max_frame >= len(payload)
        yield frame(DATA, END_STREAM if end and last else 0, stream, payload[at : at + max_frame])


def unpad(flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS without its padding.

    Raises:
        WireError: the padding is longer than the frame.
    """
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise WireError("a padded frame is shorter than its padding", PROTOCOL_ERROR)
    return payload[1 : len(payload) - payload[0]]


def header_fragment(flags: int, payload: bytes) -> bytes:
    """The HPACK part of a HEADERS payload: without padding and priority.

    Raises:
        WireError: the frame is too short for what its flags say.
    """
    fragment = unpad(flags, payload)
    if not flags & HAS_PRIORITY:
        return fragment
    if len(fragment) < 5:
        raise WireError("a HEADERS frame is too short for its priority", FRAME_SIZE_ERROR)
    return fragment[5:]


def header_block(raw: bytes) -> bytes:
    """The HPACK bytes of *raw*: one HEADERS frame and the CONTINUATION frames that belong to it."""
    end = 9 + int.from_bytes(raw[:3], "big")
    parts = [header_fragment(raw[4], raw[9:end])]
    while end < len(raw):
        start, end = end + 9, end + 9 + int.from_bytes(raw[end : end + 3], "big")
        parts.append(raw[start:end])
    return b"".join(parts)


def decode_block(decoder: Decoder, block: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a header block, and the table of *decoder* afterwards, as if the library had decoded it.

    The library copies the rest of the block for each field, and logs each number.

    Raises:
        HPACKError: where the library does.
    """
    table, fields, at, size = decoder.header_table, list[tuple[bytes, bytes]](), 0, 0
    try:
        while at < len(block):
            kind = block[at]
            if kind & 0xE0 == 0x20:  # a change of the table's size: the library says whether it is allowed
                if fields:
                    raise HPACKDecodingError("Table size update not at the start of the block")
                return [*decoder.decode(block, raw=True)]
            mask = 0x7F if kind & 0x80 else 0x3F if kind & 0x40 else 0x0F
            index, at = (kind & mask, at + 1) if kind & mask < mask else _long_number(block, at, mask)
            if kind & 0x80:
                field = table.get_by_index(index)
            else:
                name, at = (table.get_by_index(index)[0], at) if index else _read_string(block, at)
                value, at = _read_string(block, at)
                field = name, value
                if kind & 0x40:
                    table.add(name, value)
            fields.append(field)
            size += 32 + len(field[0]) + len(field[1])
            if size > decoder.max_header_list_size:
                raise OversizedHeaderListError(f"A header list larger than {decoder.max_header_list_size}")
    except IndexError:
        raise HPACKDecodingError("Truncated header block") from None
    return fields


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """The string literal at *at*, and where it ends (RFC 7541, 5.2)."""
    length, is_huffman = block[at] & 0x7F, block[at] & 0x80
    length, at = (length, at + 1) if length < 0x7F else _long_number(block, at, 0x7F)
    end = at + length
    if end > len(block):
        raise HPACKDecodingError("Truncated header block")
    return decode_huffman(block[at:end]) if is_huffman else block[at:end], end


def _long_number(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """The integer behind a full prefix, which *mask* covers, and where it ends (RFC 7541, 5.1)."""
    number, length = decode_integer(memoryview(block)[at : at + 8], mask.bit_length())  # no bytes in its errors
    return number, at + length


def parse_settings(payload: bytes) -> dict[int, int]:
    """Identifier → value of a SETTINGS payload; a later entry wins (RFC 9113, 6.5.3).

    Raises:
        WireError: the length is no multiple of 6, or a value is outside the range of the RFC.
    """
    if len(payload) % 6:
        raise WireError(f"a SETTINGS frame of {len(payload)} bytes: must be a multiple of 6", FRAME_SIZE_ERROR)
    settings = {}
    for at in range(0, len(payload), 6):
        identifier = int.from_bytes(payload[at : at + 2], "big")
        settings[identifier] = int.from_bytes(payload[at + 2 : at + 6], "big")
    if settings.get(SETTINGS_INITIAL_WINDOW_SIZE, 0) > MAX_WINDOW:
        raise WireError("SETTINGS_INITIAL_WINDOW_SIZE is above 2^31-1", FLOW_CONTROL_ERROR)
    if not DEFAULT_MAX_FRAME <= settings.get(SETTINGS_MAX_FRAME_SIZE, DEFAULT_MAX_FRAME) < 2**24:
        raise WireError("SETTINGS_MAX_FRAME_SIZE is outside 16384 to 16777215", PROTOCOL_ERROR)
    return settings


def parse_u31(payload: bytes, what: str) -> int:
    """The 31-bit number that a WINDOW_UPDATE or the head of a GOAWAY carries.

    Raises:
        WireError: the payload is too short.
    """
    if len(payload) < 4:
        raise WireError(f"a {what} frame of {len(payload)} bytes is too short", FRAME_SIZE_ERROR)
    return int.from_bytes(payload[:4], "big") & MAX_WINDOW


def literal(name: bytes, value: bytes) -> bytes:
    """A header field that touches no dynamic table: literal without indexing, new name (RFC 7541, 6.2.2)."""
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    """A string literal without Huffman coding; its length is a 7-bit prefix integer (RFC 7541, 5.1, 5.2)."""
    length = len(text)
    if length < 127:
        return bytes((length,)) + text
    head, length = bytearray(b"\x7f"), length - 127
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + text
