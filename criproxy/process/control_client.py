"""The client of the daemon's control socket for programs of ours; the daemon may be absent, slow or of another version.

The commands have a client of their own, `cli.client`, whose errors tell people what to do.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from criproxy.errors import CriproxyError, UsageError
from criproxy.process.control_protocol import answer_of, request_of

LONGEST_ANSWER_BYTES = 1 << 20


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


@dataclass(slots=True, repr=False)
class ControlClient:
    """Sends one request after the other, on a connection that stays open: a thread for each of them costs more.

    Args:
        path: the daemon's control socket.
        timeout_s: how long the daemon may take to answer.
        longest_bytes: the longest answer that is read.
    """

    path: str
    timeout_s: float
    longest_bytes: int = LONGEST_ANSWER_BYTES
    _streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the result of a command; after a failure, the next request is sent by another connection.

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

    async def lost(self) -> None:
        """Wait until the daemon ends the open connection, between two requests; for ever if there is none."""
        if self._streams is None:
            await asyncio.Event().wait()
        else:
            with suppress(ConnectionError):
                await self._streams[0].read(1)

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
        self._streams = await asyncio.open_unix_connection(self.path, limit=self.longest_bytes)
        return await _exchanged(*self._streams, request)


async def _exchanged(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    await writer.drain()
    return await reader.readline()


def result_of(path: str, line: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the result in the *line* with which the daemon on *path* has answered.

    Raises:
        NoDaemon: the line is none of a daemon.
        DaemonRefuses: the answer is an error.
    """
    try:
        answer = answer_of(line)
    except ValueError as error:
        raise NoDaemon(f"the process listening on {path} is not a criproxy daemon: {error}") from error
    if "result" in answer:
        return answer["result"]
    wrong, unknown = answer.get("exit_status") == UsageError.exit_status, answer.get("unknown_command") is True
    raise DaemonRefuses(answer["error"], wrong=wrong, unknown=unknown)


@contextmanager
def no_daemon_errors(path: str, timeout_s: float) -> Iterator[None]:
    """Raise `NoDaemon` for the errors of a socket on *path*."""
    try:
        yield
    except TimeoutError as error:
        raise NoDaemon(f"the daemon on {path} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise NoDaemon(f"no daemon answers on {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise NoDaemon(f"the process listening on {path} is not a criproxy daemon: its answer is too long") from error
