"""The frame loop forwards what nobody touches, byte for byte, however it arrives."""

import pytest
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
