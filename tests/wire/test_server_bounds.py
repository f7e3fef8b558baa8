"""Hostile, dead and short-lived peers on real sockets: they cost bounded memory, harm nobody, leave nothing behind."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from criproxy.errors import StatusCode, WireError
from criproxy.wire import flow, replies, server
from criproxy.wire.calls import Call, Proceed, Refuse, Rule, Verdict
from criproxy.wire.frames import HEADERS, frame
from criproxy.wire.frames import SETTINGS_INITIAL_WINDOW_SIZE as INITIAL_WINDOW
from criproxy.wire.message import encode
from criproxy.wire.server import Link
from criproxy.wire.splice import Splice
from tests.daemons import until
from tests.wire.rawpeer import Endpoint, Stream, Style
from tests.wire.rawsockets import RawRuntime, open_files, proxy_at, raw_client
from tests.wire.spliced import EDIT, HOLD, PASS, WATCH, Spliced

CONNECTIONS = 2_000
"""More than the files that a process may usually open."""
MIB = 1 << 20
LONG_TEXT = "no room " * 110


async def grow(call: Call, message: bytes) -> Verdict:
    """A handler that changes the message."""
    return Proceed(message + b"+" * 100)


async def refuse(call: Call, message: bytes) -> Verdict:
    """A handler that wants nothing."""
    return Refuse(StatusCode.UNAVAILABLE, LONG_TEXT)


def nothing(call: Call, what: object) -> None:
    """Watch, and forget."""


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[RawRuntime]:
    """A runtime that answers every call with its request."""
    async with RawRuntime(str(tmp_path / "runtime")) as made:
        yield made


@pytest.mark.parametrize("window", [65_535, 100])
async def test_strict_peers_on_sockets(tmp_path: Path, window: int) -> None:
    """Calls of all ways with one-byte frames, padding and split headers; the ledgers are the peers' own windows."""
    style = Style(data_max=5, pad=3, block_max=7)
    far_end = partial(Endpoint, client=False, settings={INITIAL_WINDOW: window}, style=style)
    table = {HOLD: Rule(hold=grow), WATCH: Rule(done=nothing), EDIT: Rule(edit=lambda call, message: message * 2)}
    async with (
        RawRuntime(str(tmp_path / "runtime"), far_end) as runtime,
        proxy_at(tmp_path, table) as (proxy, path),
    ):
        end = Endpoint(client=True, settings={INITIAL_WINDOW: window}, style=style)
        async with raw_client(path, end) as client:
            for path_of_call in [PASS, WATCH, HOLD, EDIT] * 8:
                stream = end.open(path_of_call)
                end.queue(stream, encode(b"m" * 300), end=True)
            client.write()
            for stream in list(end.streams):
                assert (await client.over(stream)).status == "0"
            (link,), (far,) = proxy.links, runtime.connections
            assert far.error is None
            connection, other = link.splice.connection, far.endpoint
            requests, replied = connection.requests, connection.replies
            # The last to read may be the proxy, of which the peers hear nothing.
            await until(lambda: (other.recv_window, other.send_window) == (requests.receiver, replied.sender))
            await until(lambda: (end.recv_window, end.send_window) == (replied.receiver, requests.sender))
            assert (far.error, client.error) == (None, None)
            assert requests.in_flight == replied.in_flight == 0
        await until(lambda: not proxy.links)


HELLO = Endpoint(client=True).take()
BROKEN = {
    "no preface": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "undecodable headers": HELLO + frame(HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=list(BROKEN))
async def test_broken_client_is_told_and_alone(
    tmp_path: Path, runtime: RawRuntime, sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """It gets GOAWAY with the reason and is closed; the log says so; another client's calls go on."""
    async with proxy_at(tmp_path) as (proxy, path), raw_client(path) as other:
        before = other.endpoint.open(PASS)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        said = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
        assert len(said[said.rindex(b"\x07\x00\x00\x00\x00\x00") :]) > 20, "GOAWAY says why"
        assert proxy.stats.protocol_errors == 1
        assert "the peer broke the protocol" in capsys.readouterr().out
        other.endpoint.queue(before, encode(b"still here"), end=True)
        other.write()
        assert (await other.over(before)).got == encode(b"still here")


async def flood(path: str, data: bytes, most: int) -> int:
    """Send *data* again and again and never read; how many bytes went before nothing went for half a second."""
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, path)
    sent = 0
    try:
        await loop.sock_sendall(sock, HELLO)
        while sent < most:
            async with asyncio.timeout(0.5):
                await loop.sock_sendall(sock, data)
            sent += len(data)
    except TimeoutError:
        pass
    finally:
        sock.close()
    return sent


def calls(path: str, count: int) -> bytes:
    """So many calls with a small message."""
    end = Endpoint(client=True)
    end.take()
    for _ in range(count):
        stream = end.open(path)
        end.data(stream, encode(b"m" * 1_000), end=True)
    return end.take()


def fail_at_length(runtime: Endpoint, half: Stream) -> None:
    """Answer with an error whose text no window holds back."""
    fields = [(":status", "200"), ("grpc-status", "5"), ("grpc-message", f"{half.id} {LONG_TEXT}")]
    runtime.queue(half.id, fields=fields, end=True)


async def send_calls(sock: socket.socket, path: str, count: int) -> None:
    """Send so many small calls, each at most half a second long on its way, and read nothing."""
    end = Endpoint(client=True)
    end.take()
    for _ in range(count // 200):
        for _ in range(200):
            end.data(end.open(path), encode(b"m"), end=True)
        end.streams.clear()
        async with asyncio.timeout(0.5):
            await asyncio.get_running_loop().sock_sendall(sock, end.take())


@pytest.mark.parametrize("path_of_call", [PASS, HOLD])
async def test_client_that_never_reads(tmp_path: Path, path_of_call: str) -> None:
    """Errors from the runtime, and refusals of ours, pile up to a limit; then the client is not read any more.

    Or it is thrown out, when it opens more calls than anybody needs. What it sent in one read is still answered.
    """
    plain = partial(Endpoint, client=False, style=Style())
    async with (
        RawRuntime(str(tmp_path / "runtime"), plain, answer=fail_at_length),
        proxy_at(tmp_path, {HOLD: Rule(hold=refuse)}) as (proxy, path),
    ):
        memory_bytes = psutil.Process().memory_info().rss
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, path)
            await loop.sock_sendall(sock, HELLO)
            with pytest.raises((TimeoutError, BrokenPipeError)):
                await send_calls(sock, path_of_call, 40_000)
            for link in proxy.links:
                assert link.client.transport is not None
                assert link.client.transport.get_write_buffer_size() < 24 * MIB
            assert psutil.Process().memory_info().rss - memory_bytes < 60 * MIB
        await until(lambda: not proxy.links)


async def test_runtime_that_never_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is meant for it piles up to a limit; then its client is not read any more."""
    monkeypatch.setattr(server, "PAUSED_CHECK_S", 0.1)
    monkeypatch.setattr(server, "LINGER_S", 0.1)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "runtime"))
    listener.listen()
    async with proxy_at(tmp_path) as (proxy, path):
        unknown = frame(0xEE, 0, 0, bytes(16_000)) * 10  # a kind that no window holds back
        assert await flood(path, unknown, 100 * MIB) < 4 * MIB
        await until(lambda: not proxy.links)  # though the client is not read, its end is seen
    listener.close()


def test_edited_replies_beyond_all_windows_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime that ignores windows cannot fill the memory with replies that are collected."""
    monkeypatch.setattr(replies, "MAX_QUEUED_BYTES", MIB)
    both = Spliced()
    stream = both.start(EDIT, b"request")
    both.run()
    both.runtime.block(stream, [(":status", "200")])
    both.runtime.data(stream, b"\x00\x03\x00\x00\x00")
    for _ in range(100):
        both.runtime.data(stream, bytes(16_000))
    with pytest.raises(WireError, match="wait to be edited"):
        both.runtime_writes()


@pytest.mark.usefixtures("runtime")
async def test_answer_beyond_all_bounds_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler whose message finds no room at all costs that connection, and the call does not hang."""
    monkeypatch.setattr(flow, "MAX_QUEUED_BYTES", MIB)

    async def inflate(call: Call, message: bytes) -> Verdict:
        return Proceed(bytes(2 * MIB))

    async with proxy_at(tmp_path, {HOLD: Rule(hold=inflate)}) as (proxy, path), raw_client(path) as client:
        stream = client.endpoint.open(HOLD)
        client.endpoint.queue(stream, encode(b"m"), end=True)
        client.write()
        await asyncio.wait_for(client.closed.wait(), 60)
        assert proxy.stats.protocol_errors == 1


async def hello_and_go(path: str, number: int) -> None:
    """One of the many ways to come and go, by *number*."""
    if number % 50 == 0:
        async with raw_client(path) as client:
            stream = client.endpoint.open([PASS, HOLD, WATCH, EDIT][number // 50 % 4])
            client.endpoint.queue(stream, encode(b"m" * 100), end=True)
            client.write()
            await client.over(stream)
        return
    with socket.socket(socket.AF_UNIX) as sock, suppress(BrokenPipeError):
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, path)
        match number % 5:
            case 1:
                sock.send(HELLO)
            case 2:
                sock.send(HELLO + calls(HOLD, 1))
            case 3:
                sock.send(b"what?")
            case 4:
                await asyncio.sleep(0.002)
                sock.send(HELLO + calls(PASS, 1)[:50])
                await asyncio.sleep(0.002)


@pytest.mark.parametrize("reachable", [True, False])
async def test_thousands_of_connections_leave_nothing(tmp_path: Path, runtime: RawRuntime, reachable: bool) -> None:
    """No links, tasks, files or objects stay, however the clients end, and whether or not the runtime is there."""
    count = CONNECTIONS if reachable else CONNECTIONS // 2
    table = {HOLD: Rule(hold=grow, done=nothing), WATCH: Rule(done=nothing), EDIT: Rule(edit=lambda call, message: b"")}
    directory = tmp_path if reachable else tmp_path / "nowhere"
    directory.mkdir(exist_ok=True)
    async with proxy_at(directory, table) as (proxy, path):
        files, tasks = open_files(), len(asyncio.all_tasks())
        numbers = iter(range(count))

        async def worker() -> None:
            for number in numbers:
                await hello_and_go(path, number if reachable else 1 + number % 4)
                runtime.connections.clear()

        await asyncio.gather(*(worker() for _ in range(20)))
        await until(lambda: proxy.stats.connections_total == count and not proxy.links and open_files() <= files)
        assert (proxy.stats.connections_total, proxy.stats.connections_open) == (count, 0)
        await until(lambda: len(asyncio.all_tasks()) == tasks)
        runtime.connections.clear()
        gc.collect()
        assert not [thing for thing in gc.get_objects() if isinstance(thing, Link | Splice)]
        assert (proxy.stats.dial_failures > 0) is not reachable
