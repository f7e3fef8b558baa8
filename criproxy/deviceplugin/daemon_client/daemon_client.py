"""Requests of the watcher to the daemon; the log gets each reason why there is no answer once.

Requests with different commands run in parallel, and the answer to one of them does not affect the others.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import (
    LONGEST_ANSWER_BYTES,
    REPORT_TIMEOUT_S,
    DaemonRefuses,
    NoDaemon,
    no_daemon_errors,
    report,
    request_of,
    result_of,
)
from criproxy.process.logger import Log

MOST_REFUSALS = 256
"""The logged refusals that are remembered; bounded, because their reasons name containers. Then all are forgotten."""


@dataclass(slots=True, repr=False)
class ReportConnection:
    """Sends one report after the other, on a connection that stays open: a thread for each of them costs more.

    Args:
        path: the daemon's control socket.
        timeout_s: how long the daemon may take to answer.
    """

    path: str
    timeout_s: float = REPORT_TIMEOUT_S
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a report; after a failure, the next one is sent by another connection.

        Raises:
            NoDaemon: there is no answer in time.
            DaemonRefuses: the answer is an error.
        """
        try:
            with no_daemon_errors(self.path, self.timeout_s):
                async with asyncio.timeout(self.timeout_s):
                    line = await self._answer(request_of(command, arguments))
        except BaseException:
            self.close()
            raise
        if not line.endswith(b"\n"):
            self.close()
        return result_of(self.path, line)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _answer(self, request: bytes) -> bytes:
        """Send a line by the open connection, or by another one: the daemon closes idle ones."""
        if self._streams is not None:
            with suppress(ConnectionError):
                if line := await _exchanged(*self._streams, request):
                    return line
        self.close()
        self._streams = await asyncio.open_unix_connection(self.path, limit=LONGEST_ANSWER_BYTES)
        return await _exchanged(*self._streams, request)


async def _exchanged(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    await writer.drain()
    return await reader.readline()


@dataclass(slots=True, repr=False)
class DaemonClient:
    """The daemon, as the watcher uses it.

    Args:
        socket: the daemon's control socket.
        log: gets each reason why there is no answer once.
    """

    socket: str
    log: Log
    _unanswered: dict[str, str] = field(default_factory=dict)
    """By command, the logged reason why there is no answer."""
    _refusals: set[tuple[str, str]] = field(default_factory=set)
    """The commands that were refused, with the logged reasons."""

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the daemon's answer to *command*.

        Raises:
            NoDaemon: there is no answer in time.
            DaemonRefuses: the answer is an error.
        """
        with self.logged(command):
            return await report(self.socket, command, arguments)

    @contextmanager
    def logged(self, command: str) -> Iterator[None]:
        """Log that there is no answer, or a refusal; the block gets an answer."""
        try:
            yield
        except NoDaemon as error:
            self._log_no_answer(command, str(error))
            raise
        except DaemonRefuses as error:
            self._unanswered.pop(command, None)
            self._log_refusal(command, str(error))
            raise
        self._unanswered.pop(command, None)

    def _log_no_answer(self, command: str, reason: str) -> None:
        """Log the *reason* why there is no answer, unless it was logged before."""
        self._refusals.clear()  # the next answer may come from another daemon
        if self._unanswered.get(command) != reason:
            self._unanswered[command] = reason
            self.log.warning("the quota watcher gets no answer from the daemon", command=command, reason=reason)

    def _log_refusal(self, command: str, reason: str) -> None:
        if (command, reason) not in self._refusals:
            if len(self._refusals) >= MOST_REFUSALS:
                self._refusals.clear()
            self._refusals.add((command, reason))
            self.log.warning("the daemon refuses a request of the quota watcher", command=command, reason=reason)
