"""The HTTP API and its answers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from criproxy.errors import CriproxyError
from criproxy.process import http
from criproxy.process.address import Address
from criproxy.process.failures import Failures
from criproxy.process.http import HttpServer, Sources
from criproxy.process.tasks import Tasks
from tests.node.world import RecordingLog

Metrics = Callable[[str], tuple[bytes, str]]
LIMIT_S = 120.0
"""Only what never comes takes so long."""


class Node:
    """What the server asks; a test says how it is."""

    def __init__(self) -> None:
        self.sick: str | None = None
        self.away: str | None = None

    async def healthy(self) -> str | None:
        """Alive?"""
        return self.sick

    async def ready(self) -> str | None:
        """Ready?"""
        return self.away


@pytest.fixture
def node() -> Node:
    """A daemon that is well."""
    return Node()


@asynccontextmanager
async def served(
    node: Node, address: Address, metrics: Metrics = lambda _: (b"all\n", "text/plain")
) -> AsyncIterator[None]:
    """Serve a node at an address."""
    server = HttpServer(Sources(metrics, node.healthy, node.ready), Tasks(RecordingLog(), Failures()))
    listener = address.listen()
    await server.start(listener)
    yield
    await server.stop()
    listener.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a server listens."""
    return str(tmp_path / "http.sock")


@pytest.fixture
async def session(node: Node, path: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a server on a Unix socket."""
    async with (
        served(node, Address(path=path), lambda accept: (accept.encode(), "text/plain; version=1")),
        aiohttp.ClientSession("http://node", connector=aiohttp.UnixConnector(path)) as session,
    ):
        yield session


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    """Status and text of *path*."""
    async with session.get(path) as response:
        return response.status, await response.text()


async def test_alive_and_ready_are_two_questions(session: aiohttp.ClientSession, node: Node) -> None:
    """A missing runtime is no reason to restart us; a probe that fails says why."""
    assert await get(session, "/readyz") == (200, "ok\n")
    node.away = "the runtime cannot be reached"
    assert await get(session, "/healthz") == (200, "ok\n")
    assert await get(session, "/readyz") == (503, "the runtime cannot be reached\n")
    node.sick = "the event loop is late"
    assert await get(session, "/healthz") == (503, "the event loop is late\n")


async def test_metrics_follow_the_accept_header(session: aiohttp.ClientSession) -> None:
    """Prometheus says which format it wants."""
    async with session.get("/metrics", headers={"Accept": "wanted"}) as response:
        assert (await response.text(), response.headers["Content-Type"]) == ("wanted", "text/plain; version=1")


def test_the_socket_is_for_the_group(session: aiohttp.ClientSession, tmp_path: Path) -> None:
    """A scraper in our group can connect, others cannot."""
    assert (tmp_path / "http.sock").stat().st_mode & 0o777 == 0o660


async def test_there_is_nothing_else(session: aiohttp.ClientSession) -> None:
    """Other paths and methods are refused."""
    assert (await get(session, "/"))[0] == 404
    async with session.post("/metrics") as response:
        assert response.status == 405


def test_a_port_in_use_is_an_error() -> None:
    """The sentence names the address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        with pytest.raises(CriproxyError, match=rf"--http: cannot listen on http://127.0.0.1:{port}: .*in use"):
            Address("127.0.0.1", port).listen()


@asynccontextmanager
async def on_port(node: Node, host: str = "") -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a server on a port."""
    with socket.create_server((host or "127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = Address.parse(f"{host}:{port}")
    async with served(node, address), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session


async def test_a_port_is_served(node: Node) -> None:
    """On a port, by host name, as on a Unix socket."""
    async with on_port(node) as session:
        assert await get(session, "/healthz") == (200, "ok\n")


@pytest.mark.parametrize(("host", "expected"), [("", 403), ("0.0.0.0", 200)])
@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
async def test_a_web_site_that_leads_its_name_here_reads_nothing(
    node: Node, path: str, host: str, expected: int
) -> None:
    """On loopback, a name that is not this machine's is that of a web site (DNS rebinding)."""
    async with on_port(node, host) as session:
        for name, status in (("evil.example", expected), ("localhost:1", 200), ("127.0.0.1", 200)):
            async with session.get(path, headers={"Host": name}) as response:
                assert response.status == status, name


class Stuck(Node):
    """A daemon that never says whether it is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = asyncio.Event(), asyncio.Event()

    async def ready(self) -> str | None:
        """Wait for ever, whoever ends this."""
        self.asked.set()
        while True:
            with suppress(asyncio.CancelledError):
                await self.let_go.wait()
                return None


async def test_a_request_that_does_not_end(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps nobody from ending the server, but for a moment."""
    monkeypatch.setattr(http, "LAST_S", 0.01)
    monkeypatch.setattr(http, "PART_S", 0.01)
    node = Stuck()
    async with asyncio.timeout(LIMIT_S):
        async with served(node, Address(path=path)):
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: n\r\n\r\n")
            await node.asked.wait()

    node.let_go.set()
    writer.close()


async def test_a_connection_has_one_request(node: Node, path: str) -> None:
    """Of many requests in one connection the first is answered, and too long ones are not read to their end."""
    asked: list[str] = []

    def metrics(accept: str) -> tuple[bytes, str]:
        asked.append(accept)
        return b"all\n", "text/plain"

    async with served(node, Address(path=path), metrics):
        for sent, answered in ((b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n" * 100, 1), (b"G" * 20_000, 0)):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(sent)
            assert (await reader.read()).count(b"HTTP/1.1 200") == answered
            writer.close()
        assert len(asked) == 1
