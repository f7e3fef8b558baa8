"""The data plane under all that real gRPC peers do at once; after each example all windows are where they were."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import grpc.aio
import pytest

from criproxy.errors import StatusCode
from criproxy.wire.calls import Call, OutcomeKind, Refuse, Verdict
from criproxy.wire.flow import Outflow
from criproxy.wire.frames import SETTINGS_INITIAL_WINDOW_SIZE as INITIAL_WINDOW
from tests.wire.grpcworld import GROWN_BYTES, PEERS, WAYS, World, invoke

Unary = grpc.aio.UnaryUnaryCall[bytes, bytes]
CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]
BODY = bytes(8_192)


def expected(way: str, request: bytes) -> bytes:
    """What Echo answers by that way."""
    sent = request + b" " * GROWN_BYTES if way in ("hold", "both") else request
    return sent + b"!" * GROWN_BYTES if way in ("edit", "both") else sent


@pytest.fixture(params=list(PEERS))
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Peers with usual and with the smallest windows and frames; every example ends at rest."""
    async with World(tmp_path, options=PEERS[request.param]) as made:
        await made.check_version()
        if request.param == "smallest":
            connection = made.link.splice.connection
            assert max(connection.to_runtime.initial_window, connection.to_client.initial_window) == 1_024
        yield made
        await made.check_rest()


async def test_many_calls_of_all_ways_at_once(world: World) -> None:
    """32 streams at a time, sizes from nothing to several windows: every reply is the right one."""
    sizes = [0, 1, 1_000, 16_379, 40_000, 200_000]
    calls = [(way, b"r" * size) for size in sizes for way in WAYS] * 4
    limit = asyncio.Semaphore(32)

    async def one(way: str, request: bytes) -> None:
        async with limit:
            reply = await world.call(f"/{way}/Echo", request)
        assert reply == expected(way, request)

    await asyncio.gather(*(one(*call) for call in calls))


@pytest.mark.parametrize("way", WAYS)
async def test_twelve_mebibytes(world: World, way: str) -> None:
    """Messages far beyond every window go through in both directions."""
    request = os.urandom(1 << 20) * 12
    assert await world.call(f"/{way}/Echo", request) == expected(way, request)


async def test_server_streams(world: World) -> None:
    """32 streams of replies at once, watched, edited and passed, all whole and in order."""

    async def one(way: str) -> None:
        tail = b"!" * GROWN_BYTES if way == "edit" else b""
        messages = [message async for message in world.stream(f"/{way}/Count", b"40 3000")]
        assert messages == [number.to_bytes(4, "big") + bytes(3_000) + tail for number in range(40)]

    await asyncio.gather(*(one(way) for way in ["pass", "watch", "edit", "edit"] * 8))


@pytest.mark.parametrize("way", WAYS)
async def test_every_status_as_it_is_direct(world: World, way: str) -> None:
    """Code, text, initial and trailing metadata, binary ones too, are those that the runtime sent."""
    if way in ("hold", "both"):
        world.proxy.stats.entries[f"/{way}/Status".encode()].rule = None  # its growing would change the text
    async with world.open_channel("runtime") as direct:
        for code in CODES:
            request = f"{code.value[0]} why: {code.name} 100% ünïcødé\n✂".encode()
            seen = []
            for channel in (direct, world.channel):
                call = invoke(channel, f"/{way}/Status", request, timeout=60)
                seen.append((await call.code(), await call.details(), await call.trailing_metadata()))
                assert seen[-1][0] is code
            assert seen[0] == seen[1]


async def test_every_refusal_shows_code_and_text(tmp_path: Path) -> None:
    """A handler may refuse with each code and any text."""

    async def refuse(call: Call, message: bytes) -> Verdict:
        number, text = message.decode().split(" ", 1)
        return Refuse(StatusCode(int(number)), text)

    async with World(tmp_path, hold=refuse) as world:
        for code in CODES:
            call = world.call("/hold/Echo", f"{code.value[0]} no: 100% {code.name} ünïcødé\n✂".encode())
            assert (await call.code(), await call.details()) == (code, f"no: 100% {code.name} ünïcødé\n✂")
        await world.check_rest()


@pytest.mark.parametrize("way", WAYS)
async def test_gzip_in_both_directions(world: World, way: str) -> None:
    """Compressed messages are looked at and changed like others."""
    request = b"squeeze me " * 30_000
    call = world.call(f"/{way}/Squeeze", request, compression=grpc.Compression.Gzip)
    assert await call == expected(way, request)


async def begun_calls(world: World, way: str, timeouts_s: Sequence[float | None]) -> list[Unary]:
    """32 calls on which the runtime works, with the first of the timeouts that leaves the time to begin them all."""
    for timeout_s in timeouts_s:
        world.outcomes.clear()
        before = world.runtime.started
        calls = [world.call(f"/{way}/Wait", BODY, timeout=timeout_s) for _ in range(32)]
        begun = asyncio.create_task(world.begun(before + 32))
        await asyncio.wait(
            {begun, *(asyncio.ensure_future(call.code()) for call in calls)}, return_when="FIRST_COMPLETED"
        )
        if begun.done():
            return calls
        begun.cancel()
        await asyncio.gather(*(call.code() for call in calls))
        await world.check_rest()
    raise AssertionError("32 calls do not begin in a minute")


@pytest.mark.parametrize("by", ["cancel", "deadline"])
@pytest.mark.parametrize("way", WAYS)
async def test_given_up_after_it_was_sent(world: World, way: str, by: str) -> None:
    """32 calls that the runtime works on are given up; unless it says first that it is too late, nobody knows."""
    calls = await begun_calls(world, way, (1.0, 8.0, 60.0) if by == "deadline" else (None,))
    if by == "cancel":
        for call in calls:
            call.cancel()
    codes = {await call.code() for call in calls}
    assert codes == {grpc.StatusCode.CANCELLED if by == "cancel" else grpc.StatusCode.DEADLINE_EXCEEDED}
    await world.check_rest()
    kinds = world.outcomes
    assert sum(kinds.values()) == (0 if way == "pass" else 32)
    assert set(kinds) <= {OutcomeKind.UNKNOWN} | ({OutcomeKind.FAILED} if by == "deadline" else set())


@pytest.mark.parametrize("way", WAYS)
async def test_given_up_during_the_reply(world: World, way: str) -> None:
    """Server streams are cancelled after their first message; a message is a success for the handlers."""
    calls = [world.stream(f"/{way}/Drip", bytes(2_000)) for _ in range(32)]
    for call in calls:
        assert await call.read() == expected(way, bytes(2_000))
        call.cancel()
    await world.check_rest()
    assert set(world.outcomes) <= {OutcomeKind.OK}


async def test_given_up_at_once(world: World) -> None:
    """Calls that are cancelled or run out of time before they are on their way, or somewhere on it, harm nobody."""

    async def one(way: str, after: float) -> None:
        call = world.call(f"/{way}/Echo", bytes(100_000), timeout=after or 60)
        if not after:
            call.cancel()
        assert await call.code() in (
            grpc.StatusCode.OK,
            grpc.StatusCode.CANCELLED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )

    await asyncio.gather(*(one(way, after) for after in (0, 0.0001, 0.002, 0.01, 0.03, 0.1) * 4 for way in WAYS))


async def test_windows_that_change_in_mid_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peers measure the line and change their windows while calls of all ways are open."""
    applied: list[tuple[Outflow, int]] = []
    right = Outflow.apply

    def spy(self: Outflow, settings: dict[int, int]) -> None:
        right(self, settings)
        if INITIAL_WINDOW in settings:
            applied.append((self, self.initial_window))

    monkeypatch.setattr(Outflow, "apply", spy)
    async with World(tmp_path, options=[("grpc.http2.bdp_probe", 1)]) as world:

        async def one(way: str) -> None:
            for size in (10, 5_000, 700_000, 3_000_000):
                request = bytes(size)
                assert await world.call(f"/{way}/Echo", request) == expected(way, request)

        for _ in range(50):  # until the peers have measured what makes them do it
            await asyncio.gather(*(one(way) for way in WAYS * 6))
            if len({size for _, size in applied}) > 2:
                break
        await world.check_rest()
    assert len(set(applied)) > 2, "besides the two greetings nothing changed: this test tests nothing"
