"""Requests of the watcher to the daemon; the log gets each reason why there is no answer once.

Requests with different commands run in parallel, and the answer to one of them does not affect the others.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from criproxy.deviceplugin.daemon_client.asking import report
from criproxy.process.control_client import DaemonRefuses, NoDaemon
from criproxy.process.logger import Log

MOST_REFUSALS = 256
"""The logged refusals that are remembered; bounded, because their reasons name containers. Then all are forgotten."""


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
