"""Thousands of calls on one connection, in memory between strict endpoints."""

import gc

import pytest

from criproxy.errors import StatusCode
from criproxy.wire.calls import Refuse
from criproxy.wire.message import encode
from tests.wire.rawpeer import Texts
from tests.wire.spliced import HOLD, Spliced, half_peers

pytestmark = pytest.mark.slow
many = pytest.mark.parametrize("count", [1_400, pytest.param(20_000, marks=pytest.mark.thorough)])
BODY = bytes(8_192)
NO_ROOM = Refuse(StatusCode.RESOURCE_EXHAUSTED, "no CPUs are left")


def check_hundred(both: Spliced, number: int) -> None:
    """Every hundred calls: Version answers, all windows are right, nothing is kept."""
    if number % 100 == 0:
        both.check_version()
        both.check_rest()
        for end in (both.client, both.runtime):
            end.forget_closed()
        both.told.clear()


@many
def test_thousands_of_refusals(count: int) -> None:
    """Header tables stay in step, each window is returned, though the runtime's answer crosses every third refusal.

    Beside the remembered numbers of refused streams, as many objects exist after many calls as before.
    """
    both, objects = half_peers(), list[int]()
    for number in range(1, count + 1):
        extra: Texts = [("x-number", str(number // 10))]
        stream = both.client.open(HOLD, extra=extra)
        both.client.queue(stream, encode(BODY), end=True)
        both.client.push(stream)
        both.client_writes()
        both.runtime_reads()
        if number % 3 == 0:
            both.runtime.block(stream, [(":status", "200"), *extra])
            both.runtime.block(stream, [("grpc-status", "12"), ("x-late", str(number))], end=True)
        assert both.answer(stream, NO_ROOM)
        both.run()
        half = both.client.streams[stream]
        assert half.status == str(int(NO_ROOM.code))
        assert len(half.late_blocks) == (2 if number % 3 == 0 else 0), "a late header block got lost"
        assert not both.runtime.streams[stream].got
        check_hundred(both, number)
        if number in (count // 2, count):
            gc.collect()
            objects.append(len(gc.get_objects()))
    assert objects[1] - objects[0] < 100


@many
def test_thousands_of_cancels(count: int) -> None:
    """The same for calls that are cancelled while they are held."""
    both = half_peers()
    for number in range(1, count + 1):
        stream = both.start(HOLD, BODY)
        both.run()
        assert list(both.held) == [stream], "the message did not come through"
        both.client.cancel(stream)
        both.run()
        assert not both.held
        assert not both.runtime.streams[stream].got
        assert both.told[-3:] == ["held", "cancelled", "ended"]
        check_hundred(both, number)
