"""A control socket: one JSON object per line, one answer per request.

A request is ``{"command": NAME, "arguments": {…}}``. The answer is ``{"result": …}``, or
``{"error": SENTENCE, "exit_status": 1 | 2}``; for an unknown command, it also has ``"unknown_command": true``. A
connection may carry any number of requests, one after the other.
"""

import asyncio
import json
import select
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from criproxy.errors import CriproxyError, UsageError
from criproxy.process.log import structlog
from criproxy.process.tasks import PART_S, Bucket

LINE_MAX_BYTES = 1 << 20
BYTES_PER_S = 1 << 18
"""Of requests, from all clients together where there may be only so many; beyond a burst of the longest line. To read
them takes time in which no call of the kubelet is forwarded: 0.2 s for a line with as many values as fit into it."""
IDLE_S = 30.0
"""When the connection of a silent client is closed."""


class Encoded(bytes):
    """A result that is already JSON: the handler encodes large ones in a thread."""


Command = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Receives the arguments and returns a JSON value or `Encoded`; raises `CriproxyError` with a sentence."""

log = structlog.get_logger("criproxy.node")


class UnknownCommand(UsageError):
    """This daemon does not know the command."""


class _Connections:
    """The connections that are open, also those that are not served yet; beyond *most*, they are closed at once."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._open: set[asyncio.BaseTransport] = set()
        self._closed = asyncio.Event()

    def add(self, made: asyncio.BaseTransport) -> None:
        """It is open."""
        if self._most is not None and len(self._open) >= self._most:
            made.close()
        self._open.add(made)

    def remove(self, lost: asyncio.BaseTransport) -> None:
        """It is closed."""
        self._open.discard(lost)
        self._closed.set()

    async def close(self) -> None:
        """Close all, and return when they are closed."""
        for each in tuple(self._open):
            each.close()
        while self._open:
            self._closed.clear()
            await self._closed.wait()


class _Connection(asyncio.StreamReaderProtocol):
    """One connection; *serve* gets its streams, and an event that is set when the client sends no more requests."""

    def __init__(
        self,
        connections: _Connections,
        serve: Callable[[asyncio.Event, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        line_max_bytes: int,
    ) -> None:
        self._ended = asyncio.Event()
        super().__init__(asyncio.StreamReader(limit=line_max_bytes), partial(serve, self._ended))
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(transport)
        self._made = transport

    def eof_received(self) -> bool | None:
        self._ended.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._ended.set()
        self._connections.remove(self._made)


class ControlServer:
    """Answers commands with the handlers of the caller.

    Args:
        commands: the handlers by command name.
        notices: the commands that count although their client has hung up: they tell something that stays true.
        waiting: the commands that wait for something to happen, and end when their client has hung up.
        clients_max: if given, further clients are turned away, the requests of all run one after the other, except
            those that wait, and are read at a limited rate.
        line_max_bytes: the longest request.
    """

    def __init__(
        self,
        commands: Mapping[str, Command],
        notices: Collection[str] = (),
        waiting: Collection[str] = (),
        *,
        clients_max: int | None = None,
        line_max_bytes: int = LINE_MAX_BYTES,
    ) -> None:
        self._commands = commands
        self._line_max_bytes = line_max_bytes
        self._notices, self._waiting = frozenset(notices), frozenset(waiting)
        self._server: asyncio.Server | None = None
        self._connections = _Connections(clients_max)
        self._sock: socket.socket
        self._stopped = False
        self._turn = nullcontext() if clients_max is None else asyncio.Lock()
        self._bytes = None if clients_max is None else Bucket(BYTES_PER_S, line_max_bytes)

    async def start(self, sock: socket.socket) -> None:
        """Serve on *sock*, a listening Unix socket, in place of a former one; its mode decides who may connect."""
        if self._server is not None:
            self._server.close()
        self._sock = sock
        connect = partial(_Connection, self._connections, self._connection, line_max_bytes=self._line_max_bytes)
        self._server = await asyncio.get_running_loop().create_unix_server(connect, sock=sock)

    async def stop(self) -> None:
        """Accept no more requests, and close all connections; answers of running commands are lost."""
        if self._server is None or self._stopped:
            return
        self._stopped = True
        asyncio.get_running_loop().remove_reader(self._sock)  # no connection is accepted from here on
        for _ in range(2):  # the last one that was gets its transport in one turn of the loop, and is made in the next
            await asyncio.sleep(0)
        self._server.close()
        with suppress(TimeoutError):  # since Python 3.12, it waits for running commands
            async with asyncio.timeout(PART_S):
                await self._connections.close()
                await self._server.wait_closed()

    async def _connection(
        self, ended: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while not self._stopped and (line := await _read_line(reader)):
                if self._bytes is not None and not await _has_waited(self._bytes, len(line), writer, ended):
                    break
                request = _parsed(line)
                if _command(request) in self._waiting:
                    answer = await self._answer_unless_hung_up(request, writer, ended)
                else:
                    async with self._turn:
                        if _hung_up(writer) and _command(request) not in self._notices:
                            log.warning("a control request is dropped: its client did not wait for the answer")
                            break
                        answer = await self._answer(request)
                if writer.is_closing():  # `stop` has closed it meanwhile; uvloop raises an error for a late write
                    break
                writer.write(answer)
                async with asyncio.timeout(IDLE_S):
                    await writer.drain()
        except (ConnectionError, TimeoutError):
            log.debug("control connection lost")
        except ValueError:  # the stream raises it for a line that exceeds the limit
            log.warning("control request is too long", limit_bytes=self._line_max_bytes)
        finally:
            writer.close()

    async def _answer_unless_hung_up(
        self, request: object, writer: asyncio.StreamWriter, ended: asyncio.Event
    ) -> bytes:
        """Return the answer to a command that waits; empty if its client has hung up or the server stops."""
        answering, ending = asyncio.ensure_future(self._answer(request)), asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not _hung_up(writer):  # it only sends no more requests
                await asyncio.wait({answering})
            return answering.result() if answering.done() else b""
        finally:
            answering.cancel()
            ending.cancel()

    async def _answer(self, request: object) -> bytes:
        try:
            command, arguments = self._understood(request)
            result = await command(arguments)
        except CriproxyError as error:
            unknown = {"unknown_command": True} if isinstance(error, UnknownCommand) else {}
            return _line({"error": str(error), "exit_status": error.exit_status, **unknown})
        except Exception:
            log.exception("control command failed")
            return _line({"error": "the daemon failed at this command; its log has the reason", "exit_status": 1})
        return b'{"result": %b}\n' % result if isinstance(result, Encoded) else _line({"result": result})

    def _understood(self, request: object) -> tuple[Command, Mapping[str, Any]]:
        if isinstance(request, UsageError):
            raise request
        if not isinstance(request, dict) or not isinstance(arguments := request.get("arguments", {}), dict):
            raise UsageError('the request must be an object: {"command": NAME, "arguments": {…}}')
        name = request.get("command")
        command = self._commands.get(name) if isinstance(name, str) else None
        if command is None:
            known = ", ".join(sorted(self._commands))
            raise UnknownCommand(f"this daemon knows no command {name!r}; it knows {known}")
        return command, arguments


def _parsed(line: bytes) -> object:
    """Return the request in a line, or the error that it has none."""
    try:
        request = json.loads(line)
        json.dumps(request, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # of half a surrogate pair, which no log, file or database takes
        return UsageError(f"the request has text that is not Unicode: {error}")
    except (ValueError, RecursionError) as error:
        return UsageError(f"the request is not JSON: {error}")
    return request


def _command(request: object) -> str:
    """Return the command of a request; empty if it has none."""
    return str(request.get("command")) if isinstance(request, dict) else ""


def _line(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, default=str).encode() + b"\n"


def _hung_up(writer: asyncio.StreamWriter) -> bool:
    """Whether the client has closed the connection, so that it does not wait for the answer."""
    if writer.is_closing():
        return True
    watched = select.poll()
    # Without any event, poll reports only a hang-up: a client that only stopped sending still waits for the answer.
    watched.register(writer.get_extra_info("socket"), 0)
    return bool(watched.poll(0))


async def _has_waited(bucket: Bucket, count: int, writer: asyncio.StreamWriter, ended: asyncio.Event) -> bool:
    """Wait until a line of *count* bytes may be parsed; return False if its client hangs up first."""
    pause_s = bucket.reserve(count)
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            await ended.wait()
            if _hung_up(writer):
                bucket.reserve(-count)
                return False
            await asyncio.Event().wait()  # it only sends no more requests
    return True


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    """Return the next request; empty at the end of the connection, also after an incomplete line."""
    async with asyncio.timeout(IDLE_S):
        line = await reader.readline()
    return line if line.endswith(b"\n") else b""
