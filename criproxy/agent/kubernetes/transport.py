"""Requests to the API server that are bounded in time and size, and that wait when the server asks for it.

Libraries bound neither silence nor answers, and ignore Retry-After (docs/decisions/0051-agent-client.md).
"""

import asyncio
import json
import random
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector, hdrs
from yarl import URL

from criproxy import __version__
from criproxy.agent.kubernetes.credentials import Access, Credentials
from criproxy.errors import CriproxyError, reason_of

Object = dict[str, Any]
"""A Kubernetes object as JSON."""
TIMEOUT_S = 10.0
MOST_CONNECTIONS = 64
"""Connections of one client, each watch has one; requests beyond that wait."""
LONGEST_TEXT = 300
"""Characters of a message of the server that an error repeats."""
JSON = "application/json"


class ApiError(CriproxyError):
    """An answer of the API server other than 2xx."""

    def __init__(self, text: str, status: int, reason: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.status, self.reason, self.retry_after_s = status, reason, retry_after_s


class Unreachable(CriproxyError):
    """No usable answer: not in time, connection refused or lost, not JSON, or too long."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a client; tests have shorter ones."""

    timeout_s: float = TIMEOUT_S
    """For a request, with all its tries and pauses; for a watch, until its answer begins."""
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    healthy_s: float = 300.0
    """After which time without a failure the pauses begin again with the first."""
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
    line_bytes: int = 4 << 20
    """For one event of a watch; etcd keeps no object of more than 1.5 MiB."""


@dataclass(slots=True)
class Counters:
    """What a client has done, for metrics."""

    requests: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By verb (as in RBAC), plural of the resource, and status; ``unreachable`` without an answer."""
    watch_restarts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By plural of the resource and reason."""
    last_contact_s: float | None = None
    """When the server has last sent something, on the clock of the event loop; None: never."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    verb: str
    """As in RBAC."""
    plural: str
    path: str
    """With the leading slash."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def method(self) -> str:
        """The method of HTTP."""
        return {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}.get(self.verb, "GET")

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


class Transport:
    """A session with one API server.

    Args:
        credentials: where the server is, and who asks.
        node: the node's name; spreads the first contact of agents that start together.
        first_contact_s: the time over which it is spread.
        limits: of all requests.
    """

    def __init__(self, credentials: Credentials, node: str, first_contact_s: float, limits: Limits) -> None:
        self.credentials, self.limits, self.counters = credentials, limits, Counters()
        spread = zlib.crc32(node.encode()) / (1 << 32)
        self._begin_s = asyncio.get_running_loop().time() + spread * first_contact_s
        self._not_before_s = 0.0
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def ask(self, request: Request) -> Object:
        """Return the answer, a JSON object.

        Raises:
            ApiError: the server has refused the request.
            Unreachable: there was no usable answer in time.
        """
        async with self._opened(request, self.limits.timeout_s) as response:
            text = await self._read(request, response, self.limits.answer_bytes)
        return as_object(request, text)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines of an answer that does not end; who iterates bounds the time.

        Raises:
            ApiError: the server has refused the request.
            Unreachable: there was no answer in time; from the iterator: the connection is lost, or a line too long.
        """
        async with self._opened(request, None) as response:
            keep_alive(response)
            yield self._lines(request, response)

    @asynccontextmanager
    async def _opened(self, request: Request, timeout_s: float | None) -> AsyncIterator[ClientResponse]:
        """Yield the response to *request*, of which *timeout_s* bounds the whole, if given."""
        await self._first_contact()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self.limits.timeout_s
        response: ClientResponse | None = None
        try:
            async with asyncio.timeout_at(deadline_s) as bound:
                response = await self._send(request, deadline_s)
                if timeout_s is None:
                    bound.reschedule(None)
                yield response
        except TimeoutError as error:
            self.counters.requests[request.verb, request.plural, "unreachable"] += 1
            raise Unreachable(f"{request}: no answer within {self.limits.timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            self.counters.requests[request.verb, request.plural, "unreachable"] += 1
            raise Unreachable(f"{request}: {_sentence(error)}") from error
        finally:
            if response is not None:
                response.close() if timeout_s is None else response.release()

    async def _first_contact(self) -> None:
        if (left_s := self._begin_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left_s)

    async def _send(self, request: Request, deadline_s: float) -> ClientResponse:
        """Return a response with 2xx; repeat what the server asks to repeat, while there is time."""
        loop, anew = asyncio.get_running_loop(), False
        while True:
            await self._turn(request, deadline_s)
            access = await self.credentials.access(anew=anew)
            response = await self._once(request, access)
            self.counters.requests[request.verb, request.plural, str(response.status)] += 1
            self.counters.last_contact_s = loop.time()
            if response.status < 300:
                return response
            error = await self._error(request, response)
            if error.retry_after_s is not None:
                # who was refused together does not return together
                pause_s = error.retry_after_s * random.uniform(1, 1.5)  # noqa: S311 (no secret)
                self._not_before_s = max(self._not_before_s, loop.time() + pause_s)
                if self._not_before_s < deadline_s:
                    continue
            if error.status == 401 and not anew:
                anew = True
                continue
            raise error

    async def _turn(self, request: Request, deadline_s: float) -> None:
        """Wait until the server wants requests again.

        Raises:
            Unreachable: that is after the deadline.
        """
        loop = asyncio.get_running_loop()
        while (left_s := self._not_before_s - loop.time()) > 0:
            if self._not_before_s >= deadline_s:
                raise Unreachable(f"{request}: not sent, the API server wants no requests for {left_s:.0f} s")
            await asyncio.sleep(left_s)

    async def _once(self, request: Request, access: Access) -> ClientResponse:
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=MOST_CONNECTIONS),
                timeout=ClientTimeout(total=None),  # `_opened` bounds all of it
                headers={hdrs.USER_AGENT: f"criproxy-agent/{__version__}", hdrs.ACCEPT_ENCODING: "identity"},
                read_bufsize=1 << 16,
            )
        headers = {hdrs.ACCEPT: request.accept}
        if access.token:
            headers[hdrs.AUTHORIZATION] = f"Bearer {access.token}"
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = request.content_type
        return await self._session.request(
            request.method,
            URL(access.server + request.path, encoded=True).with_query(dict(request.query)),
            headers=headers,
            data=None if request.body is None else json.dumps(request.body).encode(),
            ssl=access.tls if access.tls is not None else True,
            server_hostname=access.tls_server_name or None,
            allow_redirects=False,
        )

    async def _error(self, request: Request, response: ClientResponse) -> ApiError:
        """Return what the server says about its refusal: a Status, or only a number."""
        text, reason = response.reason or "", ""
        with suppress(Unreachable):
            status = as_object(request, await self._read(request, response, 1 << 16))
            text, reason = str(status.get("message") or text), str(status.get("reason") or "")
        response.release()
        sentence = f"{request}: {response.status} {text[:LONGEST_TEXT]}"
        return ApiError(sentence, response.status, reason, self._retry_after_s(response))

    def _retry_after_s(self, response: ClientResponse) -> float | None:
        text = response.headers.get(hdrs.RETRY_AFTER, "")
        if response.status not in (429, 503) or not text:
            return None
        asked_s = float(text) if text.isascii() and text.isdigit() else self.limits.first_pause_s
        return min(asked_s, self.limits.longest_retry_after_s)

    async def _read(self, request: Request, response: ClientResponse, most_bytes: int) -> bytes:
        found = bytearray()
        async for chunk in response.content.iter_any():
            found += chunk
            if len(found) > most_bytes:
                response.close()
                raise Unreachable(f"{request}: the answer has more than {most_bytes} bytes")
        return bytes(found)

    async def _lines(self, request: Request, response: ClientResponse) -> AsyncIterator[bytes]:
        left, loop = bytearray(), asyncio.get_running_loop()
        async for chunk in response.content.iter_any():
            self.counters.last_contact_s = loop.time()
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield bytes(left) + line
                left.clear()
            left += rest
            if len(left) > self.limits.line_bytes:
                raise Unreachable(f"{request}: an event has more than {self.limits.line_bytes} bytes")


def as_object(request: Request, text: bytes) -> Object:
    """Return the JSON object *text*.

    Raises:
        Unreachable: it is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreachable(f"{request}: the answer is not JSON: {str(error)[:LONGEST_TEXT]}") from error
    if not isinstance(found, dict):
        raise Unreachable(f"{request}: the answer is not an object but a {type(found).__name__}")
    return found


def keep_alive(response: ClientResponse) -> None:
    """Let the kernel find out within a minute that the peer of a quiet connection is gone."""
    import socket

    connection = response.connection
    sock = connection.transport.get_extra_info("socket") if connection and connection.transport else None
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _sentence(error: Exception) -> str:
    return (reason_of(error) or type(error).__name__)[:LONGEST_TEXT]
