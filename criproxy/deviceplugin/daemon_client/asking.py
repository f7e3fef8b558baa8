"""The device plugin's clients of the control socket; the daemon may be absent, slow or of another version."""

import asyncio
import socket
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from criproxy.errors import CriproxyError
from criproxy.process.control_client import LONGEST_ANSWER_BYTES, DaemonRefuses, NoDaemon, no_daemon_errors, result_of
from criproxy.process.control_protocol import request_of
from criproxy.process.logger import Log
from criproxy.process.tasks import in_full

REPORT_TIMEOUT_S = 2.0
"""How long the daemon may take to answer one report."""
FREE_CPUS_S = 0.05
"""How long choosing cards may wait for the daemon."""
COMMAND = "device-plugin"
MOST_REFUSALS = 256
"""The logged refusals that are remembered; bounded, because their reasons name containers. Then all are forgotten."""
Key = TypeVar("Key", bound=Hashable)
Report = TypeVar("Report")


async def report(path: str, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the answer of the daemon on *path*; waits for it in a thread, at most `REPORT_TIMEOUT_S`.

    Raises:
        NoDaemon: there is no answer in time.
        DaemonRefuses: the answer is an error.
    """
    return await asyncio.to_thread(partial(ask, path, command, arguments, REPORT_TIMEOUT_S))


def ask(path: str, command: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:  # noqa: ANN401 - JSON
    """Send a command to the daemon on *path*, and return its result, which it has to send within *timeout_s*.

    Raises:
        NoDaemon: there is no answer in time.
        DaemonRefuses: the answer is an error.
    """
    with no_daemon_errors(path, timeout_s), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect(path)
        sock.sendall(request_of(command, arguments))
        with sock.makefile("rb") as answers:
            return result_of(path, answers.readline(LONGEST_ANSWER_BYTES))


def free_cpus(path: str, timeout_s: float = FREE_CPUS_S) -> Mapping[int, int]:
    """Return the free thousandths of a CPU by NUMA node, for choosing cards, according to the daemon on *path*.

    Empty without an answer in time. Blocks for up to the timeout: the kubelet waits.
    """
    try:
        free = ask(path, "free-cpus", {}, timeout_s)["free_milli"]
        return {int(node): int(milli) for node, milli in free.items()} if free else {}
    except (CriproxyError, LookupError, ValueError, TypeError, AttributeError):
        return {}


async def say_running(socket: str, instance: str, *, running: bool, refused: str = "") -> None:
    """Tell the daemon on *socket* whether the device plugin runs from now on; *instance* as in `Published`.

    *refused* says why a device plugin that should run ends at its start. Older daemons ignore it, and miss reports.

    This is not repeated: a daemon that is absent learns from the reports that the device plugin runs, and one that
    does not answer, or does not know the command, keeps what it knows. A cancellation waits for the answer, so that a
    daemon is told in the right order.
    """
    arguments = {"running": running, "instance": instance} | ({"refused": refused} if refused else {})
    with suppress(NoDaemon, DaemonRefuses):
        await in_full(report(socket, COMMAND, arguments), None)


class PendingReports(dict[Key, Report]):
    """The reports that have not been delivered yet: the latest one for each subject, the oldest first.

    Args:
        maximum: the number of reports that are kept; adding another one drops the oldest.
    """

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self._maximum = maximum

    def add(self, key: Key, report: Report) -> None:
        """Add a report as the newest; it replaces an older one about the same *key*."""
        self.pop(key, None)
        if len(self) >= self._maximum:
            del self[next(iter(self))]
        self[key] = report

    def remove(self, key: Key, report: Report) -> bool:
        """Remove *report*, unless a newer one has replaced it; return whether it was removed."""
        is_current = self.get(key) is report
        if is_current:
            del self[key]
        return is_current


@dataclass(slots=True, repr=False)
class DaemonClient:
    """The daemon, as the watcher uses it; the answer to one command does not affect what is logged of the others.

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
            reason = str(error)
            self._refusals.clear()  # the next answer may come from another daemon
            if self._unanswered.get(command) != reason:
                self._unanswered[command] = reason
                self.log.warning("the quota watcher gets no answer from the daemon", command=command, reason=reason)
            raise
        except DaemonRefuses as error:
            self._unanswered.pop(command, None)
            self._log_refusal(command, str(error))
            raise
        self._unanswered.pop(command, None)

    def _log_refusal(self, command: str, reason: str) -> None:
        if (command, reason) not in self._refusals:
            if len(self._refusals) >= MOST_REFUSALS:
                self._refusals.clear()
            self._refusals.add((command, reason))
            self.log.warning("the daemon refuses a request of the quota watcher", command=command, reason=reason)
