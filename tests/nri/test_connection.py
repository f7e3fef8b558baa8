"""A connection to a runtime: calls in both directions, and what ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from criproxy.errors import CriproxyError, StatusCode
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.connection import Answer, CallFailed, Connection, Ended
from criproxy.nri.frames import MESSAGE_MAX_BYTES, PLUGIN, RUNTIME, Frame, Kind, encoded
from tests.nri.peer import OnCall, Peer, Runtime, accept


async def echo(method: str, request: bytes) -> bytes:
    """Answer with the request."""
    return request


@asynccontextmanager
async def connected(
    path: Path,
    answer: Answer = echo,
    on_call: OnCall = accept,
    failed: Callable[[str, Exception], None] = lambda method, error: None,
) -> AsyncIterator[tuple[Connection, Peer, "asyncio.Task[None]"]]:
    """A connection, the other end, and the task that reads."""
    runtime = Runtime(path / "nri.sock", on_call)
    async with asyncio.timeout(30), runtime.listening():
        reader, writer = await asyncio.open_unix_connection(runtime.path)
        connection = Connection(reader, writer, answer, failed)
        reading = asyncio.get_running_loop().create_task(connection.run())
        try:
            yield connection, await runtime.peers.get(), reading
        finally:
            connection.close()
            with suppress(CriproxyError):
                await reading
            with suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize("size", [0, 1, 4096, 60_000, MESSAGE_MAX_BYTES - 100])
async def test_answers_of_any_size_arrive(tmp_path: Path, size: int) -> None:
    """In pieces that Go reads."""
    async with connected(tmp_path) as (_, peer, _):
        assert (await peer.begin("CreateContainer", bytes(size))).payload == bytes(size)


async def test_both_sides_call_at_once(tmp_path: Path) -> None:
    """The runtime asks while it has not answered: so it is with the registration."""
    goes_on = asyncio.Event()

    async def answer(method: str, request: bytes) -> bytes:
        if method == "Slow":
            await goes_on.wait()
        return method.encode()

    async with connected(tmp_path, answer) as (connection, peer, _):
        slow, fast = peer.begin("Slow", b""), peer.begin("Fast", b"")

        assert (await fast).payload == b"Fast"
        assert await connection.call("RegisterPlugin", b"") == b""
        assert not slow.done()
        goes_on.set()
        assert (await slow).payload == b"Slow"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (CallFailed(StatusCode.RESOURCE_EXHAUSTED, "no CPU is left"), StatusCode.RESOURCE_EXHAUSTED, "no CPU is left"),
        (RuntimeError("a secret"), StatusCode.INTERNAL, "criproxy failed in CreateContainer; its log has the cause"),
    ],
    ids=["refused", "failed"],
)
async def test_an_error_is_an_answer(tmp_path: Path, error: Exception, code: StatusCode, said: str) -> None:
    """And the connection goes on; the text of an unexpected error is for the log."""
    failures = list[tuple[str, Exception]]()

    async def answer(method: str, request: bytes) -> bytes:
        if request == b"well":
            return b"done"
        raise error

    async with connected(tmp_path, answer, failed=lambda *what: failures.append(what)) as (_, peer, _):
        status = (await peer.begin("CreateContainer", b"bad")).status

        assert (status.code, status.message) == (code, said)
        assert (await peer.begin("CreateContainer", b"well")).payload == b"done"
        assert failures == ([] if isinstance(error, CallFailed) else [("CreateContainer", error)])


async def test_requests_that_cannot_be_read_have_an_answer(tmp_path: Path) -> None:
    """Another service, and bytes that are no request."""
    async with connected(tmp_path) as (_, peer, _):
        other = await peer.begin("CreateContainer", b"", service="Other")
        peer.writer.write(encoded(Frame(PLUGIN, 101, Kind.REQUEST, b"\xff\xff")))
        peer._answers[101] = unreadable = asyncio.get_running_loop().create_future()

        assert other.status.code == StatusCode.UNIMPLEMENTED
        assert (await unreadable).status.code == StatusCode.INVALID_ARGUMENT


async def test_an_error_of_the_runtime_is_raised(tmp_path: Path) -> None:
    """With its code and text; a code that is none counts as unknown."""
    codes = iter([StatusCode.ALREADY_EXISTS, 99])

    def refuse(request: ttrpc.Request) -> ttrpc.Response:
        return ttrpc.Response(status=ttrpc.Status(code=next(codes), message="there is one"))

    async with connected(tmp_path, on_call=refuse) as (connection, _, _):
        for expected in (StatusCode.ALREADY_EXISTS, StatusCode.UNKNOWN):
            with pytest.raises(CallFailed, match="there is one") as raised:
                await connection.call("RegisterPlugin", b"")
            assert raised.value.code is expected


async def test_the_end_of_the_connection_ends_everything(tmp_path: Path) -> None:
    """Calls of ours fail, and what is being answered is cancelled."""
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def answer(method: str, request: bytes) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return b""

    async with connected(tmp_path, answer, lambda _: None) as (connection, peer, reading):
        peer.begin("CreateContainer", b"")
        await begun.wait()
        calling = asyncio.create_task(connection.call("UpdateContainers", b""))
        await asyncio.sleep(0)
        peer.writer.close()

        with pytest.raises(Ended, match=r"closed the connection|Connection reset"):
            await calling
        await cancelled.wait()
        with pytest.raises(Ended):
            await reading


@pytest.mark.parametrize(
    "frame",
    [Frame(PLUGIN, 1, Kind.DATA, b""), Frame(RUNTIME, 1, Kind.REQUEST, b""), Frame(PLUGIN, 1, Kind.RESPONSE, b"")],
    ids=["data", "request-on-the-wrong-connection", "response-on-the-wrong-connection"],
)
async def test_what_is_no_nri_ends_the_connection(tmp_path: Path, frame: Frame) -> None:
    """And the reason is said."""
    async with connected(tmp_path) as (_, peer, reading):
        peer.writer.write(encoded(frame))

        with pytest.raises(Ended, match=f"a frame of kind {int(frame.kind)} on connection {frame.connection}"):
            await reading
