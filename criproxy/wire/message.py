"""gRPC over HTTP/2: length-prefixed messages and replies that consist of trailers only.

The format is gRPC's PROTOCOL-HTTP2: a flag byte (1: compressed), a 32-bit length, the message.
"""

import zlib
from dataclasses import dataclass, field
from math import inf
from urllib.parse import quote

from criproxy.errors import CriproxyError, StatusCode
from criproxy.wire.frames import END_HEADERS, END_STREAM, HEADERS, frame, literal

MAX_MESSAGE_BYTES = 64 << 20
"""The largest message that is held, copied or edited. containerd takes 16 MiB, CRI-O 80 MiB."""

MAX_STATUS_TEXT_BYTES = 1024

_GZIP_MAGIC = b"\x1f\x8b"


class MessageError(CriproxyError):
    """A gRPC message that cannot be read: truncated, too large, or in an unknown encoding."""


def encode(message: bytes) -> bytes:
    """*message* with its prefix, uncompressed: allowed whatever grpc-encoding the call has."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def decode(body: bytes, encoding: str) -> bytes:
    """The one message in *body*, decompressed.

    Raises:
        MessageError: *body* is not exactly one message, or its encoding is neither identity nor gzip.
    """
    if len(body) < 5 or len(body) != 5 + int.from_bytes(body[1:5], "big"):
        raise MessageError(f"the request body of {len(body)} bytes is not exactly one gRPC message")
    return decompress(body[0], body[5:], encoding)


def decompress(flag: int, message: bytes, encoding: str | None) -> bytes:
    """*message* as its sender meant it; with *encoding* None it is told by its first bytes.

    Raises:
        MessageError: an unknown encoding, broken data, or more than `MAX_MESSAGE_BYTES`.
    """
    if not flag:
        return message
    if flag != 1:
        raise MessageError(f"the compressed flag is {flag}: must be 0 or 1")
    if encoding != "gzip" and not (encoding is None and message.startswith(_GZIP_MAGIC)):
        raise MessageError(
            f"a message in the encoding {encoding or 'of the reply'!r}: only identity and gzip are known"
        )
    return _gunzip(message)


def _gunzip(message: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(message, MAX_MESSAGE_BYTES + 1)
    except zlib.error as error:
        raise MessageError(f"a broken gzip message: {error}") from None
    if len(plain) > MAX_MESSAGE_BYTES:
        raise MessageError(f"a gzip message unpacks to more than {MAX_MESSAGE_BYTES} bytes")
    if not inflater.eof:
        raise MessageError("a truncated gzip message")
    if inflater.unused_data:  # peers differ in what they make of it
        raise MessageError("a gzip message of more than one member")
    return plain


def _is_whole(body: bytes) -> bool:
    """Whether *body* is exactly one message of a size that is looked at."""
    return 5 <= len(body) <= MAX_MESSAGE_BYTES + 5 and len(body) == 5 + int.from_bytes(body[1:5], "big")


@dataclass(slots=True, eq=False)
class MessageReader:
    """Cuts the DATA payload of one direction of one stream into messages, in bounded memory.

    A message over `MAX_MESSAGE_BYTES` is passed over with *skip*; without, it stays where it is (`announced_bytes`
    shows it) and nothing behind it is returned.
    """

    skip: bool = True
    oversized: int = 0
    """How many messages were passed over."""
    _buffer: bytearray = field(default_factory=bytearray)
    _to_skip: int = 0

    def feed(self, payload: bytes) -> list[bytes]:
        """Every message that *payload* completes, with its prefix."""
        if not (self._buffer or self._to_skip) and _is_whole(payload):  # nearly always
            return [payload]
        if self._to_skip:
            skipped = min(self._to_skip, len(payload))
            self._to_skip -= skipped
            payload = payload[skipped:]
        self._buffer += payload
        messages, at, buffer = [], 0, self._buffer
        while len(buffer) - at >= 5:
            end = at + 5 + int.from_bytes(buffer[at + 1 : at + 5], "big")
            if self.skip and end - at > MAX_MESSAGE_BYTES + 5:
                self.oversized += 1
                self._to_skip = max(0, end - len(buffer))
            elif end > len(buffer):
                break
            else:
                messages.append(bytes(buffer[at:end]))
            at = min(end, len(buffer))
        del buffer[:at]
        return messages

    def pass_over(self) -> None:
        """Forget the unfinished message, as if it were too large; its prefix must be whole."""
        self.oversized += 1
        self._to_skip = self.announced_bytes - len(self._buffer)
        self._buffer.clear()

    def take_rest(self) -> bytes:
        """What is left of an unfinished message; the reader is empty afterwards."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the unfinished message that are here."""
        return len(self._buffer)

    @property
    def announced_bytes(self) -> int:
        """Size of the unfinished message with its prefix; 0 while the prefix is not whole."""
        return 5 + int.from_bytes(self._buffer[1:5], "big") if len(self._buffer) >= 5 else 0


_TIMEOUT_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def timeout_s(value: bytes) -> float:
    """Seconds in a ``grpc-timeout`` header: up to 8 digits and a unit; endless for anything else."""
    digits, unit = value[:-1], _TIMEOUT_UNITS_S.get(value[-1:])
    if unit is None or not digits.isdigit() or len(digits) > 8:
        return inf
    return int(digits) * unit


def status_reply(stream: int, code: StatusCode, text: str, *, started: bool = False) -> bytes:
    """The HEADERS frame that ends a call with a status.

    Args:
        stream: the call's stream id.
        code: a gRPC status.
        text: cut to 1 kB once percent-encoded.
        started: the reply's header block has already gone out, so only trailers may follow.
    """
    block = literal(b"grpc-status", str(int(code)).encode()) + literal(b"grpc-message", _status_text(text))
    if not started:
        block = (
            b"\x88" + literal(b"content-type", b"application/grpc") + block
        )  # 0x88: ":status 200" of the static table
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def _status_text(text: str) -> bytes:
    """Percent-encoded as gRPC wants it: all but the printable ASCII characters, and the percent sign."""
    safe = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
    encoded = quote(text, safe=safe, errors="replace").encode()[:MAX_STATUS_TEXT_BYTES]
    cut = encoded.rfind(b"%", -2) if len(encoded) == MAX_STATUS_TEXT_BYTES else -1
    return encoded[:cut] if cut >= 0 else encoded
