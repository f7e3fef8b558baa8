"""Checks of the data plane between strict endpoints that the planted mistakes must fail, too: each raises or passes."""

import gc
import random
from collections.abc import Callable

from criproxy.errors import StatusCode
from criproxy.wire.calls import Proceed, Refuse
from tests.wire.rawpeer import INITIAL_WINDOW, Endpoint, Fields, Style, grpc
from tests.wire.scripts import WINDOWS, Life, Step, chunks
from tests.wire.spliced import EDIT, HOLD, PASS, Spliced

Check = Callable[[], None]
BODY = bytes(8_192)
NO_ROOM = Refuse(StatusCode.RESOURCE_EXHAUSTED, "no CPUs are left")
ACTIONS = ["open"] * 3 + ["push"] * 4 + ["pipe"] * 6 + ["run", "reply", "answer"] * 2 + ["grant", "settings", "reset"]
ACTIONS += ["noise"]


def half_peers(client: Style | None = None) -> Spliced:
    """Two peers that give window back when half of it is used, past their greetings."""
    both = Spliced(
        client=Endpoint(client=True, grants="half", style=client), runtime=Endpoint(client=False, grants="half")
    )
    both.run()
    return both


def random_life(seed: int) -> None:
    """One random life of a connection, all of it checked; the same for the same seed."""
    dice = random.Random(seed)

    def endpoint(*, client: bool) -> Endpoint:
        style = Style(dice.choice([16_384, 1_000]), dice.choice([0, 0, 255]), dice.choice([0, 1, 20]))
        grants = dice.choice(["eager", "half", "manual"])
        return Endpoint(client=client, settings={INITIAL_WINDOW: dice.choice(WINDOWS)}, grants=grants, style=style)

    script: list[Step] = [
        (dice.choice(ACTIONS), dice.randrange(64), dice.randrange(64)) for _ in range(dice.randrange(60))
    ]
    life = Life(endpoint(client=True), endpoint(client=False), chunks(seed))
    life.play(script)
    life.settle()


def lives(count: int) -> None:
    """So many random lives."""
    for seed in range(count):
        random_life(seed)


def _rest(both: Spliced, number: int) -> None:
    """Every hundred calls: Version answers, all windows are right, nothing is kept."""
    if number % 100 == 0:
        both.check_version()
        both.check_rest()
        for end in (both.client, both.runtime):
            end.forget_closed()
        both.told.clear()


def refusals(count: int) -> int:
    """Refuse calls of 8 kB on one connection; the runtime's answer crosses every third refusal.

    Returns how many objects more there are after the second half than after the first.
    """
    both, objects = half_peers(), list[int]()
    for number in range(1, count + 1):
        extra: Fields = [("x-number", str(number // 10))]
        stream = both.client.open(HOLD, extra=extra)
        both.client.queue(stream, grpc(BODY), end=True)
        both.client.push(stream)
        both.client_writes()
        both.runtime_reads()
        if number % 3 == 0:
            both.runtime.send_block(stream, [(":status", "200"), *extra])
            both.runtime.send_block(stream, [("grpc-status", "12"), ("x-late", str(number))], end=True)
        assert both.answer(stream, NO_ROOM)
        both.run()
        half = both.client.streams[stream]
        assert half.status == str(int(NO_ROOM.code))
        assert len(half.late_blocks) == (2 if number % 3 == 0 else 0), "a late header block got lost"
        assert both.told[-1].what is not None
        assert not both.runtime.streams[stream].body
        _rest(both, number)
        if number in (count // 2, count):
            gc.collect()
            objects.append(len(gc.get_objects()))
    _rest(both, 0)
    return objects[1] - objects[0]


def cancels(count: int) -> None:
    """Cancel calls of 8 kB while they are held, on one connection."""
    both = half_peers()
    for number in range(1, count + 1):
        stream = both.start(HOLD, BODY)
        both.run()
        assert list(both.held) == [stream], "the message did not come through"
        both.client.reset(stream)
        both.run()
        assert not both.held
        assert not both.runtime.streams[stream].body
        assert [event.kind for event in both.told[-3:]] == ["held", "cancelled", "ended"]
        _rest(both, number)
    _rest(both, 0)


def long_message() -> None:
    """A held message that needs several frames ends with the last of them."""
    both = half_peers()
    stream = both.start(HOLD, b"short")
    both.run()
    both.answer(stream, Proceed(b"l" * 40_000))
    both.run()
    half = both.runtime.streams[stream]
    assert (bytes(half.body), half.ended) == (grpc(b"l" * 40_000), True)
    both.runtime.queue_reply(stream, b"done")
    both.run()
    both.check_version()
    both.check_rest()


def split_headers() -> None:
    """Header blocks in CONTINUATION frames name the call as whole ones do, and keep the decoder in step."""
    both = half_peers(Style(block_max=5))
    for _ in range(3):
        stream = both.start(HOLD, b"held")
        both.run()
        assert list(both.held) == [stream], "the call was not recognised"
        both.answer(stream, Proceed())
        both.run()
        both.runtime.queue_reply(stream, b"done")
        both.run()
        both.check_version()
    both.check_rest()


def grown_reply() -> None:
    """A reply that grew beyond the client's window keeps its trailers, and later replies' headers, behind it."""
    both = Spliced(client=Endpoint(client=True, settings={INITIAL_WINDOW: 500}, grants="manual"))
    both.run()
    stream, other = both.start(EDIT, b"request"), both.start(PASS, b"request")
    both.run()
    both.runtime.queue_reply(stream, b"2" * 400)
    both.run()
    both.runtime.queue_reply(other, b"0 other")
    both.run()
    assert not both.client.streams[stream].ended
    assert not both.client.streams[other].blocks
    both.client.grant(stream, 10_000)
    both.run()
    assert bytes(both.client.streams[stream].body) == grpc(b"2" * 400 + b"+" * 3_000)
    assert bytes(both.client.streams[other].body) == grpc(b"0 other")
    both.check_version()
    both.check_rest()
