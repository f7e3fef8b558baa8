"""The frame loop forwards what nobody touches, byte for byte, however it arrives."""

import hpack
import pytest
from hpack import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import WireError
from criproxy.wire import frames
from criproxy.wire.flow import Ledger, Outflow
from criproxy.wire.frame_forwarding import MAX_BLOCK_BYTES, FrameLoop, increment_of

frame_lists = st.lists(
    st.builds(
        frames.frame,
        st.sampled_from([0, 2, 3, 4, 6, 7, 8, 10, 255]),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.binary(max_size=50),
    ),
    max_size=20,
)


@given(frame_lists, st.lists(st.integers(1, 70), min_size=1))
def test_untouched_frames_pass_byte_for_byte(sent: list[bytes], cuts: list[int]) -> None:
    """Whole frames come out, unknown kinds and reserved bits included, and at the end all of them."""
    raw, out = b"".join(sent), Outflow(Ledger())
    loop, at, step = FrameLoop(out), 0, 0
    while at < len(raw):
        size = cuts[step % len(cuts)]
        loop.feed(raw[at : at + size])
        at, step = at + size, step + 1

    assert b"".join(out.chunks) == raw


@given(frame_lists)
def test_taken_frames_leave_the_others_in_order(sent: list[bytes]) -> None:
    """A handler that takes its frames leaves the runs between them whole."""
    out, taken = Outflow(Ledger()), []
    loop = FrameLoop(out)

    def take(stream: int, flags: int, buffer: bytes, at: int, end: int) -> None:
        loop.take(at, end)
        taken.append(buffer[at:end])

    loop.handlers[frames.PING] = take
    loop.feed(b"".join(sent))

    assert b"".join(out.chunks) == b"".join(frame for frame in sent if frame[3] != frames.PING)
    assert taken == [frame for frame in sent if frame[3] == frames.PING]


@given(st.integers(1, 20), st.integers(1, 40))
def test_header_block_leaves_only_when_it_is_whole(parts: int, cut: int) -> None:
    """Nothing can come between HEADERS and its CONTINUATION frames."""
    raw = frames.frame(frames.HEADERS, 0, 1, b"a")
    for number in range(parts):
        flags = frames.END_HEADERS if number == parts - 1 else 0
        raw += frames.frame(frames.CONTINUATION, flags, 1, b"b" * number)
    out = Outflow(Ledger())
    loop = FrameLoop(out)
    for at in range(0, len(raw), cut):
        assert not out.chunks
        loop.feed(raw[at : at + cut])

    assert b"".join(out.chunks) == raw


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(frames.frame(0, 0, 1, b"x" * 16_385), "16384 were announced", id="oversize"),
        pytest.param(frames.frame(9, 4, 1, b"x"), "without HEADERS", id="lonely-continuation"),
        pytest.param(frames.frame(1, 0, 1, b"x") + frames.frame(6, 0, 0, b"x" * 8), "interrupted", id="ping-in-block"),
        pytest.param(frames.frame(1, 0, 1, b"x") + frames.frame(9, 4, 3, b"x"), "interrupted", id="other-stream"),
        pytest.param(
            frames.frame(1, 0, 1, b"x") + frames.frame(9, 0, 1) * (MAX_BLOCK_BYTES // 9),
            "header block of more than",
            id="endless-block-of-empty-frames",
        ),
    ],
)
def test_broken_framing_is_refused(raw: bytes, reason: str) -> None:
    """The error says what the peer did."""
    loop = FrameLoop(Outflow(Ledger()))

    with pytest.raises(WireError, match=reason):
        loop.feed(raw)


def test_oversize_frame_is_refused_by_its_header() -> None:
    """The payload is not waited for."""
    loop = FrameLoop(Outflow(Ledger()))

    with pytest.raises(WireError, match="16777215 bytes"):
        loop.feed(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01")


def test_window_update_of_another_length_is_refused() -> None:
    """Its payload is 4 bytes."""
    raw = frames.frame(frames.WINDOW_UPDATE, 0, 0, b"abc")

    with pytest.raises(WireError, match="must be 4"):
        increment_of(raw, 0, len(raw))


# ---------------------------------------------------------------- frames, as RFC 9113 and RFC 7541 say


def test_frame_has_length_kind_flags_and_stream() -> None:
    """A frame is its 9-byte header and its payload."""
    assert frames.frame(frames.DATA, frames.END_STREAM, 5, b"abc") == b"\x00\x00\x03\x00\x01\x00\x00\x00\x05abc"


@pytest.mark.parametrize(
    ("size", "max_frame", "expected"),
    [
        pytest.param(0, 4, [(0, True)], id="empty-end"),
        pytest.param(4, 4, [(4, True)], id="exactly-one"),
        pytest.param(5, 4, [(4, False), (1, True)], id="one-byte-over"),
        pytest.param(12, 4, [(4, False), (4, False), (4, True)], id="three-whole"),
    ],
)
def test_data_is_cut_and_ended_once(size: int, max_frame: int, expected: list[tuple[int, bool]]) -> None:
    """END_STREAM is on the last frame only."""
    cut = list(frames.data_frames(1, b"x" * size, True, max_frame))

    assert [(len(f) - 9, bool(f[4] & frames.END_STREAM)) for f in cut] == expected


@pytest.mark.parametrize(
    ("flags", "payload", "expected"),
    [
        pytest.param(0, b"\x02abc", b"\x02abc", id="no-padding"),
        pytest.param(frames.PADDED, b"\x02abc\x00\x00", b"abc", id="two-bytes-of-padding"),
        pytest.param(frames.PADDED, b"\x00abc", b"abc", id="padding-of-none"),
        pytest.param(frames.PADDED, b"\x03\x00\x00\x00", b"", id="only-padding"),
    ],
)
def test_padding_is_taken_off(flags: int, payload: bytes, expected: bytes) -> None:
    """What is left is the data of the frame."""
    assert frames.unpad(flags, payload) == expected


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05abc"])
def test_padding_longer_than_the_frame_is_refused(payload: bytes) -> None:
    """A padded frame must hold its padding."""
    with pytest.raises(WireError, match="padding"):
        frames.unpad(frames.PADDED, payload)


def test_priority_is_taken_off_a_header_block() -> None:
    """The 5 bytes of priority are no HPACK."""
    flags = frames.END_HEADERS | frames.HAS_PRIORITY | frames.PADDED
    raw = frames.frame(frames.HEADERS, flags, 1, b"\x01" + b"\x00" * 5 + b"block" + b"\x00")

    assert frames.header_block(raw) == b"block"


def test_headers_too_short_for_their_priority_are_refused() -> None:
    """A HEADERS frame with the priority flag has at least 5 bytes."""
    with pytest.raises(WireError, match="priority"):
        frames.header_fragment(frames.HAS_PRIORITY, b"\x00" * 4)


def test_continuation_frames_belong_to_the_block() -> None:
    """The fragments are joined in order."""
    raw = frames.frame(frames.HEADERS, 0, 1, b"ab") + frames.frame(frames.CONTINUATION, 0, 1, b"")
    raw += frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"cd")

    assert frames.header_block(raw) == b"abcd"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(b"\x00" * 5, "multiple of 6", id="length"),
        pytest.param(b"\x00\x04\x80\x00\x00\x00", "INITIAL_WINDOW_SIZE", id="window"),
        pytest.param(b"\x00\x05\x00\x00\x3f\xff", "MAX_FRAME_SIZE", id="frame-too-small"),
        pytest.param(b"\x00\x05\x01\x00\x00\x00", "MAX_FRAME_SIZE", id="frame-too-large"),
    ],
)
def test_settings_outside_their_range_are_refused(payload: bytes, reason: str) -> None:
    """The ranges are those of RFC 9113, 6.5.2."""
    with pytest.raises(WireError, match=reason):
        frames.parse_settings(payload)


def test_later_setting_wins() -> None:
    """Entries apply in order."""
    assert frames.parse_settings(b"\x00\x04\x00\x00\x00\x01\x00\x04\x00\x00\x00\x02") == {4: 2}


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=40_000)), max_size=5))
def test_literals_are_hpack_that_touches_no_table(fields: list[tuple[bytes, bytes]]) -> None:
    """Any length decodes to what was written, and leaves the dynamic table empty."""
    decoder = hpack.Decoder(max_header_list_size=1 << 20)

    decoded = decoder.decode(b"".join(frames.literal(*field) for field in fields), raw=True)

    assert [tuple(field) for field in decoded] == fields
    assert not decoder.header_table.dynamic_entries


_BLOCK = hpack.Encoder().encode([(":path", "/a/B"), ("x" * 200, "v" * 300), ("te", "trailers")])
_PIECES = st.one_of(
    st.sampled_from(
        [b"\x86", b"\xbe", b"\x40\x01a\x03bbb", b"\x10\x01a\x83\x1c\x64\x5f", b"\x20", b"\x3f\xe1\x1f", b"\xff\x00"]
    ),
    st.integers(0, len(_BLOCK)).map(lambda at: _BLOCK[:at]),
    st.just(_BLOCK),
    st.binary(max_size=3),
)


@given(st.lists(st.lists(_PIECES, max_size=6).map(b"".join), max_size=4), st.sampled_from([100, 1000, 1 << 20]))
def test_header_blocks_are_decoded_as_the_library_does(blocks: list[bytes], most_bytes: int) -> None:
    """Block after block: the same fields and table, or an error of both."""
    library, listener = hpack.Decoder(most_bytes), hpack.Decoder(most_bytes)
    for block in blocks:
        try:
            expected = [tuple(field) for field in library.decode(block, raw=True)]
        except HPACKError:
            with pytest.raises(HPACKError):
                frames.decode_block(listener, block)
            return
        assert frames.decode_block(listener, block) == expected
        assert listener.header_table.dynamic_entries == library.header_table.dynamic_entries
