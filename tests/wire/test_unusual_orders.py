"""Orders of frames that peers may choose and rarely do, between strict endpoints; each was a bug once."""

from criproxy.errors import StatusCode
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
