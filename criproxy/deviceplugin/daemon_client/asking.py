"""The client of the control socket, for threads; the daemon may be absent, slow or of another version."""

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

from criproxy.errors import CriproxyError

WRONG_USE = 2
"""The exit status in the answer to an invalid request."""
LONGEST_ANSWER_BYTES = 1 << 20
REPORT_TIMEOUT_S = 2.0
"""How long the daemon may take to answer one report."""
CHUNK_BYTES = 65_536


class NoDaemon(CriproxyError):
    """The daemon does not answer; the text has the reason."""


class DaemonRefuses(CriproxyError):
    """The daemon answers with an error."""

    def __init__(self, text: str, *, wrong: bool, unknown: bool = False) -> None:
        super().__init__(text)
        self.wrong = wrong and not unknown
        """Whether the request is invalid, so that it must not be repeated."""
        self.unknown = unknown
        """Whether the daemon does not know the command: it is older, and the next one may know it."""


async def report(path: str, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the answer of the daemon on *path*; waits for it in a thread, at most `REPORT_TIMEOUT_S`.

    Raises:
        NoDaemon: there is no answer in time.
        DaemonRefuses: the answer is an error.
    """
    return await asyncio.to_thread(partial(ask, path, command, arguments, REPORT_TIMEOUT_S))


def ask(path: str, command: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:  # noqa: ANN401 - JSON
    """Send a command to the daemon on *path*, and return its result; all within *timeout_s*.

    Raises:
        NoDaemon: there is no answer in time.
        DaemonRefuses: the answer is an error.
    """
    with no_daemon_errors(path, timeout_s):
        return result_of(path, _answer(path, request_of(command, arguments), monotonic() + timeout_s))


def request_of(command: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the line that sends a command."""
    return json.dumps({"command": command, "arguments": dict(arguments)}).encode() + b"\n"


def result_of(path: str, line: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the result in the *line* with which the daemon on *path* has answered.

    Raises:
        NoDaemon: the line is none of a daemon.
        DaemonRefuses: the answer is an error.
    """
    try:
        answer = json.loads(line)
        if "result" in answer:
            return answer["result"]
        unknown = answer.get("unknown_command") is True
        raise DaemonRefuses(str(answer["error"]), wrong=answer.get("exit_status") == WRONG_USE, unknown=unknown)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoDaemon(f"the process listening on {path} is not a criproxy daemon: {error!r}") from error


@contextmanager
def no_daemon_errors(path: str, timeout_s: float) -> Iterator[None]:
    """Raise `NoDaemon` for the errors of a socket on *path*."""
    try:
        yield
    except TimeoutError as error:
        raise NoDaemon(f"the daemon on {path} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise NoDaemon(f"no daemon answers on {path}: {error.strerror or error}") from error


def _answer(path: str, request: bytes, deadline_s: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        _until(sock, deadline_s)
        sock.connect(path)
        _until(sock, deadline_s)
        sock.sendall(request)
        answer = b""
        while not answer.endswith(b"\n"):
            _until(sock, deadline_s)
            chunk = sock.recv(CHUNK_BYTES)
            if not chunk or len(answer) > LONGEST_ANSWER_BYTES:
                break
            answer += chunk
        return answer


def _until(sock: socket.socket, deadline_s: float) -> None:
    """Set the timeout of *sock* so that its next operation ends at *deadline_s*."""
    left_s = deadline_s - monotonic()
    if left_s <= 0:
        raise TimeoutError
    sock.settimeout(left_s)
