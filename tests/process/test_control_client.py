"""A connection that stays open for many reports: to a daemon that is restarted, hangs, refuses, or is none."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from criproxy.process.control_client import ControlClient, DaemonRefuses, NoDaemon
from criproxy.process.tasks import wait_at_most
from tests.deviceplugin.news import PATIENT_S, News

LARGE = "x" * 900_000
"""More than fits into the buffers of a socket."""
RESULT = b'{"result": 7}\n'


class Peer(News):
    """Answers each line with the next of its answers, or not at all; it counts the connections."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.answers: list[bytes] = []
        self.lines: list[bytes] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

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

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        while line := await reader.readline():
            self.lines.append(line)
            self.wake()
            if self.answers:
                writer.write(self.answers.pop(0))


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    """Return one that listens."""
    found = Peer(tmp_path / "control.sock")
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
def connection(peer: Peer) -> Iterator[ControlClient]:
    """Return one to the peer."""
    found = ControlClient(str(peer.path), PATIENT_S)
    yield found
    found.close()


async def test_reports_share_a_connection(peer: Peer, connection: ControlClient) -> None:
    """Also a large one; each has an answer."""
    peer.answers = [RESULT] * 3
    for text in ("", LARGE, ""):
        assert await connection.ask("device-usage", {"text": text}) == 7

    assert [len(line) > len(LARGE) for line in peer.lines] == [False, True, False]
    assert peer.connections == 1


async def test_a_daemon_that_has_closed_the_connection_gets_the_next_report_by_another(
    peer: Peer, connection: ControlClient
) -> None:
    """It closes idle ones, and all when it is restarted."""
    peer.answers = [RESULT] * 3
    assert await connection.ask("device-usage", {}) == 7
    await peer.hang_up()
    assert await connection.ask("device-usage", {}) == 7
    await peer.stop()
    await peer.start()
    assert await connection.ask("device-usage", {}) == 7

    assert peer.connections == len(peer.lines) == 3


async def test_without_an_answer_in_time_the_connection_is_closed(peer: Peer, connection: ControlClient) -> None:
    """A late answer must not be taken for that to the next report."""
    connection.timeout_s = 0.01
    with pytest.raises(NoDaemon, match=r"did not answer within 0\.01 s"):
        await connection.ask("device-usage", {"number": 1})
    connection.timeout_s = PATIENT_S
    peer.answers = [RESULT]

    assert await connection.ask("device-usage", {"number": 2}) == 7


async def test_a_daemon_that_ends_before_its_answer_has_not_answered(peer: Peer, connection: ControlClient) -> None:
    """The report may be lost."""
    asking = asyncio.create_task(connection.ask("device-usage", {}))
    await peer.until(lambda: peer.lines)
    await peer.stop()
    with pytest.raises(NoDaemon, match="not a criproxy daemon"):
        await asking
    with pytest.raises(NoDaemon, match="no daemon answers"):
        await connection.ask("device-usage", {})


async def test_a_refusal_leaves_the_connection_open(peer: Peer, connection: ControlClient) -> None:
    """It is about one report."""
    peer.answers = [b'{"error": "too many", "exit_status": 2}\n', RESULT]
    with pytest.raises(DaemonRefuses, match="too many"):
        await connection.ask("device-usage", {})

    assert await connection.ask("device-usage", {}) == 7
    assert peer.connections == 1


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400\n", b"[]\n", b'"result"\n', b"{}\n", b"7\n"])
async def test_another_program_is_no_daemon(peer: Peer, connection: ControlClient, answer: bytes) -> None:
    """Whatever it says."""
    peer.answers = [answer]
    with pytest.raises(NoDaemon, match="not a criproxy daemon"):
        await connection.ask("device-usage", {})


async def test_the_end_of_the_peer_is_noticed_between_requests(peer: Peer, connection: ControlClient) -> None:
    """Without one; who stops to wait for it can go on with requests."""
    peer.answers = [RESULT] * 2
    assert await connection.ask("status", {}) == 7
    assert not await wait_at_most(0.01, connection.lost())
    assert await connection.ask("status", {}) == 7
    waits = asyncio.ensure_future(connection.lost())
    await peer.hang_up()
    assert await wait_at_most(PATIENT_S, waits)
