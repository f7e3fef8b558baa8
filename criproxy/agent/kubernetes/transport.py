"""Requests to the API server that are bounded in time and size, and that wait when the server asks for it.

Libraries bound neither silence nor answers, and ignore Retry-After (docs/decisions/0051-agent-client.md).
"""

import asyncio
import errno
import json
import os
import random
import socket
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self

import aiohttp
from aiohttp import ClientResponse, hdrs
from yarl import URL

from criproxy import __version__
from criproxy.agent.kubernetes.credentials import Access, Credentials
from criproxy.agent.kubernetes.request import MOST_CHARS, NOT_SENT, ApiError, Object, Request, Unreachable
from criproxy.errors import CriproxyError, reason_of

TIMEOUT_S = 10.0
MOST_CONNECTIONS = 64
"""Connections of one client, of which each watch has one; requests beyond that wait."""
REFUSAL_BYTES = 1 << 16
"""Of the text of a refusal."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a client; tests have shorter ones."""

    timeout_s: float = TIMEOUT_S
    """For a request, with all its tries and pauses; for a watch, until its answer begins."""
    first_pause_s: float = 1.0
    """A watch that fails is repeated after a random time of at most this, then the double, …"""
    longest_pause_s: float = 50.0
    """… up to this, so that all is known within a minute after the server is back, …"""
    healthy_s: float = 30.0
    """… until one has lasted this long."""
    reopen_s: float = 10.0
    """Within this time, such a one is opened again: a server that restarts has ended those of all agents together."""
    watch_s: tuple[float, float] = (1800.0, 3600.0)
    """How long the server keeps a watch open: chosen between them at random, so that agents do not return together."""
    grace_s: float = 30.0
    """How much later the client ends a watch that the server should have ended."""
    silence_s: float = 180.0
    """How long a watch may say nothing if it has sent a bookmark, which comes every minute."""
    absent_s: float = 60.0
    """Pause before the API server is asked again for a resource that it does not have."""
    longest_retry_after_s: float = 300.0
    answer_bytes: int = 16 << 20
    list_bytes: int = 32 << 20
    """For all pages of a list together."""
    line_bytes: int = 4 << 20
    """For one event of a watch; etcd keeps no object of more than 1.5 MiB."""


@dataclass(slots=True)
class Counters:
    """What a client has done, for metrics."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By verb (as in RBAC), plural of the resource, and status; ``unreachable`` without a usable answer."""
    watch_restarts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By plural of the resource, and why: ended, expired, refused, unreachable, absent."""
    contact_s: float | None = None
    """When the server has last sent something, on the clock of the event loop; None: never."""

    def since_contact_s(self) -> float | None:
        """Return the seconds since the server has last sent something; None: it never has."""
        return None if self.contact_s is None else asyncio.get_running_loop().time() - self.contact_s


class Transport:
    """A session with one API server. Every request ends within `Limits.timeout_s`, whatever the server does.

    Where the server answers 429 or 503 with Retry-After, no request is sent until then; one that cannot be sent in its
    time raises `Unreachable` at once.

    Args:
        credentials: where the server is, and who asks.
        node: the node's name; spreads the first contact of agents that start together.
        first_contact_s: the time over which it is spread.
        limits: of all requests.
    """

    def __init__(
        self, credentials: Credentials, *, node: str = "", first_contact_s: float = 0.0, limits: Limits | None = None
    ) -> None:
        self.credentials, self.limits, self.counters = credentials, limits or Limits(), Counters()
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time() + zlib.crc32(node.encode()) / (1 << 32) * first_contact_s
        self._not_before_s = 0.0
        """Until when the server wants no requests, on the clock of the event loop."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MOST_CONNECTIONS),
            timeout=aiohttp.ClientTimeout(total=None),  # `ask` and `stream` bound all of it
            headers={hdrs.USER_AGENT: f"criproxy-agent/{__version__}", hdrs.ACCEPT_ENCODING: "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,  # no proxies
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self.credentials.close()

    async def ask(self, request: Request) -> tuple[Object, int]:
        """Return the answer, a JSON object, and its size in bytes.

        Raises:
            ApiError: the server has refused the request.
            Unreachable: there was no usable answer in time.
        """
        await self._first_contact()
        deadline_s = self._loop.time() + self.limits.timeout_s
        with self._translated(request):
            async with asyncio.timeout_at(deadline_s):
                response = await self._send(request, deadline_s)
                async with response:
                    text = await self._read(request, response, self.limits.answer_bytes)
            return request.read(text), len(text)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of an answer that does not end; who iterates bounds the time.

        Raises:
            ApiError: the server has refused the request.
            Unreachable: there was no answer in time; from the iterator: the connection is lost, or a line too long.
        """
        await self._first_contact()
        deadline_s = self._loop.time() + self.limits.timeout_s
        with self._translated(request):
            async with asyncio.timeout_at(deadline_s):
                response = await self._send(request, deadline_s)
        try:
            _keep_alive(response)
            async with aclosing(self._lines(request, response)) as lines:
                yield lines
        finally:
            response.close()

    @contextmanager
    def _translated(self, request: Request) -> Iterator[None]:
        """Raise `Unreachable` for each failure of the network, and count it."""
        try:
            yield
        except (Unreachable, aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: such as a wrong URL
            self.counters.requests[request.verb, request.plural, "unreachable"] += 1
            if isinstance(error, Unreachable):
                raise
            late = f"no answer within {self.limits.timeout_s:g} s"
            text = late if isinstance(error, TimeoutError) else _sentence(error)[:MOST_CHARS]
            raise Unreachable(f"{request}: {text}") from error

    async def _first_contact(self) -> None:
        if (left_s := self._begin_s - self._loop.time()) > 0:
            await asyncio.sleep(left_s)

    async def _send(self, request: Request, deadline_s: float) -> ClientResponse:
        """Return a response with 2xx; repeat what the server wants to be repeated, while there is time.

        A request that was answered with 429, 503 or 401 has not taken effect, whatever its verb is.
        """
        refused: Access | None = None
        while True:
            await self._turn(request, deadline_s)
            access = await self._access(request, refused)
            response = await self._once(request, access)
            self.counters.contact_s = self._loop.time()
            if response.status < 300:
                self.counters.requests[request.verb, request.plural, str(response.status)] += 1
                return response
            error = await self._refusal(request, response, access)
            self.counters.requests[request.verb, request.plural, str(response.status)] += 1
            if error.retry_after_s is not None:
                self._pause(error.retry_after_s)
                if self._not_before_s < deadline_s:
                    continue
            if error.status == 401 and refused is None and await self._access(request, access) is not access:
                refused = access
                continue
            raise error

    def _pause(self, asked_s: float) -> None:
        """Send nothing for *asked_s*, and up to half of it more: who was refused together does not return together."""
        pause_s = asked_s * random.uniform(1, 1.5)
        self._not_before_s = max(self._not_before_s, self._loop.time() + pause_s)

    async def _turn(self, request: Request, deadline_s: float) -> None:
        """Wait until the server wants requests again.

        Raises:
            Unreachable: that is after the deadline.
        """
        while (left_s := self._not_before_s - self._loop.time()) > 0:
            if self._not_before_s >= deadline_s:
                raise Unreachable(f"{request}: not sent, the API server wants no requests for {left_s:.0f} s more")
            await asyncio.sleep(left_s)

    async def _access(self, request: Request, refused: Access | None) -> Access:
        limit_s = 0.9 * self.limits.timeout_s  # shorter than that of the request: the sentence says what it waited for
        try:
            async with asyncio.timeout(limit_s):
                return await self.credentials.access(refused)
        except CriproxyError as error:
            raise Unreachable(f"{request}{NOT_SENT}{error}") from error
        except TimeoutError as error:
            raise Unreachable(f"{request}{NOT_SENT}the credentials are not there after {limit_s:g} s") from error

    async def _once(self, request: Request, access: Access) -> ClientResponse:
        headers = {hdrs.ACCEPT: request.accept}
        if access.token:
            headers[hdrs.AUTHORIZATION] = f"Bearer {access.token}"
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = request.content_type
        return await self._session.request(
            request.method,
            URL(access.server + request.path).with_query(dict(request.query)),
            headers=headers,
            data=None if request.body is None else json.dumps(request.body, separators=(",", ":")).encode(),
            ssl=access.tls if access.tls is not None else True,
            server_hostname=access.tls_server_name or None,
            allow_redirects=False,
        )

    async def _refusal(self, request: Request, response: ClientResponse, access: Access) -> ApiError:
        """Return what the server says about its refusal: a Status, or only a number."""
        text = response.reason or ""
        if response.status == HTTPStatus.BAD_REQUEST and access.tls is None:  # the answer of TLS servers to HTTP
            text += f"; does {access.server} speak https?"
        async with response:
            with suppress(Unreachable):
                status = request.read(await self._read(request, response, REFUSAL_BYTES))
                text = str(status.get("message") or text)
        sentence = f"{request}: {response.status} {text[:MOST_CHARS]}"
        return ApiError.of(sentence, response.status, self._retry_after_s(response))

    def _retry_after_s(self, response: ClientResponse) -> float | None:
        text = response.headers.get(hdrs.RETRY_AFTER, "").strip()
        if response.status not in {429, 503} or not text:
            return None
        asked_s = float(text) if text.isascii() and text.isdigit() else self.limits.first_pause_s
        return min(max(asked_s, self.limits.first_pause_s), self.limits.longest_retry_after_s)

    async def _read(self, request: Request, response: ClientResponse, most_bytes: int) -> bytes:
        found = bytearray()
        async for chunk in response.content.iter_any():
            found += chunk
            if len(found) > most_bytes:
                response.close()
                raise Unreachable(f"{request}: the answer has more than {most_bytes} bytes")
        return bytes(found)

    async def _lines(self, request: Request, response: ClientResponse) -> AsyncGenerator[bytes, None]:
        rest = bytearray()
        with self._translated(request):
            async for chunk in response.content.iter_any():
                self.counters.contact_s = self._loop.time()
                *whole, last = chunk.split(b"\n")
                for line in whole:
                    yield bytes(rest + line)
                    rest.clear()
                rest += last
                if len(rest) > self.limits.line_bytes:
                    raise Unreachable(f"{request}: an event has more than {self.limits.line_bytes} bytes")


def _sentence(error: Exception) -> str:
    """Return what went wrong; aiohttp's own text of a refused connection does not say that it was refused."""
    if not isinstance(error, aiohttp.ClientConnectorError) or isinstance(error, aiohttp.ClientSSLError):
        return reason_of(error)
    number = error.os_error.errno or 0
    text = os.strerror(number) if number in errno.errorcode else reason_of(error.os_error)
    return f"{error.host}:{error.port}: {text}"


def _keep_alive(response: ClientResponse) -> None:
    """Let the kernel find out within a minute that the peer of a quiet connection is gone."""
    connection = response.connection
    sock = connection.transport.get_extra_info("socket") if connection and connection.transport else None
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
