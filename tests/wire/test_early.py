"""Calls that come before their rules are known wait for them, and no other call does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from criproxy.errors import StatusCode
from criproxy.wire import early as module
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Refuse, Rule, Verdict
from criproxy.wire.early import Early
from criproxy.wire.server import pass_on_error
from tests.wire.grpcworld import World, edit, grow

TOUCHED = ("/hold/Echo", "/hold/Count", "/hold/Squeeze")


@asynccontextmanager
async def waiting(path: Path) -> AsyncIterator[tuple[World, Early]]:
    """A proxy that does not know its rules yet."""
    early = Early(TOUCHED)
    async with World(path) as world:
        world.proxy.use(early.table)
        world.proxy.on_error = early.on_error
        yield world, early


async def held(world: World) -> None:
    """Wait until a call waits in the proxy."""
    while not any(link.held_calls for link in world.proxy.links):
        await world.check_version()  # others pass meanwhile


@asynccontextmanager
async def one_waits(
    path: Path, message: bytes = b"x"
) -> AsyncIterator[tuple[World, Early, grpc.aio.UnaryUnaryCall[bytes, bytes]]]:
    """The same, and a call that waits for its rule."""
    async with waiting(path) as (world, early):
        call = world.call("/hold/Echo", message)
        await held(world)
        yield world, early, call


async def test_only_touched_calls_wait(tmp_path: Path) -> None:
    """They go by the real rule when it is there: held, told of, and with an edited reply."""
    told = list[OutcomeKind]()
    real = Rule(hold=grow, edit=edit, done=lambda call, outcome: told.append(outcome.kind))
    async with one_waits(tmp_path) as (world, early, call):
        early.settle({"/hold/Echo": real}, pass_on_error)

        assert await call == b"x" + b" " * 500 + b"!" * 500
        await world.check_rest()
        assert told == [OutcomeKind.OK]


async def test_without_a_real_rule_a_call_passes(tmp_path: Path) -> None:
    """With a policy that touches nothing, those who waited go on as they came."""
    async with one_waits(tmp_path) as (world, early, call):
        early.settle({}, pass_on_error)

        assert await call == b"x"
        await world.check_rest()


async def test_every_message_of_a_stream_is_told(tmp_path: Path) -> None:
    """A server stream that waited is watched by the real rule."""
    told = list[bytes]()
    real = Rule(each=lambda call, message: told.append(message[:4]))
    async with waiting(tmp_path) as (world, early):
        stream = world.stream("/hold/Count", b"3 10")
        await held(world)

        early.settle({"/hold/Count": real}, pass_on_error)

        assert len([message async for message in stream]) == 3
        assert told == [number.to_bytes(4, "big") for number in range(3)]


async def test_who_cannot_be_decided_is_told_why(tmp_path: Path) -> None:
    """A start that fails refuses those who wait and those who come, and passes everybody else."""
    async with one_waits(tmp_path) as (world, early, call):
        early.fail("criproxy cannot serve: no policy")

        for refused in (call, world.call("/hold/Echo", b"y")):
            with pytest.raises(grpc.aio.AioRpcError, match="no policy") as caught:
                await refused
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await world.check_rest()


async def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the caller is told to try again."""
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    async with waiting(tmp_path) as (world, _):
        with pytest.raises(grpc.aio.AioRpcError, match="has been starting for more than"):
            await world.call("/hold/Echo", b"x")


async def test_a_call_that_is_cancelled_meanwhile_was_not_sent(tmp_path: Path) -> None:
    """Nobody is told of it, since nobody had heard of it; its window is given back."""
    told = list[Outcome]()
    async with one_waits(tmp_path, b"x" * 8_000) as (world, early, call):
        call.cancel()
        while any(link.held_calls for link in world.proxy.links):
            await world.check_version()

        early.settle({"/hold/Echo": Rule(done=lambda call, outcome: told.append(outcome))}, pass_on_error)

        await world.check_rest()
        assert told == []


@pytest.mark.parametrize(
    ("rule", "answered"),
    [
        pytest.param(Rule(hold=grow), False, id="held: the real error handler decides"),
        pytest.param(Rule(), True, id="not held: it passes"),
    ],
)
async def test_a_message_that_cannot_be_read(tmp_path: Path, rule: Rule, answered: bool) -> None:
    """What would not have been looked at is not refused for being unreadable."""

    async def refuse(call: Call, message: bytes | None, error: Exception) -> Verdict:
        return Refuse(StatusCode.INTERNAL, f"unreadable: {message!r}")

    async with waiting(tmp_path) as (world, early):
        request = bytes(2_000)
        call = asyncio.ensure_future(world.call("/hold/Echo", request, compression=grpc.Compression.Deflate))
        await held(world)
        early.settle({"/hold/Echo": rule}, refuse)

        if answered:
            assert await call == request
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="unreadable: None"):
                await call


async def test_a_handler_that_fails_has_the_real_error_handler(tmp_path: Path) -> None:
    """What is done about failures is known by then, too."""

    async def fails(call: Call, message: bytes) -> Verdict:
        raise ValueError("broken")

    async def anyway(call: Call, message: bytes | None, error: Exception) -> Verdict:
        return Proceed((message or b"") + str(error).encode())

    async with one_waits(tmp_path, b"is ") as (_, early, call):
        early.settle({"/hold/Echo": Rule(hold=fails)}, anyway)

        assert await call == b"is broken"
