"""Calls of criproxy's own: with real gRPC peers, and with peers that break off, refuse or talk nonsense."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from criproxy.errors import StatusCode
from criproxy.wire import frames
from criproxy.wire.client import STREAM_WINDOW_BYTES, CallError, Channel
from criproxy.wire.frames import frame as build
from criproxy.wire.message import encode as message
from tests.wire.grpcworld import COMMON, PEERS, Options, Runtime

LIMIT_S = 30.0
PATH = "/pass/Echo"
# Fields without a dynamic table: ":status 200" is 0x88 of the static one.
OK = b"\x88" + b"\x00\x0ccontent-type\x10application/grpc"
TRAILERS = b"\x00\x0bgrpc-status\x010"


@asynccontextmanager
async def serving(path: Path, runtime: Runtime, options: Options) -> AsyncIterator[grpc.aio.Server]:
    """Serve the methods of *runtime* on *path* with grpc."""
    server = grpc.aio.server(options=[*COMMON, *options])
    server.add_generic_rpc_handlers((runtime,))
    server.add_insecure_port(f"unix://{path}")
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


@pytest.fixture(params=PEERS)
async def runtime(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    """A gRPC server on ``r.sock``, with usual and with the smallest windows and frames."""
    found = Runtime()
    async with serving(tmp_path / "r.sock", found, PEERS[request.param]):
        yield found


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[Channel]:
    """A channel to ``r.sock``."""
    found = Channel(str(tmp_path / "r.sock"))
    yield found
    found.close()


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("size", [0, 1, 16_380, 65_535, 3_000_000])
async def test_a_message_of_any_size_goes_there_and_back(channel: Channel, size: int) -> None:
    """Larger than a frame, than the first window, and compressed by the peer."""
    sent = bytes(range(256)) * (size // 256) + bytes(size % 256)

    assert await channel.unary(PATH, sent, LIMIT_S) == sent
    assert await channel.unary("/pass/Squeeze", sent, LIMIT_S) == sent


@pytest.mark.usefixtures("runtime")
@pytest.mark.parametrize("code", [code for code in StatusCode if code])
async def test_a_status_comes_with_its_text(channel: Channel, code: StatusCode) -> None:
    """And the connection serves on."""
    with pytest.raises(CallError) as caught:
        await channel.unary("/pass/Status", f"{int(code)} nö: 50 % „left“\n".encode(), LIMIT_S)

    assert (caught.value.code, caught.value.details) == (code, "nö: 50 % „left“\n")
    assert await channel.unary(PATH, b"again", LIMIT_S) == b"again"


async def test_calls_at_once_share_a_connection_and_do_not_wait_for_each_other(
    channel: Channel, runtime: Runtime
) -> None:
    """One that hangs holds up no other, and is answered when the peer goes on."""
    waiting = asyncio.create_task(channel.unary("/pass/Wait", b"slow", LIMIT_S))
    replies = await asyncio.gather(*(channel.unary(PATH, b"%d" % n * 9_000, LIMIT_S) for n in range(40)))
    assert replies == [b"%d" % n * 9_000 for n in range(40)]
    assert not waiting.done()
    runtime.go_on.set()
    assert await waiting == b"slow"


@pytest.mark.usefixtures("runtime")
async def test_a_reader_that_lags_gets_every_message_of_a_stream(channel: Channel) -> None:
    """More than a window of them, in order; other calls do not wait for it."""
    count, size = 40, STREAM_WINDOW_BYTES // 16
    numbers = list[int]()
    async for reply in channel.stream("/pass/Count", b"%d %d" % (count, size)):
        if not numbers:
            assert await channel.unary(PATH, b"beside", LIMIT_S) == b"beside"
        numbers.append(int.from_bytes(reply[:4], "big"))
        assert len(reply) == size + 4
    assert numbers == list(range(count))


async def test_a_deadline_ends_the_call_here_and_there(channel: Channel, runtime: Runtime) -> None:
    """The peer learns of it; `is_own` tells the deadline from one that the peer reports."""
    with pytest.raises(CallError) as caught:
        await channel.unary("/pass/Wait", b"", 0.2)
    assert (caught.value.code, caught.value.is_own) == (StatusCode.DEADLINE_EXCEEDED, True)
    with pytest.raises(CallError) as caught:
        await channel.unary("/pass/Status", b"4 mine", LIMIT_S)
    assert (caught.value.code, caught.value.is_own) == (StatusCode.DEADLINE_EXCEEDED, False)
    assert runtime.started == 1


async def test_a_stream_that_nobody_reads_on_is_cancelled(channel: Channel, runtime: Runtime) -> None:
    """And one whose reader is cancelled."""
    stream = channel.stream("/pass/Drip", b"first")
    assert await anext(stream) == b"first"
    waiting = asyncio.ensure_future(anext(stream))
    async with runtime.waiting:
        await runtime.waiting.wait_for(lambda: runtime.started == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await channel.unary(PATH, b"x", LIMIT_S) == b"x"


async def test_a_peer_that_is_back_is_reached_by_the_next_call(tmp_path: Path, channel: Channel) -> None:
    """Whatever failed before: no socket, nobody listening, a peer that ended in the middle of a call."""
    path = tmp_path / "r.sock"
    with pytest.raises(CallError) as caught:
        await channel.unary(PATH, b"", LIMIT_S)
    assert isinstance(caught.value.cause, FileNotFoundError)

    for _ in range(2):
        runtime = Runtime()
        async with serving(path, runtime, []):
            assert await channel.unary(PATH, b"here", LIMIT_S) == b"here"
            waiting = asyncio.create_task(channel.unary("/pass/Wait", b"", LIMIT_S))
            async with runtime.waiting:
                await runtime.waiting.wait()
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)


async def test_a_renewed_channel_lets_calls_in_flight_end(tmp_path: Path, channel: Channel) -> None:
    """Until it is renewed again, or closed: then they fail."""
    path, runtime = tmp_path / "r.sock", Runtime()
    async with serving(path, runtime, []):
        calls = [asyncio.create_task(channel.unary("/pass/Wait", b"old", LIMIT_S))]
        async with runtime.waiting:
            await runtime.waiting.wait_for(lambda: runtime.started == 1)
        channel.renew()
        path.rename(tmp_path / "former.sock")
        async with serving(path, Runtime(), []):
            assert await channel.unary(PATH, b"new", LIMIT_S) == b"new"
            runtime.go_on.set()
            assert await calls[0] == b"old"
            runtime.go_on.clear()
            channel.renew()
            channel.renew()
            assert await channel.unary(PATH, b"newest", LIMIT_S) == b"newest"


@asynccontextmanager
async def scripted(path: Path, *parts: bytes) -> AsyncIterator[None]:
    """A peer that reads a request and answers with *parts*, whatever they are, and then ends the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(PATH.encode())
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    try:
        yield
    finally:
        server.close()


def reply(*payloads: bytes, trailers: bytes = TRAILERS, stream: int = 1) -> bytes:
    """A whole reply on *stream*, with one DATA frame for each of *payloads*."""
    data = b"".join(build(frames.DATA, 0, stream, payload) for payload in payloads)
    end = build(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, trailers)
    return build(frames.SETTINGS, 0, 0) + build(frames.HEADERS, frames.END_HEADERS, stream, OK) + data + end


def status(number: bytes) -> bytes:
    """The HEADERS frame of a reply with an HTTP status."""
    return build(frames.HEADERS, frames.END_HEADERS, 1, b"\x00\x07:status\x03" + number)


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"", "UNAVAILABLE", "the connection was closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNAVAILABLE", "the peer broke HTTP/2: a frame of"),
        (build(frames.SETTINGS, 0, 0, b"odd"), "UNAVAILABLE", "the peer broke HTTP/2: a SETTINGS frame of 3 bytes"),
        (build(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff"), "UNAVAILABLE", "a header block cannot be read"),
        (build(frames.PUSH_PROMISE, frames.END_HEADERS, 1, bytes(4)), "UNAVAILABLE", "PUSH_PROMISE"),
        (build(frames.CONTINUATION, frames.END_HEADERS, 1, b""), "UNAVAILABLE", "CONTINUATION"),
        (build(frames.GOAWAY, 0, 0, bytes(8)), "UNAVAILABLE", "did not look at the call"),
        (
            build(frames.RST_STREAM, 0, 1, struct.pack(">I", frames.CANCEL)),
            "CANCELLED",
            "reset the call (HTTP/2 error 8)",
        ),
        (build(frames.RST_STREAM, 0, 1, struct.pack(">I", 2)), "INTERNAL", "reset the call (HTTP/2 error 2)"),
        (status(b"503"), "UNKNOWN", "HTTP status 503"),
        (build(frames.HEADERS, frames.END_HEADERS, 1, b"\x88"), "UNKNOWN", "the peer answers with ''"),
        (reply(message(b"a"), message(b"b")), "INTERNAL", "not exactly one message"),
        (reply(), "INTERNAL", "not exactly one message"),
        (reply(message(b"ab")[:-1]), "INTERNAL", "truncated"),
        (reply(b"\x02\x00\x00\x00\x00"), "INTERNAL", "compressed flag"),
        (reply(b"\x01\x00\x00\x00\x01x"), "INTERNAL", "a message in the encoding 'identity'"),
        (reply(struct.pack(">BI", 0, 101)), "RESOURCE_EXHAUSTED", "a message of 101 bytes: at most 100 are accepted"),
        (reply(message(b"a"), trailers=b"\x00\x0bgrpc-status\x0277"), "UNKNOWN", "the status '77'"),
        (reply(message(b"a"), trailers=b"\x00\x01x\x01y"), "UNKNOWN", "the status ''"),
    ],
)
async def test_an_answer_that_is_none_fails_its_call(tmp_path: Path, answer: bytes, code: str, text: str) -> None:
    """With the status that gRPC's own clients give it, and a sentence that says what came."""
    channel = Channel(str(tmp_path / "r.sock"), most_bytes=100)
    async with scripted(tmp_path / "r.sock", answer):
        with pytest.raises(CallError) as caught:
            await channel.unary(PATH, b"", LIMIT_S)
    assert caught.value.code.name == code
    assert text in caught.value.details
    channel.close()


@pytest.mark.parametrize(
    ("refusal", "said"), [("GOAWAY", "did not look at"), ("REFUSED_STREAM", "reset the call (HTTP/2 error 7)")]
)
async def test_a_call_that_the_peer_did_not_look_at_is_sent_once_more(
    tmp_path: Path, channel: Channel, refusal: str, said: str
) -> None:
    """To whoever listens on the path by then: a peer that restarts refuses so. A second refusal is the answer."""
    refuses = [True, False, True, True]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = 1
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(PATH.encode()):
                if not refuses.pop(0):
                    writer.write(reply(message(b"answer"), stream=stream))
                elif refusal == "GOAWAY":
                    writer.write(build(frames.GOAWAY, 0, 0, struct.pack(">II", stream - 1, 0)))
                else:
                    writer.write(build(frames.RST_STREAM, 0, stream, struct.pack(">I", frames.REFUSED_STREAM)))
                stream += 2
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "r.sock"):
        assert await channel.unary(PATH, b"", LIMIT_S) == b"answer"
        with pytest.raises(CallError) as caught:
            await channel.unary(PATH, b"", LIMIT_S)
        assert (caught.value.code, refuses) == (StatusCode.UNAVAILABLE, [])
        assert said in caught.value.details
        channel.close()


async def test_a_peer_that_ends_each_connection_at_once_leaves_no_call_without_an_answer(
    tmp_path: Path, channel: Channel
) -> None:
    """As a runtime does that is ending, or who stands before one that is away: the caller may try again at once."""
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as thread:
        listener.bind(str(tmp_path / "r.sock"))
        listener.listen()
        thread.submit(_end_each, listener)
        try:
            async with asyncio.timeout(LIMIT_S):
                for _ in range(200):
                    with pytest.raises(CallError) as caught:
                        await channel.unary(PATH, b"", 10 * LIMIT_S)
                    assert caught.value.code is StatusCode.UNAVAILABLE
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _end_each(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


async def test_a_reply_in_any_pieces_is_read(tmp_path: Path, channel: Channel) -> None:
    """With padding, a ping in between, headers in two frames, and informational ones before."""
    padded = build(frames.DATA, frames.PADDED, 1, b"\x03" + message(b"answer") + bytes(3))
    early = build(frames.HEADERS, frames.END_HEADERS, 1, b"\x00\x07:status\x03103")
    headers = build(frames.HEADERS, 0, 1, OK[:5]) + build(frames.CONTINUATION, frames.END_HEADERS, 1, OK[5:])
    whole = early + headers + build(frames.PING, 0, 0, bytes(8)) + padded + build(frames.HEADERS, 5, 1, TRAILERS)
    for step in (1, 7, 1000):
        path = tmp_path / "r.sock"
        async with scripted(path, *(whole[at : at + step] for at in range(0, len(whole), step))):
            assert await channel.unary(PATH, b"", LIMIT_S) == b"answer"
        channel.close()
        path.unlink(missing_ok=True)


FRAMES = st.builds(
    build, st.integers(0, 12), st.integers(0, 255), st.sampled_from([0, 1, 2, 3]), st.binary(max_size=40)
)
ODD = st.lists(st.one_of(FRAMES, st.binary(max_size=20), st.sampled_from([reply(message(b"a")), OK])), max_size=6)


@given(ODD)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_peer_sends_a_call_ends_with_an_answer_or_a_status(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    """Never with another exception, and never not at all."""

    async def ask() -> None:
        path = tmp_path_factory.mktemp("odd") / "r.sock"
        channel = Channel(str(path))
        async with scripted(path, *parts):
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
            with suppress(CallError):
                await channel.unary(PATH, b"", 2 * LIMIT_S)
        channel.close()

    failures: list[object] = []
    asyncio.run(asyncio.wait_for(ask(), LIMIT_S))
    assert not failures
