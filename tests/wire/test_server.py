"""The proxy on real sockets between real gRPC peers: handlers, errors of ours, drain, and lost runtimes."""

import asyncio
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from criproxy.wire import frames
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed, Rule, Verdict
from criproxy.wire.frames import PREFACE, SETTINGS, frame
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import listen
from tests.wire.grpcworld import World
from tests.wire.rawsockets import proxy_at

HOLD, WATCH, PASS, SLOW = "/hold/Echo", "/watch/Echo", "/pass/Echo", "/pass/Wait"


async def add(call: Call, message: bytes) -> Verdict:
    """Let a longer message go on."""
    return Proceed(message + b" held")


async def fail(call: Call, message: bytes) -> Verdict:
    """Have a defect."""
    raise ValueError("oh")


async def test_another_table_is_for_new_calls(tmp_path: Path) -> None:
    """A call under way ends by the rule that it began with, and no count is lost."""
    waiting, go_on, ended = asyncio.Event(), asyncio.Event(), list[OutcomeKind]()

    async def hold(call: Call, message: bytes) -> Verdict:
        waiting.set()
        await go_on.wait()
        return Proceed(message + b" held")

    held = Rule(hold=hold, done=lambda call, outcome: ended.append(outcome.kind))
    async with World(tmp_path, table={HOLD: held}) as world:
        first = asyncio.ensure_future(world.call(HOLD, b"x"))
        await waiting.wait()
        world.proxy.use({})
        assert await world.call(HOLD, b"y") == b"y"
        go_on.set()
        assert (await first, await world.call(HOLD, b"y")) == (b"x held", b"y")
        world.proxy.use({HOLD: held})
        assert await world.call(HOLD, b"z") == b"z held"
        entry = world.proxy.stats.entries[HOLD.encode()]

    assert ended == [OutcomeKind.OK, OutcomeKind.OK]
    assert (entry.calls, entry.earlier, sum(entry.held.counts)) == (1, {"hold": 1, "pass": 2}, 2)


async def test_failing_handler_asks_the_error_handler(tmp_path: Path) -> None:
    """It sees call, message and error, and its verdict counts."""
    asked: list[tuple[str, bytes | None, str]] = []

    async def on_error(call: Call, message: bytes | None, error: Exception) -> Verdict:
        asked.append((call.method, message, str(error)))
        return Proceed(b"by the error handler")

    async with World(tmp_path, table={HOLD: Rule(hold=fail)}, on_error=on_error) as world:
        assert await world.call(HOLD, b"x") == b"by the error handler"
        assert world.proxy.stats.handler_errors == 1

    assert asked == [(HOLD, b"x", "oh")]


async def test_failing_error_handler_refuses(tmp_path: Path) -> None:
    """A container is not started on CPUs that nobody has thought about; the connection lives on."""

    async def on_error(call: Call, message: bytes | None, error: Exception) -> Verdict:
        raise OSError("disk")

    async with World(tmp_path, table={HOLD: Rule(hold=fail)}, on_error=on_error) as world:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.call(HOLD, b"x")
        assert (await world.call(PASS, b"y"), world.proxy.stats.connections_total) == (b"y", 1)

    assert caught.value.code() is grpc.StatusCode.INTERNAL


async def test_failing_done_handler_costs_nothing(tmp_path: Path) -> None:
    """The call has its reply, and the fault is counted."""

    def done(call: Call, outcome: Outcome) -> None:
        raise ValueError("oh")

    async with World(tmp_path, table={WATCH: Rule(done=done)}) as world:
        assert (await world.call(WATCH, b"x"), world.proxy.stats.handler_errors) == (b"x", 1)


async def test_cancelled_call_cancels_its_handler(tmp_path: Path) -> None:
    """The handler ends when the client gives up, and the outcome says that nothing was sent."""
    begun, ended, outcomes = asyncio.Event(), asyncio.Event(), []

    async def hold(call: Call, message: bytes) -> Verdict:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Proceed()

    async with World(tmp_path, table={HOLD: Rule(hold=hold, done=lambda call, o: outcomes.append(o))}) as world:
        attempt = world.call(HOLD, b"x")
        await begun.wait()
        attempt.cancel()
        await asyncio.wait_for(ended.wait(), 60)
        assert (await world.call(PASS, b"y"), world.proxy.stats.cancelled_held) == (b"y", 1)

    assert outcomes == [Outcome(OutcomeKind.NOT_SENT)]


async def test_missing_runtime_closes_the_connection(tmp_path: Path) -> None:
    """The client sees what it would see without us, and nothing is left."""
    async with World(tmp_path, table={}, serving=False) as world:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await world.call(PASS, b"x")
        assert world.proxy.stats.dial_failures >= 1

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert world.proxy.links == set()


async def test_drain_lets_open_calls_finish(tmp_path: Path) -> None:
    """A call that is with the runtime gets its reply after GOAWAY; then the connection ends."""
    async with World(tmp_path, table={}) as world:
        slow = asyncio.ensure_future(world.call(SLOW, b"x"))
        await world.begun(1)
        draining = asyncio.ensure_future(world.proxy.drain(60))
        await asyncio.sleep(0)  # the GOAWAY is written before the call goes on
        world.runtime.go_on.set()

        assert await slow == b"x"
        await draining
        assert world.proxy.links == set()


async def test_drain_does_not_wait_for_who_keeps_a_connection_without_calls(tmp_path: Path) -> None:
    """A client that reads our GOAWAY and does not close holds up nobody: its successor waits for our end."""
    async with World(tmp_path, table={}) as world:
        reader, writer = await asyncio.open_unix_connection(world.path / "proxy")
        writer.write(PREFACE + frame(SETTINGS, 0, 0))
        await asyncio.wait_for(reader.readexactly(9), 60)

        async with asyncio.timeout(60):
            await world.proxy.drain(60)

        assert world.proxy.links == set()
        assert bytes([7, 0, 0, 0, 0, 0]) in await reader.read(), "a GOAWAY came first"
        writer.close()


async def test_drain_cuts_what_does_not_end(tmp_path: Path) -> None:
    """After its time, a call that hangs is ended with the connection, its outcome unknown."""
    outcomes: list[Outcome] = []
    async with World(tmp_path, table={SLOW: Rule(done=lambda call, o: outcomes.append(o))}) as world:
        slow = asyncio.ensure_future(world.call(SLOW, b"x"))
        await world.begun(1)
        await world.proxy.drain(0.05)
        with pytest.raises(grpc.aio.AioRpcError):
            await slow

    assert (outcomes, world.proxy.links) == ([Outcome(OutcomeKind.UNKNOWN)], set())


@pytest.mark.parametrize("turns", range(3))
async def test_a_drain_that_is_cancelled_as_the_last_connection_ends_is_cancelled(tmp_path: Path, turns: int) -> None:
    """In whichever turn of the loop: who ends the proxy must not be kept waiting for a drain that was given up."""
    async with World(tmp_path, table={}) as world:
        assert await world.call(PASS, b"x") == b"x"
        draining = asyncio.create_task(world.proxy.drain(60))
        await asyncio.sleep(0)
        (link,) = world.proxy.links
        world.proxy.closed(link)
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = draining.done()

        draining.cancel()
        await asyncio.wait([draining])

        assert draining.cancelled() is not is_over


async def test_slow_reader_stops_the_runtime(tmp_path: Path) -> None:
    """What a client does not read is not read from the runtime: the rest waits in the runtime's socket."""
    sent, stalled = 0, asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(frame(SETTINGS, 0, 0))
        unknown = frame(0xEE, 0, 0, b"x" * 16_384)  # an unknown kind: no flow control
        while sent < 100 << 20:
            writer.write(unknown)
            sent += len(unknown)
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                break
        stalled.set()

    runtime = await asyncio.start_unix_server(flood, tmp_path / "runtime")
    async with proxy_at(tmp_path) as (proxy, path):
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, path)
            await stalled.wait()
            (link,) = proxy.links
            assert link.client.transport is not None
            runtime.close()
            await runtime.wait_closed()

            assert link.client.transport.get_write_buffer_size() < 2 << 20
            assert sent < 20 << 20


# ---------------------------------------------------------------- a lost runtime


HELLO = frames.frame(frames.SETTINGS, 0, 0)
GOAWAY = frames.frame(frames.GOAWAY, 0, 0, b"\x7f\xff\xff\xff" + bytes(4))
LIMIT_S = 60.0


@pytest.mark.parametrize(
    ("says", "runtime_hangs_up", "told"),
    [
        pytest.param(HELLO, True, 1, id="runtime-hangs-up"),
        pytest.param(HELLO + GOAWAY, False, 1, id="kubelet-hangs-up-after-a-goaway"),
        pytest.param(HELLO, False, 0, id="kubelet-hangs-up"),
    ],
)
async def test_a_lost_runtime_is_told_of(tmp_path: Path, says: bytes, runtime_hangs_up: bool, told: int) -> None:
    """Once for each connection; a kubelet that goes by itself says nothing about the runtime."""

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        if not runtime_hangs_up:
            await reader.read(-1)
        writer.close()

    losses: list[None] = []
    listener = listen(str(tmp_path / "criproxy.sock"), 0o600)
    proxy = Proxy(str(tmp_path / "runtime.sock"), {}, on_runtime_lost=lambda: losses.append(None))
    async with asyncio.timeout(LIMIT_S), await asyncio.start_unix_server(runtime, tmp_path / "runtime.sock"):
        await proxy.start(listener.sock)
        reader, writer = await asyncio.open_unix_connection(listener.path)
        writer.write(frames.PREFACE + HELLO)
        await (reader.read(-1) if runtime_hangs_up else reader.readexactly(len(says)))
        writer.close()
        while proxy.links:  # noqa: ASYNC110 (a proxy tells nobody of the end of one link)
            await asyncio.sleep(0.005)
        await proxy.drain(0)
    listener.close()

    assert len(losses) == told
