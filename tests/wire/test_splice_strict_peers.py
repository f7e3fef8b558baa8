"""Orders of frames that peers may choose and rarely do, between strict endpoints; each was a bug once."""

import pytest

from criproxy.errors import StatusCode, WireError
from criproxy.wire import frames
from criproxy.wire.calls import Proceed, Refuse
from criproxy.wire.frames import SETTINGS_INITIAL_WINDOW_SIZE as INITIAL_WINDOW
from criproxy.wire.message import encode
from tests.wire.rawpeer import Endpoint, Style
from tests.wire.spliced import EDIT, HOLD, PASS, WATCH, Spliced, half_peers

REFUSE = Refuse(StatusCode.UNAVAILABLE, "not now")


def joined(**peers: Endpoint) -> Spliced:
    """Peers that have said hello."""
    both = Spliced(**peers)
    both.run()
    return both


def test_refusal_waits_for_the_settings_of_the_runtime(both: Spliced) -> None:
    """A client that does not wait for SETTINGS still gets them first, then what the splice has to say."""
    stream = both.start(HOLD, b"m" * 60_000)
    both.client_writes()
    both.answer(stream, REFUSE)
    both.client_reads()
    assert not both.client.streams[stream].blocks_got
    both.run()
    assert both.client.streams[stream].status == str(int(StatusCode.UNAVAILABLE))
    both.check_version()
    both.check_rest()


def test_runtime_must_begin_with_settings(both: Spliced) -> None:
    """Something else that listens on the runtime's socket is told from a runtime at its first bytes."""
    both.splice.from_runtime(b"HT")
    with pytest.raises(WireError, match="its first frame is not SETTINGS"):
        both.splice.from_runtime(b"TP/1.1 400 Bad Request")


def test_early_end_drops_what_waits_for_the_window() -> None:
    """A message that grew beyond the runtime's window is not kept for a runtime that has ended the call."""
    both = joined(runtime=Endpoint(client=False, settings={INITIAL_WINDOW: 10}, grants="manual"))
    stream = both.client.open(HOLD)
    both.client.data(stream, encode(b"12345"), end=True)
    both.run()
    both.answer(stream, Proceed(b"1234567890"))
    both.run()
    both.runtime.queue_reply(stream, status=4)
    both.run()

    assert bytes(both.runtime.streams[stream].got) == encode(b"1234567890")[:10]
    assert both.runtime.streams[stream].over
    both.check_rest()


def test_held_bytes_leave_the_window_to_others() -> None:
    """While a large request is held, another call of any size passes: what was lent is lent again once repaid."""
    both = half_peers()
    both.start(HOLD, b"h" * 45_000)
    both.run()
    for size in (30_000, 300_000):
        both.unary(PASS, b"p" * size)
    assert list(both.held) == [1]


def test_collected_replies_leave_the_window_to_others() -> None:
    """While half of an edited reply is here, another reply of any size passes."""
    both = half_peers()
    edited = both.start(EDIT, b"request")
    both.run()
    both.runtime.queue(edited, fields=[(":status", "200")])
    both.runtime.queue(edited, encode(b"2" * 100_000)[:45_000])
    both.run()
    for size in (30_000, 300_000):
        assert bytes(both.unary(PASS, b"other", b"0" * size).got) == encode(b"0" * size)


def test_held_request_goes_on_after_the_runtime_shrinks_its_windows() -> None:
    """The client's stream window gets so negative that a fixed step would not open it again."""
    both = joined(runtime=Endpoint(client=False, settings={INITIAL_WINDOW: 600_000}))
    both.runtime.give(0, 1_000_000)
    both.run()
    stream = both.client.open(HOLD)
    both.client.queue(stream, encode(b"h" * 700_000), end=True)
    both.client.push(stream)
    both.runtime.announce({INITIAL_WINDOW: 0})
    both.run()
    assert list(both.held) == [stream]


def test_edited_reply_goes_on_after_the_client_shrinks_its_windows() -> None:
    """What is collected of a reply was lent by us, so nobody else would open the stream's window again."""
    both = joined(client=Endpoint(client=True, settings={INITIAL_WINDOW: 600_000}))
    both.client.give(0, 1_000_000)
    both.run()
    stream = both.start(EDIT, b"request")
    both.run()
    both.runtime.queue_reply(stream, b"1" * 700_000)
    both.runtime.push(stream)
    both.runtime_writes()
    both.client.announce({INITIAL_WINDOW: 30_000})
    both.run()
    assert bytes(both.client.streams[stream].got) == encode(b"1" * 350_000)
    both.check_rest()


@pytest.mark.parametrize("path", [PASS, WATCH])
def test_padding_of_data_that_waited_is_given_back_to_the_stream(path: str) -> None:
    """The far end never sees that padding, so only we can return its window."""
    both = joined(runtime=Endpoint(client=False, grants="manual"))
    held = both.start(HOLD, b"h")
    both.run()
    both.answer(held, Proceed(b"h" * 65_530))
    stream = both.client.open(path)
    for _ in range(3):
        both.client.data(stream, b"x", pad=255)
    both.run()
    both.runtime.give(0, 65_535)
    both.run()
    assert both.runtime.streams[stream].got == b"xxx"
    assert both.client.streams[stream].send_delta == both.runtime.streams[stream].recv_delta


@pytest.mark.parametrize("trailers", [False, True], ids=["data", "trailers"])
def test_held_request_ends_once(both: Spliced, trailers: bool) -> None:
    """Whatever an illegal client sends after END_STREAM, the handler is asked once; that connection ends."""
    stream = both.start(HOLD, b"message")
    both.run()
    if trailers:
        both.client.block(stream, [("again", "and again")], end=True)
    else:
        both.client.data(stream, encode(b"another"), end=True)
    with pytest.raises(WireError, match="after its end"):
        both.run()
    assert both.told == ["held"]


def test_empty_frames_cost_nothing(both: Spliced) -> None:
    """Empty DATA uses no window, so an endless row of it must use no memory either."""
    stream = both.client.open(HOLD)
    for _ in range(1_000):
        both.client.data(stream, b"")
    both.run()
    hold = both.splice.connection.streams[stream].hold
    assert hold is not None
    assert not hold.chunks


def test_frames_before_a_broken_one_arrive(both: Spliced) -> None:
    """What a peer sent before it broke the protocol is passed on, whether it came in the same read or before."""
    both.run()
    both.client.open(PASS, end=True)
    both.client.emit(9, 0, 1, b"a CONTINUATION of nothing")
    with pytest.raises(WireError, match="CONTINUATION"):
        both.run()
    assert both.splice.take_for_runtime()


def test_call_that_crosses_a_goaway_is_not_held(both: Spliced) -> None:
    """The runtime has said that it will not look at it, and the client repeats it elsewhere, without a reset."""
    both.run()
    first = both.start(PASS, b"before")
    both.client_writes()
    both.runtime_reads()
    both.runtime.emit(frames.GOAWAY, 0, 0, first.to_bytes(4, "big") + bytes(4))
    both.runtime_writes()
    late = both.start(HOLD, b"after")
    both.client_writes()

    assert not both.held
    assert both.told == ["ended"]
    both.client_reads()
    assert both.client.goaway is not None
    assert late > both.client.goaway


def test_windows_of_an_edited_reply_agree_at_rest() -> None:
    """What was lent while it was collected, and its padding, are settled on its own stream, too."""
    client, runtime = Endpoint(client=True, grants="manual"), Endpoint(client=False, style=Style(pad=3))
    both = Spliced(client=client, runtime=runtime)
    stream = both.start(EDIT, b"request")
    both.run()
    runtime.queue(stream, fields=[(":status", "200")])
    runtime.queue(stream, encode(b"0" * 100_000))
    both.run()
    client.give(0, 300_000)
    client.give(stream, 300_000)
    both.run()

    assert bytes(client.streams[stream].got) == encode(b"0" * 100_000)
    assert runtime.streams[stream].send_delta == client.streams[stream].recv_delta
