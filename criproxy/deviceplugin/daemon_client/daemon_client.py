"""Requests of the watcher to the daemon; the log gets each reason why there is no answer once.

Requests with different commands run in parallel, and the answer to one of them does not affect the others.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import DaemonRefuses, NoDaemon, report
from criproxy.deviceplugin.daemon_client.report_connection import ReportConnection
from criproxy.process.logger import Log

FORGET_S = 60.0
"""A refusal that has not been repeated for so long is logged again."""
MOST_REFUSALS = 256
"""The logged refusals that are remembered; bounded, because their reasons name containers."""


@dataclass(slots=True, repr=False)
class DaemonClient:
    """The daemon, as the watcher uses it.

    Args:
        socket: the daemon's control socket.
        log: gets each reason why there is no answer once.
        clock: a monotonic clock, in seconds.
    """

    socket: str
    log: Log
    clock: Callable[[], float] = time.monotonic
    _unanswered: dict[str, str] = field(default_factory=dict)
    """By command, the logged reason why there is no answer."""
    _refusals: dict[tuple[str, str], float] = field(default_factory=dict)
    """By command and reason, when the command was last refused; the oldest first."""
    _connections: dict[str, ReportConnection] = field(default_factory=dict)
    """The connections that stay open, by command."""

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the daemon's answer to *command*.

        Raises:
            NoDaemon: there is no answer in time.
            DaemonRefuses: the answer is an error.
        """
        with self._logged(command):
            return await report(self.socket, command, arguments)

    async def tell(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Send a report that is repeated in each period; `is_told` returns whether the daemon has accepted it.

        Raises:
            NoDaemon: it cannot be sent.
        """
        connection = self._connections.get(command)
        if connection is None:
            connection = self._connections[command] = ReportConnection(self.socket)
        try:
            await connection.send(command, arguments)
        except NoDaemon as error:
            self._log_no_answer(command, str(error))
            raise

    async def is_told(self, command: str) -> bool:
        """Whether the daemon has accepted the last report, or there has been none whose answer is not known."""
        connection = self._connections.get(command)
        if connection is None or not connection.is_waiting:
            return True
        try:
            with self._logged(command):
                await connection.result()
        except (NoDaemon, DaemonRefuses):
            return False
        return True

    def hang_up(self, command: str) -> None:
        """Close the connection on which such reports are sent."""
        if connection := self._connections.pop(command, None):
            connection.close()

    @contextmanager
    def _logged(self, command: str) -> Iterator[None]:
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
        self._refusals.clear()  # the next answer may come from another daemon
        if self._unanswered.get(command) != reason:
            self._unanswered[command] = reason
            self.log.warning("the quota watcher gets no answer from the daemon", command=command, reason=reason)

    def _log_refusal(self, command: str, reason: str) -> None:
        now_s = self.clock()
        last_s = self._refusals.pop((command, reason), None)
        if len(self._refusals) >= MOST_REFUSALS:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[command, reason] = now_s
        if last_s is None or now_s - last_s > FORGET_S:
            self.log.warning("the daemon refuses a request of the quota watcher", command=command, reason=reason)
