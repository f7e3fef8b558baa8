"""Orders of frames that peers may choose and rarely do, between strict endpoints; each was a bug once."""

import pytest

from criproxy.errors import StatusCode, WireError
from criproxy.wire.calls import Proceed, Refuse

from tests.wire.rawpeer import INITIAL_WINDOW, Endpoint, grpc
from tests.wire.spliced import EDIT, HOLD, PASS, WATCH, Spliced

REFUSE = Refuse(StatusCode.UNAVAILABLE, "not now")


def test_refusal_waits_for_the_settings_of_the_runtime() -> None:
    """A client that does not wait for SETTINGS still gets them first, then what the splice has to say."""
    both = Spliced()
    stream = both.start(HOLD, b"m" * 60_000)
    both.client_writes()
    both.answer(stream, REFUSE)
    both.client_reads()
    assert not both.client.log
    both.run()
    assert both.client.streams[stream].status == str(int(StatusCode.UNAVAILABLE))
    both.check_version()
    both.check_rest()


def test_runtime_must_begin_with_settings() -> None:
    """Something else that listens on the runtime's socket is told from a runtime at its first bytes."""
    both = Spliced()
    both.splice.from_runtime(b"HT")
    with pytest.raises(WireError, match="its first frame is not SETTINGS"):
        both.splice.from_runtime(b"TP/1.1 400 Bad Request")


@pytest.mark.parametrize("end", [True, False], ids=["whole", "unfinished"])
def test_early_end_closes_the_stream_at_the_runtime(end: bool) -> None:
    """A runtime that ends a held call never gets the kubelet's END_STREAM: a reset tells it that nothing comes."""
    both = Spliced()
    stream = both.start(HOLD, b"message", end=end)
    both.run()
    both.runtime.queue_reply(stream, status=12)
    both.run()
    if not end:
        both.client.queue(stream, b"the rest", end=True)
        both.run()

    assert both.client.streams[stream].status == "12"
    assert both.runtime.streams[stream].over
    both.check_rest()


def test_early_end_drops_what_waits_for_the_window() -> None:
    """A message that grew beyond the runtime's window is not kept for a runtime that has ended the call."""
    both = Spliced(runtime=Endpoint(client=False, settings={INITIAL_WINDOW: 10}, grants="manual"))
    both.run()
    stream = both.client.open(HOLD)
    both.client.data(stream, grpc(b"12345"), end=True)
    both.run()
    both.answer(stream, Proceed(b"1234567890"))
    both.run()
    both.runtime.queue_reply(stream, status=4)
    both.run()

    assert bytes(both.runtime.streams[stream].body) == grpc(b"1234567890")[:10]
    assert both.runtime.streams[stream].over
    both.check_rest()
