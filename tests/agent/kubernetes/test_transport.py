"""Every request ends, whatever the API server does, and the server gets the rest that it asks for."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import psutil
import pytest

from criproxy.agent.kubernetes.client import NODES, ApiClient
from criproxy.agent.kubernetes.credentials import plain
from criproxy.agent.kubernetes.request import ApiError, Unreachable
from criproxy.agent.kubernetes.transport import Limits
from lab.apiserver.faults import Refuses
from lab.apiserver.server import ApiServer
from tests.agent.conftest import SHORT

BRIEF = replace(SHORT, timeout_s=0.3)


@asynccontextmanager
async def client_of(url: str, limits: Limits = BRIEF) -> AsyncIterator[ApiClient]:
    """A client with these limits."""
    async with ApiClient(plain(url), limits=limits) as client:
        yield client


@asynccontextmanager
async def raw_server(talk: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A server that reads a request, and then sends what *talk* does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await talk(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_silent_server_is_not_awaited(apiserver: ApiServer) -> None:
    """And later answers are those to later requests."""
    apiserver.faults.silence()
    async with client_of(apiserver.url) as client:
        with pytest.raises(Unreachable, match=r"list /api/v1/nodes: no answer within 0\.3 s"):
            await client.list(NODES)
        apiserver.faults.speak()
        assert await client.get(NODES, "n1") is None


async def test_an_answer_in_drops_is_bounded_too() -> None:
    """By the time of the whole, not of each read."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with raw_server(drip) as url, client_of(url) as client:
        with pytest.raises(Unreachable, match="no answer within"):
            await client.list(NODES)


@pytest.mark.parametrize("size_bytes", [None, 1 << 40])
async def test_an_answer_without_end_does_not_fill_the_memory(size_bytes: int | None) -> None:
    """With and without a length that it announces."""

    async def flood(writer: asyncio.StreamWriter) -> None:
        length = "" if size_bytes is None else f"Content-Length: {size_bytes}\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        while True:
            writer.write(b"x" * (1 << 20))
            await writer.drain()

    limits = replace(SHORT, answer_bytes=4 << 20)
    async with raw_server(flood) as url, client_of(url, limits) as client:
        before = psutil.Process().memory_info().rss
        for _ in range(10):
            with pytest.raises(Unreachable, match="more than 4194304 bytes"):
                await client.list(NODES)
        assert psutil.Process().memory_info().rss - before < 64 << 20


async def test_pages_without_end_are_bounded(apiserver: ApiServer) -> None:
    """A list ends when all pages together are too long."""
    page = b'{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"%s"}}]}' % (b"n" * 1000)
    apiserver.faults.bodies["list", "nodes"] = page
    async with client_of(apiserver.url, replace(SHORT, list_bytes=10_000)) as client:
        with pytest.raises(Unreachable, match="more than 10000 bytes"):
            await client.list(NODES)
    assert apiserver.requests["list", "nodes"] == 10


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", id="a part of the answer"),
        pytest.param(b"220 mail.example.org ESMTP\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<p>Hi</p>", id="a page"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", id="no object"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + b"[" * 90_000, id="depth without end"),
    ],
)
async def test_what_is_no_answer_is_said(answer: bytes) -> None:
    """Each as `Unreachable`, with the request."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with raw_server(talk) as url, client_of(url, SHORT) as client:
        with pytest.raises(Unreachable, match="get /api/v1/nodes/n1: "):
            await client.get(NODES, "n1")


async def test_a_redirect_is_not_followed() -> None:
    """It would carry the token to another server."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with raw_server(talk) as url, client_of(url, SHORT) as client:
        with pytest.raises(ApiError, match="302 Found"):
            await client.get(NODES, "n1")


async def test_a_tls_server_that_is_asked_without_tls_is_guessed() -> None:
    """Those of Go answer in this way, in words that say no more than 400."""

    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
        await writer.drain()

    async with raw_server(talk) as url, client_of(url, SHORT) as client:
        with pytest.raises(ApiError, match=f"400 Bad Request; does {url} speak https"):
            await client.get(NODES, "n1")


async def test_proxies_are_ignored(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server is that of the agent's own cluster."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with client_of(apiserver.url, SHORT) as client:
        assert await client.get(NODES, "n1") is None


@pytest.mark.parametrize("status", [429, 503])
async def test_a_request_that_is_put_off_is_repeated(apiserver: ApiServer, api_client: ApiClient, status: int) -> None:
    """After the time that the server asks for, within the time of the request."""
    apiserver.faults.refuses["create", "nodes"] = Refuses(status, retry_after="1", times=1)
    begun_s = time.monotonic()
    await api_client.create(NODES, {"metadata": {"name": "n1"}})
    assert time.monotonic() - begun_s >= 1.0
    assert apiserver.requests["create", "nodes"] == 2


async def test_the_whole_client_waits(apiserver: ApiServer, api_client: ApiClient) -> None:
    """One refusal holds back all requests, of all resources; those that cannot be in time are not sent."""
    apiserver.faults.refuses["list", "nodes"] = Refuses(429, retry_after="30", times=1)
    with pytest.raises(ApiError) as raised:
        await api_client.list(NODES)
    assert raised.value.retry_after_s == 30.0
    for _ in range(50):
        with pytest.raises(Unreachable, match=r"not sent, the API server wants no requests for \d\d s more"):
            await api_client.get(NODES, "n1")
    assert sum(apiserver.requests.values()) == 1


async def test_a_pause_that_is_asked_for_is_bounded(apiserver: ApiServer, api_client: ApiClient) -> None:
    """A number without sense does not silence the agent for ever."""
    apiserver.faults.refuses["list", "nodes"] = Refuses(503, retry_after="999999999")
    with pytest.raises(ApiError) as raised:
        await api_client.list(NODES)
    assert raised.value.retry_after_s == 300.0


async def test_a_pause_until_a_date_is_the_shortest(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Since the clocks of both may differ."""
    refusal = Refuses(503, retry_after="Wed, 21 Oct 2099 07:28:00 GMT", times=1)
    apiserver.faults.refuses["list", "nodes"] = refusal
    assert await api_client.list(NODES) == ([], "1000")
    assert apiserver.requests["list", "nodes"] == 2


async def test_a_pause_of_nothing_is_one_all_the_same(apiserver: ApiServer) -> None:
    """Else the request would be repeated as fast as the network is."""
    apiserver.faults.refuses["list", "nodes"] = Refuses(429, retry_after="0")
    async with client_of(apiserver.url, replace(SHORT, timeout_s=0.5, first_pause_s=0.1)) as client:
        with pytest.raises((ApiError, Unreachable)):
            await client.list(NODES)
    assert apiserver.requests["list", "nodes"] <= 6


async def test_503_without_a_time_is_an_answer(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Callers pause as they do after each failure."""
    apiserver.faults.refuses["list", "nodes"] = Refuses(503)
    with pytest.raises(ApiError) as raised:
        await api_client.list(NODES)
    assert (raised.value.status, raised.value.retry_after_s) == (503, None)
    assert apiserver.requests["list", "nodes"] == 1


async def test_a_slow_server_is_awaited(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Within the time."""
    apiserver.faults.slow_s = 0.2
    assert await api_client.get(NODES, "n1") is None


async def test_a_server_that_comes_back_is_asked(apiserver: ApiServer, api_client: ApiClient) -> None:
    """Without a new client."""
    assert await api_client.get(NODES, "n1") is None
    await apiserver.stop()
    refused = rf"^get /api/v1/nodes/n1: 127\.0\.0\.1:{apiserver.port}: Connection refused$"
    with pytest.raises(Unreachable, match=refused):
        await api_client.get(NODES, "n1")
    await apiserver.start()
    assert await api_client.get(NODES, "n1") is None


async def test_the_first_contact_of_many_agents_is_spread(apiserver: ApiServer) -> None:
    """Over the time that is given, by their names."""
    first_contact_s = 0.5

    async def contact_s(node: str) -> float:
        begun_s = time.monotonic()
        async with ApiClient(plain(apiserver.url), node=node, first_contact_s=first_contact_s) as client:
            await client.get(NODES, node)
        return time.monotonic() - begun_s

    found = await asyncio.gather(*(contact_s(f"node-{number}") for number in range(40)))
    assert max(found) - min(found) > first_contact_s / 2
