"""Target 3: the pure parts: messages, frames, header literals; each against another program or its own inverse."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import unquote_to_bytes

from hpack import Decoder

from criproxy.errors import StatusCode, WireError
from criproxy.wire import frames
from criproxy.wire.message import (
    MAX_STATUS_TEXT_BYTES,
    MessageError,
    MessageReader,
    decode,
    decompress,
    encode,
    status_reply,
)
from lab.fuzz.calls import messages
from lab.fuzz.peer import require
from lab.fuzz.raw import LIMIT_BYTES, small_limits
from lab.fuzz.source import BLOCK, Source

MAX_LITERAL_BYTES = 100_000


def run(data: bytes) -> set[int]:
    """Check one function with one input; returns what it touched.

    Raises:
        Violation: it disagrees with its inverse or with the other program. Any other exception is a finding, too.
    """
    source = Source(data)
    choice = source.below(len(_CHECKS))
    with small_limits():
        return {hash((choice, bit)) for bit in _CHECKS[choice](source)}


def _decode(source: Source) -> Iterator[int]:
    """A body is one message exactly, or refused."""
    encoding, body = source.pick(("identity", "gzip", "snappy", "")), source.rest()
    try:
        message = decode(body, encoding)
    except MessageError:
        yield 0
        return
    require(messages(body) == ([body], b""), "a body that is not one message was decoded:", body)
    require(body[0] == 1 or message == body[5:], "an uncompressed message changed:", body)
    yield 1


def _decompress(source: Source) -> Iterator[int]:
    """What is unpacked equals what Python's gzip makes of it, and packing is undone."""
    encoding = source.pick(("gzip", None))
    level = source.below(10)
    plain = BLOCK[: source.size()] + bytes(source.size()) + source.rest()
    packer = zlib.compressobj(level, wbits=31)
    packed = packer.compress(plain) + packer.flush()
    if len(plain) <= LIMIT_BYTES:
        require(decompress(1, packed, encoding) == plain, "packing is not undone:", len(plain))
    for broken in (packed + plain[-20:], packed + packed, packed[: len(packed) // 2], plain[-200:]):
        try:
            message = decompress(1, broken, encoding)
        except MessageError:
            continue
        require(len(message) <= LIMIT_BYTES, "more was unpacked than the limit allows:", len(message))
        require(_unpacked(broken) == message, "gzip unpacks something else:", broken)
    yield len(packed).bit_length()


def _unpacked(packed: bytes) -> bytes | None:
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        return None


def _reader(source: Source) -> Iterator[int]:
    """Messages come out whole, the same for all cuts; a large one is passed over or stops the reader."""
    skip = source.chance(2)
    stream = b"".join(_any_message(source) for _ in range(source.below(6))) + source.rest()
    whole, cut = MessageReader(skip=skip), MessageReader(skip=skip)
    found, size = whole.feed(stream), source.below(7) + 1
    parts = [message for at in range(0, len(stream), size) for message in cut.feed(stream[at : at + size])]
    require(found == parts, "messages depend on chunking")
    require(whole.oversized == cut.oversized, "oversized messages depend on chunking")
    require(whole.waiting_bytes == cut.waiting_bytes, "what waits depends on chunking")
    if not whole.oversized:
        expected, rest = messages(stream)
        require(found == expected[: len(found)], "messages changed")
        stopped = whole.announced_bytes > LIMIT_BYTES + 5
        require(stopped or (found == expected and cut.take_rest() == rest), "messages are missing")
    yield min(len(found), 3) + 4 * whole.oversized


def _any_message(source: Source) -> bytes:
    size = source.pick((0, 1, 100, LIMIT_BYTES, LIMIT_BYTES + 1))
    missing = source.byte() if source.chance(4) else 0
    return encode(BLOCK[:size])[: size + 5 - missing]


def _parsers(source: Source) -> Iterator[int]:
    """Any payload with any flags is taken apart, or a WireError says why not."""
    flags, payload = source.byte(), source.rest()
    parsers: tuple[Callable[[], object], ...] = (
        lambda: frames.unpad(flags, payload),
        lambda: frames.header_fragment(flags, payload),
        lambda: frames.parse_settings(payload),
        lambda: frames.parse_u31(payload, "GOAWAY"),
    )
    for number, parse in enumerate(parsers):
        try:
            parse()
        except WireError:
            yield number


def _padding(source: Source) -> Iterator[int]:
    """Padding, priority and CONTINUATION are undone."""
    pad, priority, block = source.byte(), source.chance(2), source.rest()
    cut = pad % (len(block) + 1)
    first = bytes(5 * priority) + block[:cut]
    flags = frames.PADDED | priority * frames.HAS_PRIORITY
    raw = frames.frame(frames.HEADERS, flags, 1, bytes((pad,)) + first + bytes(pad))
    for at in range(cut, len(block), 50):
        raw += frames.frame(frames.CONTINUATION, 0, 1, block[at : at + 50])
    require(frames.header_block(raw) == block, "a header block changed:", raw)
    yield 0


def _cutting(source: Source) -> Iterator[int]:
    """DATA frames are no longer than allowed, add up, and only the last one ends the stream."""
    longest, end, payload = 1 + source.below(300), source.chance(2), BLOCK[: source.below(2000)]
    joined, flags = b"", []
    for raw in frames.data_frames(1, payload, end, longest):
        require(
            len(raw) - 9 <= longest and len(raw) - 9 == int.from_bytes(raw[:3], "big"), "a frame has a wrong length"
        )
        joined += raw[9:]
        flags.append(raw[4])
    require(joined == payload, "DATA frames do not add up")
    require(flags == [0] * (len(flags) - 1) + [int(end)], "END_STREAM stands on the wrong frame:", flags)
    yield len(flags).bit_length()


def _status(source: Source) -> Iterator[int]:
    """A status reads at the far end as it was written, cut at 1 kB of its percent-encoded form."""
    code, started, doubled = StatusCode(source.below(17)), source.chance(2), source.chance(4)
    text = source.rest().decode("utf-8", "surrogateescape") * (1 + 40 * doubled)
    raw = status_reply(7, code, text, started=started)
    fields = dict(Decoder(1 << 20).decode(frames.header_block(raw), raw=True))
    require(fields[b"grpc-status"] == str(int(code)).encode(), "another status:", fields)
    require((b":status" in fields) is not started, "a reply begins without, or ends with, :status")
    sent = bytes(fields[b"grpc-message"])
    require(len(sent) <= MAX_STATUS_TEXT_BYTES and all(0x20 <= byte < 0x7F for byte in sent), "not printable:", sent)
    got, meant = unquote_to_bytes(sent), text.encode("utf-8", "replace")
    cut = len(sent) > MAX_STATUS_TEXT_BYTES - 3
    require(meant.startswith(got) if cut else got == meant, "the text changed:", text, sent)
    yield int(cut)


def _literal(source: Source) -> Iterator[int]:
    """A header field of any bytes and any length is read as it was written."""
    times = source.pick((1, 1, 1, 100, 2000))
    name, value = BLOCK[: source.below(300)].hex().encode(), (source.rest() * times)[:MAX_LITERAL_BYTES]
    (field,) = Decoder(1 << 20).decode(frames.literal(name, value), raw=True)
    require((bytes(field[0]), bytes(field[1])) == (name, value), "a header field changed:", name, value[:100])
    yield len(value).bit_length()


_CHECKS = (_decode, _decompress, _reader, _parsers, _padding, _cutting, _status, _literal)
