"""The HTTP API and its answers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from criproxy.errors import UsageError
from criproxy.process.failures import Failures
from criproxy.process.http import server as http
from criproxy.process.http.address import Address
from criproxy.process.http.limits import MOST_PEERS, Rendered, Shares, peer_at
from criproxy.process.http.server import HttpServer, Sources
from criproxy.process.tasks import Bucket, Tasks
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


@asynccontextmanager
async def on_port(node: Node, host: str = "") -> AsyncIterator[aiohttp.ClientSession]:
    """A client of a server on a port."""
    with socket.create_server((host or "127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = Address.parse(f"{host}:{port}")
    async with served(node, address), aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session


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


# ---------------------------------------------------------------- limits, by a clock that the test turns


class Clock:
    """Says what the test says."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """In seconds."""
        return self.now_s


def test_a_bucket_gives_a_burst_and_then_so_many_a_second() -> None:
    """Tokens come back with time, and never more than the burst."""
    clock = Clock()
    bucket = Bucket(per_s=2, burst=3, now=clock)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.now_s += 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    clock.now_s += 1000
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_who_reserves_waits_for_the_token() -> None:
    """Each token that is not there yet comes later than the one before."""
    clock = Clock()
    bucket = Bucket(per_s=2, burst=1, now=clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.5, 1.0]
    clock.now_s += 1.5
    assert bucket.reserve() == 0.0


def test_each_client_has_its_share() -> None:
    """One that asks too often keeps no other from being answered, and all together have a limit, too."""
    clock = Clock()
    shares = Shares(per_s=1, burst=4, all_per_s=2, all_burst=6, now=clock)
    assert [shares.take("flood") for _ in range(9)] == [True] * 4 + [False] * 5
    assert [shares.take("other") for _ in range(3)] == [True, True, False]
    clock.now_s += 1
    assert [shares.take(each) for each in ("flood", "flood", "other", "third")] == [True, False, True, False]


def test_clients_that_are_forgotten_get_no_more_together() -> None:
    """However many there are: only the newest are known."""
    shares = Shares(per_s=1, burst=1, all_per_s=1, all_burst=1000, now=Clock())
    assert sum(shares.take(f"{number}") for number in range(2000)) == 1000
    assert len(shares._buckets) <= MOST_PEERS


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        pytest.param("127.0.0.1", "loopback", id="loopback"),
        pytest.param("127.8.9.1", "loopback", id="another name of loopback"),
        pytest.param("::1", "loopback", id="loopback of IPv6"),
        pytest.param("::ffff:10.0.0.1", "10.0.0.1", id="IPv4 in IPv6"),
        pytest.param("fe80::1%eth0", "fe80::/64", id="scope"),
        pytest.param("2001:db8::1:2", "2001:db8::/64", id="a host has a whole network"),
    ],
)
def test_who_asks(address: str, peer: str) -> None:
    """A client with many addresses is one client."""
    assert peer_at(address) == peer


def _counting() -> Callable[[str], tuple[bytes, str]]:
    texts = iter(range(100))
    return lambda accept: (f"{accept}{next(texts)}".encode(), "text/plain")


def test_metrics_are_rendered_for_each_request_that_is_not_one_of_too_many() -> None:
    """Beyond the rate the last text serves for all, whatever they accept."""
    clock = Clock()
    rendered = Rendered(_counting(), Bucket(per_s=1, burst=2, now=clock))
    assert [rendered(each)[0] for each in "abcd"] == [b"a0", b"b1", b"b1", b"b1"]
    clock.now_s += 1
    assert rendered("e")[0] == b"e2"


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9100", Address("127.0.0.1", 9100)),
        ("node-1:80", Address("node-1", 80)),
        (":9100", Address("localhost", 9100)),
        ("[::1]:9100", Address("::1", 9100)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),
        ("unix:///run/criproxy/http.sock", Address(path="/run/criproxy/http.sock")),
        ("/run/criproxy/http.sock", Address(path="/run/criproxy/http.sock")),
    ],
)
def test_an_address(text: str, expected: Address) -> None:
    """Without a host only this machine can connect."""
    assert expected == Address.parse(text)


@pytest.mark.parametrize(
    "text", ["", "9100", "host", "host:", "host:http", ":0", ":65536", ":-1", "::1:9100", "http://host:80", "host:²"]
)
def test_what_is_no_address(text: str) -> None:
    """The error shows the forms that are understood."""
    with pytest.raises(UsageError, match=r"--http: .* use HOST:PORT, :PORT .*, \[IPV6\]:PORT or unix:///PATH"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (Address("localhost", 1), "http://localhost:1"),
        (Address("::1", 1), "http://[::1]:1"),
        (Address(path="/x"), "unix:///x"),
    ],
)
def test_an_address_is_shown_as_a_url(address: Address, expected: str) -> None:
    """A reader of the log can paste it."""
    assert expected == str(address)
