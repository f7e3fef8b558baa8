"""What the agent serves over HTTP: metrics and health for everybody, the daemon's queries for those with the token.

``POST /v1/query`` with ``{"command": NAME, "arguments": {…}}`` is answered with the line of the daemon's control
socket, ``{"result": …}`` or ``{"error": …}``. Nothing can be changed here, also by those who have the token: only the
commands in `QUERIES` are passed on. `kubectl criproxy` asks through the API server's proxy, which removes the
Authorization header of a request, so the token has a header of its own.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from criproxy import __version__
from criproxy.agent import QUERIES, QUERY_PATH, TOKEN_HEADER, VERSION_HEADER
from criproxy.agent.troubles import Troubles
from criproxy.errors import CriproxyError, UsageError, reason_of
from criproxy.process.control_protocol import request_of
from criproxy.process.failures import Failures
from criproxy.process.http.address import Address
from criproxy.process.http.server import HttpServer, Sources, closing
from criproxy.process.http.token_file import TokenFile, is_same
from criproxy.process.log import structlog
from criproxy.process.tasks import Backoff, Bucket, Tasks
from criproxy.wire.sockets import Listener

log = structlog.get_logger("criproxy.agent")

PATIENCE_S = 20.0
"""How long the daemon may take to begin its answer."""
ANSWER_S = 60.0
"""How long the whole answer may take, also to a client that reads slowly."""
CHUNK_BYTES = 1 << 16
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Pauses before an address that cannot be used is tried again: a predecessor may be ending."""
ANSWERS_PER_S, ANSWERS_BURST = 20.0, 80
"""All clients together: the API server's proxy hides which of them asks."""
_HEADERS = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    VERSION_HEADER: __version__,
}


class _Refused(CriproxyError):
    """There is no answer of the daemon; *status* is that of the HTTP response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class AgentHttp:
    """Serves metrics, health and queries.

    Args:
        address: where.
        token_file: has the token that queries need; None: no query is answered.
        control_socket: of the daemon.
        sources: metrics and health.
        troubles: hears why it cannot serve, or nobody can ask.
        failures: counts what fails here.
    """

    def __init__(
        self,
        address: Address,
        token_file: Path | None,
        control_socket: str,
        sources: Sources,
        troubles: Troubles,
        failures: Failures,
    ) -> None:
        self._address, self._control_socket = address, control_socket
        self._sources, self._troubles, self._failures = sources, troubles, failures
        self._tokens = TokenFile(token_file, self._on_token_problem)
        self._bucket = Bucket(ANSWERS_PER_S, ANSWERS_BURST)

    async def run(self) -> None:
        """Serve for ever, as soon as the address can be used."""
        pauses = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                listener = self._address.listen()
            except CriproxyError as error:
                self._troubles.set("http", str(error))
                await asyncio.sleep(pauses.pause_s())
            else:
                self._troubles.set("http", "")
                await self._serve(listener)

    async def _serve(self, listener: Listener) -> None:
        tasks = Tasks(log, self._failures)
        server = HttpServer(self._sources, tasks, [web.post(QUERY_PATH, self._query)])
        try:
            await server.start(listener)
            queries = "answered to those who have the token" if self._tokens.file else "not answered"
            log.info("serving metrics and health", address=str(self._address), queries=queries)
            await self._tokens.watch()
        finally:
            await server.stop()
            listener.close()

    def _on_token_problem(self, problem: str) -> None:
        self._troubles.set("http token", problem and f"--http-token-file: no query is answered: {problem}")

    async def _query(self, request: web.Request) -> web.StreamResponse:
        try:
            await self._check(request)
            line = _line(await request.read())
            async with asyncio.timeout(ANSWER_S), self._asked(line) as (first, rest):
                return await _pass_on(request, first, rest)
        except UsageError as error:
            return _refused(400, str(error))
        except _Refused as error:
            return _refused(error.status, str(error))
        except (OSError, TimeoutError):  # in the middle of an answer
            return _cut_off(request)

    async def _check(self, request: web.Request) -> None:
        """Raise `_Refused` unless this request is answered now."""
        if self._tokens.file is None:
            raise _Refused(403, "queries are not answered: this agent has no --http-token-file")
        if not is_same(request.headers.get(TOKEN_HEADER, ""), await self._tokens.token()):
            problem = self._tokens.problem or f"this needs the token of --http-token-file in the header {TOKEN_HEADER}"
            raise _Refused(401, problem)
        if not self._bucket.take():
            raise _Refused(429, "too many requests; try again in a second")

    @asynccontextmanager
    async def _asked(self, line: bytes) -> AsyncIterator[tuple[bytes, asyncio.StreamReader]]:
        """Send a request to the daemon; the first part of its answer, and what the others come from.

        Raises:
            _Refused: there is no answer, or none in time.
        """
        writer: asyncio.StreamWriter | None = None
        try:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    reader, writer = await asyncio.open_unix_connection(self._control_socket)
                    writer.write(line)
                    first = await reader.read(CHUNK_BYTES)
            except TimeoutError as error:
                text = f"the daemon on {self._control_socket} did not answer within {PATIENCE_S:g} s"
                raise _Refused(504, f"{text}; on the node, criproxy's log has more") from error
            except OSError as error:
                text = f"no criproxy daemon answers on {self._control_socket}: {reason_of(error)}"
                raise _Refused(503, text) from error
            if not first:
                raise _Refused(503, f"the daemon on {self._control_socket} hung up: it ends, or has too many clients")
            yield first, reader
        finally:
            if writer is not None:
                writer.close()


def _line(body: bytes) -> bytes:
    """Return the line for the control socket: written anew, so that *body* cannot hide a second request.

    Raises:
        UsageError: it is no query.
    """
    try:
        query: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the body is not JSON: {error}") from error
    if not isinstance(query, dict) or not isinstance(arguments := query.get("arguments", {}), dict):
        raise UsageError('the body must be an object: {"command": NAME, "arguments": {…}}')
    command = query.get("command")
    if not isinstance(command, str) or command not in QUERIES:
        raise UsageError(f"{str(command)[:80]!r} is not answered here; these are: {', '.join(sorted(QUERIES))}")
    return request_of(command, arguments)


async def _pass_on(request: web.Request, first: bytes, rest: asyncio.StreamReader) -> web.StreamResponse:
    """Answer with the daemon's line, part by part."""
    response = web.StreamResponse(status=200 if first.startswith(b'{"result"') else 422, headers=_HEADERS)
    response.force_close()
    await response.prepare(request)
    chunk = first
    while chunk:
        await response.write(chunk)
        if chunk.endswith(b"\n"):  # within the line there is none
            await response.write_eof()
            return response
        chunk = await rest.read(CHUNK_BYTES)
    return _cut_off(request)  # the daemon has ended in the middle


def _cut_off(request: web.Request) -> web.Response:
    """Close the connection without the end of the answer, so that nobody takes it for a whole one."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()  # nobody gets it


def _refused(status: int, text: str) -> web.Response:
    return closing(web.Response(body=json.dumps({"error": text}), status=status, headers=_HEADERS))
