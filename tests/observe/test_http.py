"""The HTTP API and its answers."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from criproxy.errors import CriproxyError
from criproxy.observe.address import Address
from criproxy.observe.http import HttpServer, Sources


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


@pytest.fixture
async def session(node: Node, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a server on a Unix socket."""
    server = HttpServer(Sources(lambda accept: (accept.encode(), "text/plain; version=1"), node.healthy, node.ready))
    path = str(tmp_path / "http.sock")
    listener = Address(path=path).listen()
    await server.start(listener)
    async with aiohttp.ClientSession("http://node", connector=aiohttp.UnixConnector(path)) as session:
        yield session
    await server.stop()
    listener.close()


async def get(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    """Status and text of *path*."""
    async with session.get(path) as response:
        return response.status, await response.text()


async def test_a_daemon_that_is_well(session: aiohttp.ClientSession) -> None:
    """Both probes say so."""
    assert await get(session, "/healthz") == (200, "ok\n")
    assert await get(session, "/readyz") == (200, "ok\n")


async def test_alive_and_ready_are_two_questions(session: aiohttp.ClientSession, node: Node) -> None:
    """A missing runtime is no reason to restart us."""
    node.away = "the runtime cannot be reached"

    assert await get(session, "/healthz") == (200, "ok\n")
    assert await get(session, "/readyz") == (503, "the runtime cannot be reached\n")


async def test_a_sick_daemon(session: aiohttp.ClientSession, node: Node) -> None:
    """The probe fails and says why."""
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


async def test_a_port_is_served(node: Node) -> None:
    """On a port, by host name, as on a Unix socket."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listener = Address.parse(f":{port}").listen()
    server = HttpServer(Sources(lambda _accept: (b"", "text/plain"), node.healthy, node.ready))
    await server.start(listener)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        assert await get(session, "/healthz") == (200, "ok\n")
    await server.stop()
    listener.close()
