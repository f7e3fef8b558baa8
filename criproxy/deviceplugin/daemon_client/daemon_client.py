"""Requests of the watcher to the daemon; the log gets each reason why there is no answer once.

Requests with different commands run in parallel, and the answer to one of them does not affect the others.
"""

import asyncio
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import (
    CHUNK_BYTES,
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
    """Sends one report after the other, on a connection that stays open.

    No thread waits for the answer to a report: it is read when the next report is due, when it has long arrived.

    Args:
        path: the daemon's control socket.
        timeout_s: how long the daemon may take to answer.
    """

    path: str
    timeout_s: float = REPORT_TIMEOUT_S
    _sock: socket.socket | None = None
    _sent_s: float | None = None
    """When the report was sent whose answer has not been read yet."""

    @property
    def is_waiting(self) -> bool:
        """Whether the answer to the last report has not been read yet."""
        return self._sent_s is not None

    async def send(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Send a report, by another connection if the daemon has closed the last one, as it does with idle ones.

        Raises:
            NoDaemon: it cannot be sent.
        """
        request, self._sent_s = request_of(command, arguments), monotonic()
        try:
            with no_daemon_errors(self.path, self.timeout_s):
                if not await self._sent_by_kept(request):
                    self.close()
                    sock = await self._connected()
                    self._sent_s = monotonic()
                    await self._send(sock, request)
        except BaseException:
            self.close()
            raise

    async def result(self) -> Any:  # noqa: ANN401 - JSON
        """Return the result of the last report; None if it was returned before, or there is none.

        Raises:
            NoDaemon: there is no answer in time.
            DaemonRefuses: the answer is an error.
        """
        if self._sent_s is None or self._sock is None:
            return None
        try:
            with no_daemon_errors(self.path, self.timeout_s):
                line = await self._line(self._sock, self._sent_s + self.timeout_s)
        except BaseException:
            self.close()
            raise
        self._sent_s = None
        if not line.endswith(b"\n"):
            self.close()
        return result_of(self.path, line)

    def close(self) -> None:
        """Close the connection; the answer to the last report is lost."""
        self._sent_s = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    async def _connected(self) -> socket.socket:
        """Connect in a thread: a file system may hang. The socket is ours before, so that who is cancelled closes it.

        A non-blocking Unix socket is connected at once or not at all: no thread waits on a descriptor that is closed.
        """
        self._sock = sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        await asyncio.to_thread(sock.connect, self.path)
        return sock

    async def _sent_by_kept(self, request: bytes) -> bool:
        """Send by the connection that is open; return whether there is one, and the daemon has not closed it."""
        if self._sock is None:
            return False
        try:
            await self._send(self._sock, request)
        except ConnectionError:
            return False
        return True

    async def _send(self, sock: socket.socket, request: bytes) -> None:
        try:
            sent = sock.send(request)
        except BlockingIOError:
            sent = 0
        if sent < len(request):
            async with asyncio.timeout(self.timeout_s):
                await asyncio.get_running_loop().sock_sendall(sock, request[sent:])

    async def _line(self, sock: socket.socket, until_s: float) -> bytes:
        """Return the answer, which may be incomplete if the daemon closes the connection or does not end the line."""
        line = b""
        while not line.endswith(b"\n") and len(line) <= LONGEST_ANSWER_BYTES:
            try:
                chunk = sock.recv(CHUNK_BYTES)
            except BlockingIOError:
                async with asyncio.timeout(until_s - monotonic()):
                    chunk = await asyncio.get_running_loop().sock_recv(sock, CHUNK_BYTES)
            if not chunk:
                break
            line += chunk
        return line


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
            self.log_no_answer(command, str(error))
            raise
        except DaemonRefuses as error:
            self._unanswered.pop(command, None)
            self._log_refusal(command, str(error))
            raise
        self._unanswered.pop(command, None)

    def log_no_answer(self, command: str, reason: str) -> None:
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
