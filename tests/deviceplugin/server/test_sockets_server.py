"""A server on a socket in the kubelet's folder that is cancelled: it has ended then, and leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from criproxy.deviceplugin.server import sockets
from criproxy.deviceplugin.server.sockets import Identity, Server
from tests.deviceplugin.news import PATIENT_S, poll


def names(folder: Path) -> list[str]:
    """What lies in *folder*."""
    return [each.name for each in folder.iterdir()]


async def test_a_start_that_is_cancelled_while_grpc_starts(folder: Path) -> None:
    """Raises the cancellation, and no error of gRPC's that would take its place; no socket is left."""
    starting = asyncio.create_task(Server(folder / "a.sock", []).start())
    await poll(lambda: any(name.endswith(".sock") for name in names(folder)))
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert names(folder) == []


async def test_a_start_that_is_cancelled_while_its_socket_gets_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits for the thread that gives it the name, and removes the socket."""
    named, go_on, claim = Event(), Event(), sockets.claim

    def slow(hidden: Path, path: Path) -> Identity:
        claimed = claim(hidden, path)
        named.set()
        assert go_on.wait(PATIENT_S)
        return claimed

    monkeypatch.setattr(sockets, "claim", slow)
    starting = asyncio.create_task(Server(folder / "a.sock", []).start())
    await asyncio.to_thread(named.wait, PATIENT_S)
    starting.cancel()
    await asyncio.sleep(0)
    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert names(folder) == []


class Handler:
    """A method whose call ends only when it is let go, whatever gRPC does to it."""

    def __init__(self) -> None:
        self.called, self.let_go = asyncio.Event(), asyncio.Event()

    async def wait(self, _request: bytes, _context: object) -> bytes:
        """Answer late."""
        self.called.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        return b""


@pytest.fixture
async def busy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Server, Handler]]:
    """A server with a call under way that does not end by itself."""
    monkeypatch.setattr(sockets, "STOP_S", 0.01)
    handler = Handler()
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Wait": grpc.unary_unary_rpc_method_handler(handler.wait)}
    server = Server(folder / "a.sock", [grpc.method_handlers_generic_handler("a.B", methods)])
    await server.start()
    async with grpc.aio.insecure_channel(f"unix://{folder}/a.sock") as channel:
        method: Any = channel.unary_unary("/a.B/Wait")
        call = asyncio.ensure_future(method(b""))
        async with asyncio.timeout(PATIENT_S):
            await handler.called.wait()
        yield server, handler
        handler.let_go.set()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_stop_that_is_cancelled(
    busy: tuple[Server, Handler], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goes on to its end first: no call can reach the server then, and gRPC's own end is not cancelled half way."""
    monkeypatch.setattr(sockets, "END_S", PATIENT_S)
    server, handler = busy
    stopping = asyncio.create_task(server.stop())
    await poll(lambda: not names(folder))
    stopping.cancel()
    await asyncio.sleep(0)
    assert not stopping.done()
    handler.let_go.set()

    with pytest.raises(asyncio.CancelledError):
        await stopping


async def test_a_stop_while_a_call_does_not_end(
    busy: tuple[Server, Handler], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits for a moment only; no new call can come."""
    monkeypatch.setattr(sockets, "END_S", 0.1)
    server, handler = busy

    async with asyncio.timeout(PATIENT_S):
        await server.stop()
        while names(folder):  # noqa: ASYNC110 (a thread removes it, perhaps after that moment)
            await asyncio.sleep(0)

    assert not handler.let_go.is_set()
