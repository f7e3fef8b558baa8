"""Frames: mux and ttrpc, cut in any way."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.nri.frames import PART_BYTES, PLUGIN, READ_MAX_BYTES, RUNTIME, Frame, Frames, Kind, Malformed, encoded

STREAMS = st.integers(0, 2**32 - 1)
SENT = st.builds(
    Frame,
    st.sampled_from([PLUGIN, RUNTIME]),
    STREAMS,
    st.sampled_from([*map(int, Kind)]),
    st.one_of(st.binary(max_size=40), st.builds(bytes, st.integers(PART_BYTES - 20, 3 * PART_BYTES))),
)


@given(st.lists(SENT, max_size=5), st.data())
def test_frames_are_read_as_they_were_written_however_they_are_cut(sent: list[Frame], data: st.DataObject) -> None:
    """Those of one connection in their order."""
    wire = b"".join(map(encoded, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    frames, read = Frames(), list[Frame]()
    for begin, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        read += frames.feed(wire[begin:end])

    assert read == sent


def test_each_byte_may_come_alone() -> None:
    """A frame is there with its last byte."""
    wire, frames = encoded(Frame(PLUGIN, 3, Kind.REQUEST, b"x" * 5000)), Frames()
    found = [[*frames.feed(bytes([byte]))] for byte in wire]

    assert found == [[]] * (len(wire) - 1) + [[Frame(PLUGIN, 3, Kind.REQUEST, b"x" * 5000)]]


@given(st.integers(0, 70_000))
def test_no_mux_frame_is_longer_than_go_can_read(size: int) -> None:
    """Go would lose the rest, and the runtime start the container without our answer."""
    wire, lengths = encoded(Frame(RUNTIME, 1, Kind.RESPONSE, bytes(size))), list[int]()
    while wire:
        connection, length = struct.unpack_from(">II", wire)
        assert connection == RUNTIME
        lengths.append(length)
        wire = wire[8 + length :]

    assert max(lengths) <= PART_BYTES
    assert sum(lengths) == 10 + size


@given(STREAMS.filter(lambda number: number not in (PLUGIN, RUNTIME)), st.binary(max_size=100))
def test_frames_of_unknown_connections_are_skipped(connection: int, content: bytes) -> None:
    """As Go does."""
    frame = Frame(PLUGIN, 1, Kind.REQUEST, b"known")
    wire = struct.pack(">II", connection, len(content)) + content + encoded(frame)

    assert [*Frames().feed(wire)] == [frame]


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(struct.pack(">II", PLUGIN, READ_MAX_BYTES + 11), id="mux"),
        pytest.param(struct.pack(">IIIIBB", PLUGIN, 10, READ_MAX_BYTES + 1, 1, 1, 0), id="ttrpc"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", id="another-protocol"),
    ],
)
def test_a_length_out_of_range_is_said(wire: bytes) -> None:
    """Instead of waiting for gigabytes."""
    with pytest.raises(Malformed, match="this is no NRI"):
        [*Frames().feed(wire)]


@given(st.binary(max_size=300))
def test_any_bytes_are_frames_or_none(wire: bytes) -> None:
    """Nothing but `Malformed` comes out."""
    with suppress(Malformed):
        [*Frames().feed(wire)]
