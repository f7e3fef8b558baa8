"""The ledger balances, and what waits leaves in an order that HTTP/2 and HPACK allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import WireError
from criproxy.wire import flow, frames
from criproxy.wire.flow import Ledger, Outflow


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["pass", "replace", "drop", "advance", "grant"]),
            st.integers(0, 9_999),
            st.integers(0, 9_999),
        ),
        max_size=60,
    )
)
def test_ledger_balances(steps: list[tuple[str, int, int]]) -> None:
    """Sender + in_flight == receiver + debt after every step, and the debt is never negative."""
    ledger = Ledger()
    for step, size, other in steps:
        match step:
            case "pass":
                ledger.passed(size)
            case "replace":
                ledger.received(size)
                ledger.replaced(size, other)
                ledger.forwarded(other)
            case "drop":
                ledger.received(size)
                ledger.replaced(size, 0)
            case "advance":
                ledger.advance(size)
            case "grant":
                ledger.granted(size)
        assert ledger.sender + ledger.in_flight == ledger.receiver + ledger.debt
        assert ledger.debt >= 0


def test_debt_is_taken_off_the_next_increments() -> None:
    """The sender gets of an increment only what it does not owe."""
    ledger = Ledger()
    ledger.received(100)
    assert (ledger.replaced(100, 250), ledger.granted(100), ledger.granted(100)) == (0, 0, 50)
    assert ledger.debt == 0


def test_shrunk_message_returns_the_surplus_at_once() -> None:
    """The receiver will never give window for bytes that it did not get."""
    ledger = Ledger()
    ledger.received(100)

    assert ledger.replaced(100, 30) == 70


def outflow(connection: int, stream: int = 0, *streams: int) -> Outflow:
    """An outflow whose receiver has *connection* bytes of window, and *stream* bytes on each of *streams*."""
    out = Outflow(Ledger(connection))
    out.ledger.in_flight = 1_000_000
    out.initial_window = stream
    for number in streams:
        out.open(number)
    return out


def sent(out: Outflow) -> list[tuple[int, int, bytes]]:
    """(kind, stream, payload) of what went out since the last time."""
    raw, found = b"".join(out.chunks), []
    out.chunks.clear()
    while raw:
        end = 9 + int.from_bytes(raw[:3], "big")
        found.append((raw[3], int.from_bytes(raw[5:9], "big"), raw[9:end]))
        raw = raw[end:]
    return found


def test_data_waits_for_the_stream_window_alone() -> None:
    """Other streams pass while one waits for its own window."""
    out = outflow(100, 4, 1, 3)
    out.send_data(1, b"abcdef", True)
    out.send_data(3, b"xyz", True)

    assert sent(out) == [(frames.DATA, 1, b"abcd"), (frames.DATA, 3, b"xyz")]
    out.deltas[1] += 10
    out.flush()
    assert sent(out) == [(frames.DATA, 1, b"ef")]


def test_negative_window_keeps_data() -> None:
    """A peer that shrank its windows below what is under way gets nothing until it has given that back."""
    out = outflow(100, 4, 1)
    out.send_data(1, b"abcd", False)
    out.apply({frames.SETTINGS_INITIAL_WINDOW_SIZE: 1})
    out.send_data(1, b"e", True)
    out.chunks.clear()

    out.deltas[1] += 3
    out.flush()
    assert sent(out) == []
    out.deltas[1] += 1
    out.flush()
    assert sent(out) == [(frames.DATA, 1, b"e")]


def test_empty_end_needs_no_window() -> None:
    """END_STREAM on an empty frame goes out with a window of 0."""
    out = outflow(0, 0, 1)
    out.send_data(1, b"", True)

    assert sent(out) == [(frames.DATA, 1, b"")]


def test_header_blocks_keep_their_order_behind_waiting_data() -> None:
    """Trailers wait for their stream's data, and every later header block waits for the trailers."""
    out = outflow(100, 2, 1, 3, 5)
    out.send_data(1, b"abc", False)
    out.send_block(1, frames.frame(frames.HEADERS, 5, 1, b"T1"))
    out.send_block(3, frames.frame(frames.HEADERS, 4, 3, b"H3"))
    out.send_data(3, b"d3", True)
    out.send_data(5, b"d5", True)
    out.send_frame(0, frames.frame(frames.PING, 0, 0, b"12345678"))
    assert [item[:2] for item in sent(out)] == [(frames.DATA, 1), (frames.DATA, 5), (frames.PING, 0)]

    out.deltas[1] += 1
    out.flush()

    assert ([item[2] for item in sent(out)], out.queued_bytes) == ([b"c", b"T1", b"H3", b"d3"], 0)
    assert not out.queues


def test_dropped_stream_keeps_its_header_blocks() -> None:
    """HPACK needs every block, even of a stream that is over."""
    out = outflow(100, 0, 1, 3)
    out.send_data(1, b"abc", False)
    out.send_block(1, frames.frame(frames.HEADERS, 5, 1, b"T1"))
    out.send_block(3, frames.frame(frames.HEADERS, 5, 3, b"T3"))

    assert (out.drop_data(1), [item[2] for item in sent(out)]) == ((3, True), [b"T1", b"T3"])
    assert out.queued_bytes == 0


def test_held_back_stream_goes_on_with_what_is_put_first() -> None:
    """Trailers of a held request leave after its message."""
    out = outflow(100, 100, 1, 3)
    out.hold_back(1)
    out.send_block(1, frames.frame(frames.HEADERS, 5, 1, b"T1"))
    out.send_block(3, frames.frame(frames.HEADERS, 4, 3, b"H3"))
    assert sent(out) == []

    out.put_first(1, b"message")

    assert [item[2] for item in sent(out)] == [b"message", b"T1", b"H3"]


def test_stream_window_is_forgotten_after_the_last_byte() -> None:
    """A closed stream is kept while something of it waits, and no longer."""
    out = outflow(100, 1, 1)
    out.send_data(1, b"ab", True)
    out.close(1)
    assert 1 in out.deltas

    out.deltas[1] += 1
    out.flush()

    assert not out.deltas


def test_endless_queue_gives_the_connection_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that never gives window cannot make us keep everything."""
    monkeypatch.setattr(flow, "MAX_QUEUED_BYTES", 1000)
    out = outflow(0, 0, 1)

    for _ in range(10):
        out.send_data(1, b"x" * 100, False)

    with pytest.raises(WireError, match="wait for the peer's window"):
        out.send_data(1, b"x", False)


@given(
    st.lists(st.tuples(st.sampled_from([1, 3, 5]), st.binary(max_size=30), st.booleans()), max_size=20),
    st.lists(st.tuples(st.sampled_from([0, 1, 3, 5]), st.integers(0, 40)), max_size=40),
)
def test_every_byte_leaves_once_in_order(sends: list[tuple[int, bytes, bool]], grants: list[tuple[int, int]]) -> None:
    """Whatever the windows do, each stream's bytes and all header blocks come out in order, within the windows."""
    out, windows = outflow(0, 0, 1, 3, 5), dict.fromkeys((0, 1, 3, 5), 0)
    expected, blocks = dict.fromkeys((1, 3, 5), b""), []
    received: list[tuple[int, int, bytes]] = []

    def collect() -> None:
        for item in sent(out):
            received.append(item)
            if item[0] == frames.DATA:
                windows[item[1]] -= len(item[2])
                windows[0] -= len(item[2])
        assert min(windows.values()) >= 0

    for number, (stream, payload, is_block) in enumerate(sends):
        if is_block:
            blocks.append(b"block%d" % number)
            out.send_block(stream, frames.frame(frames.HEADERS, 4, stream, blocks[-1]))
        else:
            expected[stream] += payload
            out.send_data(stream, payload, False)
        collect()
    for stream, size in [*grants, *((stream, 10_000) for stream in windows)]:
        windows[stream] += size
        if stream:
            out.deltas[stream] += size
        else:
            out.ledger.granted(size)
        out.flush()
        collect()

    assert [item[2] for item in received if item[0] == frames.HEADERS] == blocks
    for stream, payload in expected.items():
        assert b"".join(i[2] for i in received if i[:2] == (frames.DATA, stream)) == payload
