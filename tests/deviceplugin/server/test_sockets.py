"""Names of sockets, who may take one, and a server on one that is cancelled: it leaves nothing behind."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.deviceplugin.server import sockets
from criproxy.deviceplugin.server.sockets import (
    MAX_PATH_BYTES,
    Identity,
    Server,
    SocketError,
    claim,
    hidden_path,
    identity,
    is_alive,
    release,
    remove_dead,
    socket_name,
)
from tests.deviceplugin.news import PATIENT_S, poll

KUBELET = Path("/var/lib/kubelet/device-plugins")


def listening(path: Path) -> socket.socket:
    """A socket that somebody listens on."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param("nvidia.com/gpu", "criproxy-nvidia.com_gpu.sock", id="plain"),
        pytest.param("nvidia.com/mig-1g.5gb", "criproxy-nvidia.com_mig-1g.5gb.sock", id="MIG"),
        pytest.param("a.b/c/d", "criproxy-a.b_c_d-7b2c1ae04b0c.sock", id="a second slash is replaced"),
    ],
)
def test_a_name(resource: str, name: str) -> None:
    """Says the resource; where it cannot, a digest makes it unique."""
    found = socket_name(resource, KUBELET)

    assert found.rpartition("-")[0] == name.rpartition("-")[0]
    assert (found == name) == (resource.count("/") == 1)


@given(st.lists(st.text(max_size=200), min_size=2, max_size=2, unique=True), st.integers(0, 60))
def test_names_differ_and_fit(resources: list[str], extra: int) -> None:
    """Two resources never share a name, each is one name in its folder, and its path is short enough."""
    folder = KUBELET / ("x" * extra) if extra else KUBELET
    try:
        found = [socket_name(each.encode(errors="replace").decode(), folder) for each in resources]
    except SocketError:
        assert extra > 30
        return

    assert found[0] != found[1]
    assert all("/" not in name and len(str(folder / name)) <= MAX_PATH_BYTES for name in found)


def test_a_dead_socket_is_replaced(folder: Path) -> None:
    """Whoever left it does not come back for it; the one that took its place is alive."""
    path = folder / "a.sock"
    listening(path).close()
    hidden = hidden_path(folder)
    with listening(hidden):
        claimed = claim(hidden, path)

        assert is_alive(path)
        assert identity(path) == claimed
        assert not hidden.exists()
        release(path, claimed)
    assert not path.exists()


def test_a_live_socket_is_not_taken(folder: Path) -> None:
    """It stays as it is."""
    path, hidden = folder / "a.sock", hidden_path(folder)
    with listening(path), listening(hidden):
        before = identity(path)
        with pytest.raises(SocketError, match="another process is listening on it"):
            claim(hidden, path)

        assert identity(path) == before


def test_a_socket_of_somebody_else_is_not_removed(folder: Path) -> None:
    """Another process has made one of the same name meanwhile."""
    path, hidden = folder / "a.sock", hidden_path(folder)
    with listening(hidden):
        claimed = claim(hidden, path)
        path.unlink()
        with listening(path):
            release(path, claimed)
            assert path.exists()


async def test_only_the_owner_may_connect(folder: Path) -> None:
    """The mode of a server's socket is 0600 whatever the umask, which stays as it was."""
    before = os.umask(0)
    try:
        server = Server(folder / "a.sock", [])
        await server.start()
        assert stat.S_IMODE((folder / "a.sock").stat().st_mode) == 0o600
        await server.stop()
    finally:
        assert os.umask(before) == 0


def test_no_socket_is_alive(folder: Path) -> None:
    """Nor is a file, or nothing at all."""
    (folder / "file").write_text("")
    listening(folder / "dead").close()

    assert [is_alive(folder / name) for name in ("file", "dead", "missing")] == [False] * 3
    assert identity(folder / "file") is None


def test_former_sockets_are_removed(folder: Path) -> None:
    """Those of a resource that is no longer offered; not what others have there, and not one that listens."""
    listening(folder / "criproxy-former.sock").close()
    listening(folder / "other.sock").close()
    (folder / "criproxy-file.sock").touch()
    (folder / "criproxy-link.sock").symlink_to("other.sock")
    alive = listening(folder / "criproxy-alive.sock")

    assert remove_dead(folder) == ["criproxy-former.sock"]
    assert remove_dead(folder / "missing") == []
    left = {each.name for each in folder.iterdir()}
    assert left == {"other.sock", "criproxy-file.sock", "criproxy-link.sock", "criproxy-alive.sock"}
    alive.close()


def names(folder: Path) -> list[str]:
    """What lies in *folder*."""
    return [each.name for each in folder.iterdir()]


async def test_a_start_that_is_cancelled_while_grpc_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises the cancellation, and no error of gRPC's that would take its place; no socket is left."""
    begun, grpc_start = asyncio.Event(), grpc.aio.Server.start

    async def start(server: grpc.aio.Server) -> None:
        begun.set()
        await grpc_start(server)

    monkeypatch.setattr(type(grpc.aio.server()), "start", start)
    starting = asyncio.create_task(Server(folder / "a.sock", []).start())
    async with asyncio.timeout(PATIENT_S):
        await begun.wait()
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
