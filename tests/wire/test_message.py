"""gRPC messages and statuses are read and written as gRPC's HTTP/2 protocol says."""

import gzip
from math import inf
from urllib.parse import unquote

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import StatusCode
from criproxy.wire import message
from criproxy.wire.message import MessageError, MessageReader


@given(st.binary(max_size=1000))
def test_encoded_message_decodes(plain: bytes) -> None:
    """What is encoded is read back, whatever encoding the call has."""
    assert message.decode(message.encode(plain), "gzip") == plain


@given(st.binary(max_size=1000))
def test_gzip_message_is_unpacked(plain: bytes) -> None:
    """A message with the compressed flag is unpacked, with the encoding named or told by its first bytes."""
    packed = gzip.compress(plain)

    assert message.decompress(1, packed, "gzip") == message.decompress(1, packed, None) == plain


@pytest.mark.parametrize(
    ("body", "encoding", "reason"),
    [
        pytest.param(b"", "identity", "not exactly one", id="nothing"),
        pytest.param(b"\x00\x00\x00\x00\x02a", "identity", "not exactly one", id="truncated"),
        pytest.param(message.encode(b"a") * 2, "identity", "not exactly one", id="two-messages"),
        pytest.param(b"\x01\x00\x00\x00\x01a", "snappy", "snappy", id="unknown-encoding"),
        pytest.param(b"\x01\x00\x00\x00\x01a", "gzip", "gzip", id="broken-gzip"),
        pytest.param(b"\x02\x00\x00\x00\x01a", "identity", "flag is 2", id="unknown-flag"),
        pytest.param(
            b"\x01\x00\x00\x00\x32" + 2 * gzip.compress(b"12345"), "gzip", "more than one", id="gzip-and-more"
        ),
        pytest.param(b"\x01\x00\x00\x00\x0a" + gzip.compress(b"abc")[:10], "gzip", "truncated", id="truncated-gzip"),
    ],
)
def test_unreadable_body_says_why(body: bytes, encoding: str, reason: str) -> None:
    """The error names what is wrong."""
    with pytest.raises(MessageError, match=reason):
        message.decode(body, encoding)


def test_gzip_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small message that unpacks to more than the limit is not unpacked."""
    monkeypatch.setattr(message, "MAX_MESSAGE_BYTES", 1000)

    with pytest.raises(MessageError, match="more than 1000"):
        message.decompress(1, gzip.compress(b"\x00" * 100_000), "gzip")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"2H", 7200.0, id="hours"),
        pytest.param(b"3M", 180.0, id="minutes"),
        pytest.param(b"119999857u", inf, id="nine-digits"),
        pytest.param(b"99999999m", 99_999.999, id="eight-digits"),
        pytest.param(b"5", inf, id="no-unit"),
        pytest.param(b"-5S", inf, id="negative"),
        pytest.param(b"", inf, id="empty"),
    ],
)
def test_timeout_is_read(value: bytes, expected: float) -> None:
    """The units are those of gRPC's protocol; anything else is no deadline."""
    assert message.timeout_s(value) == expected


@given(st.lists(st.binary(max_size=60), max_size=8), st.lists(st.integers(1, 30), min_size=1))
def test_reader_finds_messages_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    """The same messages come out of any chunking."""
    data, reader, found, at = b"".join(map(message.encode, messages)), MessageReader(), [], 0
    while at < len(data):
        size = cuts[at % len(cuts)]
        found += reader.feed(data[at : at + size])
        at += size

    assert (found, reader.waiting_bytes) == ([message.encode(m) for m in messages], 0)


@given(st.integers(1, 40))
def test_reader_passes_over_what_is_too_large(size: int) -> None:
    """A too large message is counted, not kept, and the next one is found."""
    limit, message.MAX_MESSAGE_BYTES = message.MAX_MESSAGE_BYTES, 100
    try:
        reader, found = MessageReader(), []
        data = message.encode(b"x" * 101) + message.encode(b"ok")
        for at in range(0, len(data), size):
            found += reader.feed(data[at : at + size])
            assert reader.waiting_bytes <= max(105, size)
    finally:
        message.MAX_MESSAGE_BYTES = limit

    assert (found, reader.oversized) == ([message.encode(b"ok")], 1)


def test_reader_may_keep_what_is_too_large() -> None:
    """With skip off, the announced size tells, and no byte is lost."""
    reader = MessageReader(skip=False)
    head = b"\x00" + (message.MAX_MESSAGE_BYTES + 1).to_bytes(4, "big") + b"begin"

    assert (reader.feed(head), reader.announced_bytes) == ([], message.MAX_MESSAGE_BYTES + 6)
    assert reader.take_rest() == head


def decoded(raw: bytes) -> dict[str, str]:
    """The fields of a HEADERS frame."""
    return {str(name): str(value) for name, value in hpack.Decoder().decode(raw[9:])}


@given(st.sampled_from(StatusCode), st.text(max_size=400))
def test_status_reply_is_read_back(code: StatusCode, text: str) -> None:
    """Any text arrives as it was, percent-decoded as gRPC clients do it, as long as it is short."""
    fields = decoded(message.status_reply(7, code, text))

    assert (fields[":status"], fields["grpc-status"]) == ("200", str(int(code)))
    encoded = fields["grpc-message"]
    assert len(encoded) <= message.MAX_STATUS_TEXT_BYTES
    assert text.startswith(unquote(encoded).rstrip("�")) or "�" in unquote(text)
    assert len(encoded) > 1000 or unquote(encoded) == text


def test_long_status_text_is_cut_between_characters() -> None:
    """At most 1 kB, and no half of a percent escape."""
    fields = decoded(message.status_reply(1, StatusCode.INTERNAL, "a" * 1022 + "é"))

    assert fields["grpc-message"] == "a" * 1022


def test_status_after_the_first_headers_is_trailers_only() -> None:
    """Once the reply has begun, there is no second :status."""
    fields = decoded(message.status_reply(1, StatusCode.ABORTED, "no", started=True))

    assert list(fields) == ["grpc-status", "grpc-message"]
