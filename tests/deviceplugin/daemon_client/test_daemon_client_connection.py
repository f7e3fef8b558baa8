"""A connection that stays open for many reports: to a daemon that is restarted, hangs, refuses, or is none."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from criproxy.deviceplugin.daemon_client.asking import DaemonRefuses, NoDaemon
from criproxy.deviceplugin.daemon_client.daemon_client import ReportConnection
from tests.deviceplugin.news import PATIENT_S
from tests.gates import Gate

LARGE = "x" * 900_000
"""More than fits into the buffers of a socket."""
RESULT = b'{"result": 7}\n'


class Peer:
    """Answers each line with the next of its answers, or not at all; it counts the connections."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: list[bytes] = []
        self.lines: list[bytes] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Listen from now on."""
        self._server = await asyncio.start_unix_server(self._connection, self.path, limit=1 << 20)

    async def hang_up(self) -> None:
        """Close all connections."""
        for writer in self._writers:
            writer.close()
            await writer.wait_closed()
        self._writers.clear()

    async def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.close()
            await self.hang_up()
            self._server = None
            self.path.unlink()

    async def until(self, lines: int) -> None:
        """Return when so many lines have come."""
        async with asyncio.timeout(PATIENT_S):
            while len(self.lines) < lines:
                self._news.clear()
                await self._news.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        while line := await reader.readline():
            self.lines.append(line)
            self._news.set()
            if self.answers:
                writer.write(self.answers.pop(0))


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Return one that listens, on a path that is short enough for sockets."""
    with TemporaryDirectory(prefix="p") as name:
        found = Peer(Path(name) / "control.sock")
        await found.start()
        yield found
        await found.stop()


@pytest.fixture
def connection(peer: Peer) -> Iterator[ReportConnection]:
    """Return one to the peer."""
    found = ReportConnection(str(peer.path), PATIENT_S)
    yield found
    found.close()


async def test_reports_share_a_connection(peer: Peer, connection: ReportConnection) -> None:
    """Also a large one; each has an answer, which is returned once."""
    peer.answers = [RESULT] * 3
    for text in ("", LARGE, ""):
        await connection.send("device-usage", {"text": text})
        assert await connection.result() == 7
        assert await connection.result() is None

    assert [len(line) > len(LARGE) for line in peer.lines] == [False, True, False]
    assert peer.connections == 1


async def test_a_daemon_that_has_closed_the_connection_gets_the_next_report_by_another(
    peer: Peer, connection: ReportConnection
) -> None:
    """It closes idle ones, and all when it is restarted."""
    peer.answers = [RESULT] * 3
    await connection.send("device-usage", {})
    assert await connection.result() == 7
    await peer.hang_up()
    await connection.send("device-usage", {})
    assert await connection.result() == 7
    await peer.stop()
    await peer.start()
    await connection.send("device-usage", {})
    assert await connection.result() == 7

    assert peer.connections == len(peer.lines) == 3


async def test_without_an_answer_in_time_the_connection_is_closed(peer: Peer, connection: ReportConnection) -> None:
    """A late answer must not be taken for that to the next report."""
    connection.timeout_s = 0.01
    await connection.send("device-usage", {"number": 1})
    with pytest.raises(NoDaemon, match=r"did not answer within 0\.01 s"):
        await connection.result()
    connection.timeout_s = PATIENT_S
    peer.answers = [RESULT]
    await connection.send("device-usage", {"number": 2})

    assert await connection.result() == 7
    assert peer.connections == 2


async def test_a_daemon_that_ends_before_its_answer_has_not_answered(peer: Peer, connection: ReportConnection) -> None:
    """The report may be lost."""
    await connection.send("device-usage", {})
    await peer.until(lines=1)
    await peer.stop()
    with pytest.raises(NoDaemon, match="not a criproxy daemon"):
        await connection.result()
    with pytest.raises(NoDaemon, match="no daemon answers"):
        await connection.send("device-usage", {})
    assert not connection.is_waiting


async def test_a_refusal_leaves_the_connection_open(peer: Peer, connection: ReportConnection) -> None:
    """It is about one report."""
    peer.answers = [b'{"error": "too many", "exit_status": 2}\n', RESULT]
    await connection.send("device-usage", {})
    with pytest.raises(DaemonRefuses, match="too many"):
        await connection.result()
    await connection.send("device-usage", {})

    assert await connection.result() == 7
    assert peer.connections == 1


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400\n", b"[]\n", b'"result"\n', b"{}\n", b"7\n"])
async def test_another_program_is_no_daemon(peer: Peer, connection: ReportConnection, answer: bytes) -> None:
    """Whatever it says."""
    peer.answers = [answer]
    await connection.send("device-usage", {})

    with pytest.raises(NoDaemon, match="not a criproxy daemon"):
        await connection.result()


class SlowSocket(socket.socket):
    """A socket whose path a hanging file system looks up."""

    def __init__(self, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **more)
        self.begun, self.go_on = threading.Event(), Gate()
        if not more:  # it is not one that a server has accepted
            MADE.append(self)

    def connect(self, address: Any) -> None:  # noqa: ANN401
        """Connect, when the file system answers."""
        self.begun.set()
        self.go_on.wait()
        super().connect(address)


MADE = list[SlowSocket]()


async def test_who_is_cancelled_while_it_connects_leaves_no_socket(
    peer: Peer, connection: ReportConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on, and connects nothing that nobody would close."""
    MADE.clear()
    monkeypatch.setattr(socket, "socket", SlowSocket)
    sending = asyncio.create_task(connection.send("usage", {}))
    while not (MADE and MADE[0].begun.is_set()):  # noqa: ASYNC110 (a thread tells)
        await asyncio.sleep(0.005)

    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    MADE[0].go_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()

    assert [each.fileno() for each in MADE] == [-1]
