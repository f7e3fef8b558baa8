"""The agent's HTTP: who gets which answers, and what happens while the daemon gives none."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from criproxy import __version__
from criproxy.agent import QUERIES, QUERY_PATH, TOKEN_HEADER, VERSION_HEADER, http
from criproxy.agent.http import AgentHttp
from criproxy.agent.troubles import Troubles
from criproxy.process.control_socket import Command
from criproxy.process.failures import Failures
from criproxy.process.http import token_file
from criproxy.process.http.address import Address
from criproxy.process.http.server import Sources
from tests.agent.parts import running, until_said
from tests.asking import daemon, serving
from tests.node.world import RecordingLog, owner

TOKEN = "0123456789abcdef"  # noqa: S105 (of these tests)
LIMIT_S = 60.0


async def _well() -> str | None:
    return None


@asynccontextmanager
async def served(
    directory: Path, *, token: str = TOKEN, file: Path | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an agent whose daemon has its control socket in *directory*.

    Without *token*, it has no file; with *file*, that is its file, and the test writes it.
    """
    if token and not file:
        file = directory / "token"
        file.write_text(token)
    path = directory / "agent.sock"
    sources = Sources(lambda _: (b"metrics\n", "text/plain"), _well, _well)
    control_socket, troubles = str(directory / "control.sock"), Troubles(RecordingLog())
    agent = AgentHttp(Address(path=str(path)), file, control_socket, sources, troubles, Failures())
    async with asyncio.timeout(LIMIT_S), running(agent.run()):
        while not path.exists():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0)
        async with aiohttp.ClientSession("http://node", connector=aiohttp.UnixConnector(str(path))) as session:
            yield session


async def ask(
    session: aiohttp.ClientSession, command: str, *, token: str = TOKEN, **arguments: object
) -> tuple[int, Any]:
    """Status and JSON of the answer to a query."""
    return await post(session, json.dumps({"command": command, "arguments": arguments}).encode(), token=token)


async def post(session: aiohttp.ClientSession, body: bytes, *, token: str = TOKEN) -> tuple[int, Any]:
    """The same for any body."""
    async with session.post(QUERY_PATH, data=body, headers={TOKEN_HEADER: token}) as response:
        return response.status, await response.json()


async def test_queries_are_answered_as_on_the_node(tmp_path: Path) -> None:
    """The answer is the daemon's, as its control socket gives it; the response says which version the agent has."""
    async with daemon(tmp_path) as world, served(tmp_path) as session:
        await world.run(owner("owner", 2))
        status, answer = await ask(session, "status")
        async with session.post(QUERY_PATH, json={"command": "names"}, headers={TOKEN_HEADER: TOKEN}) as response:
            names, version = await response.json(), response.headers[VERSION_HEADER]

    assert status == 200
    assert answer["result"]["source"] == "daemon"
    assert [row["container"] for row in answer["result"]["containers"]] == ["main"]
    assert len(names["result"]) == 1
    assert version == __version__


async def test_errors_of_the_daemon_keep_their_sentence_and_kind(tmp_path: Path) -> None:
    """What the daemon refuses is no success of HTTP, and says what was wrong as on the node."""
    async with daemon(tmp_path), served(tmp_path) as session:
        unknown = await ask(session, "explain", container="shop/web/main")
        wrong = await ask(session, "explain")

    assert unknown[0] == wrong[0] == 422
    assert "shop/web/main" in unknown[1]["error"]
    assert (unknown[1]["exit_status"], wrong[1]["exit_status"]) == (1, 2)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b'{"command": "reload"}', 400, id="reload"),
        pytest.param(b'{"command": "bypass", "arguments": {"state": "on"}}', 400, id="bypass"),
        pytest.param(b'{"command": "agent"}', 400, id="agent"),
        pytest.param(b'{"command": "names", "command": "reload"}', 400, id="two-names"),
        pytest.param(b'{"command": "reload", "command": "names"}', 200, id="two-names-of-which-the-last-counts"),
        pytest.param(b'{"command": "names"}\n{"command": "reload"}', 400, id="two-lines"),
        pytest.param(b'{"command": "names", "arguments": []}', 400, id="arguments-of-another-kind"),
        pytest.param(b'{"command": ["names"]}', 400, id="name-of-another-kind"),
        pytest.param(b"[" * 10_000, 400, id="deep"),
        pytest.param(b"\xff", 400, id="not-utf-8"),
        pytest.param(b"", 400, id="empty"),
    ],
)
async def test_nothing_but_a_query_reaches_the_daemon(tmp_path: Path, body: bytes, status: int) -> None:
    """Whoever has the token can ask, and change nothing."""
    reached = list[str]()

    def noting(name: str) -> Command:
        async def note(_: Any) -> list[str]:  # noqa: ANN401 (JSON)
            reached.append(name)
            return []

        return note

    names = (*QUERIES, "reload", "bypass", "agent")
    async with serving(tmp_path, {name: noting(name) for name in names}), served(tmp_path) as session:
        assert (await post(session, body))[0] == status

    assert reached == ["names"] * (status == 200)


async def test_a_body_is_bounded(tmp_path: Path) -> None:
    """One that is too long is refused before it is read."""
    async with (
        served(tmp_path) as session,
        session.post(QUERY_PATH, data=b"x" * 100_000, headers={TOKEN_HEADER: TOKEN}) as response,
    ):
        assert response.status == 413


@pytest.mark.parametrize("given", ["", "x", TOKEN[:-1], f"{TOKEN}x", "ü" * 16])
async def test_without_the_token_there_is_no_answer(tmp_path: Path, given: str) -> None:
    """Metrics and health are open, queries are not."""
    async with daemon(tmp_path), served(tmp_path) as session:
        status, answer = await ask(session, "status", token=given)
        open_to_all = []
        for path in ("/metrics", "/healthz", "/readyz"):
            async with session.get(path) as response:
                open_to_all.append(response.status)

    assert status == 401
    assert TOKEN_HEADER in answer["error"]
    assert open_to_all == [200, 200, 200]


async def test_without_a_token_file_no_query_is_answered(tmp_path: Path) -> None:
    """Not even on a Unix socket, and whatever token is sent."""
    async with daemon(tmp_path), served(tmp_path, token="") as session:
        answers = [await ask(session, "status", token=given) for given in ("", TOKEN)]
        async with session.get("/metrics") as response:
            metrics = await response.text()

    assert [status for status, _ in answers] == [403, 403]
    assert "--http-token-file" in answers[0][1]["error"]
    assert metrics == "metrics\n"


async def test_a_rotated_token_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is read again: the old token ends, the new one is taken."""
    monkeypatch.setattr(token_file, "FRESH_S", 0.0)
    async with daemon(tmp_path), served(tmp_path) as session:
        before = await ask(session, "names")
        (tmp_path / "token").write_text("f" * 16)
        after = [(await ask(session, "names", token=each))[0] for each in (TOKEN, "f" * 16)]
        (tmp_path / "token").unlink()
        gone, answer = await ask(session, "names", token="f" * 16)

    assert (before[0], after, gone) == (200, [401, 200], 401)
    assert "there is no such file" in answer["error"]


async def test_no_daemon(tmp_path: Path) -> None:
    """The agent says where it has asked."""
    async with served(tmp_path) as session:
        status, answer = await ask(session, "status")

    assert status == 503
    assert answer["error"].startswith(f"no criproxy daemon answers on {tmp_path}/control.sock: ")


@asynccontextmanager
async def listening(directory: Path) -> AsyncIterator[socket.socket]:
    """A control socket of a daemon that does what the test does; it accepts nothing by itself."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "control.sock"))
        listener.listen()
        listener.setblocking(False)
        yield listener


async def test_a_daemon_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes in bounded time, and is that there is none."""
    monkeypatch.setattr(http, "PATIENCE_S", 0.05)
    async with listening(tmp_path), served(tmp_path) as session:
        status, answer = await ask(session, "status")

    assert status == 504
    assert f"the daemon on {tmp_path}/control.sock did not answer within 0.05 s" in answer["error"]


@pytest.mark.parametrize("hangs", [False, True], ids=["it-ends", "it-hangs"])
async def test_an_answer_that_breaks_off_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    """A client cannot take the half of an answer for a whole one, and waits for a bounded time."""
    monkeypatch.setattr(http, "ANSWER_S", 0.5)
    loop = asyncio.get_running_loop()
    async with listening(tmp_path) as listener, served(tmp_path) as session:
        asking = asyncio.ensure_future(ask(session, "status"))
        connection, _ = await loop.sock_accept(listener)
        await loop.sock_recv(connection, 4096)
        await loop.sock_sendall(connection, b'{"result": {"con')
        if not hangs:
            connection.close()
        with pytest.raises(aiohttp.ClientPayloadError):
            await asking
        connection.close()


async def test_a_daemon_that_hangs_up_at_once(tmp_path: Path) -> None:
    """It has too many clients."""
    loop = asyncio.get_running_loop()
    async with listening(tmp_path) as listener, served(tmp_path) as session:
        asking = asyncio.ensure_future(ask(session, "status"))
        connection, _ = await loop.sock_accept(listener)
        await loop.sock_recv(connection, 4096)
        connection.close()
        status, answer = await asking

    assert status == 503
    assert "hung up" in answer["error"]


async def test_a_large_answer_passes_in_parts(tmp_path: Path) -> None:
    """Several megabytes arrive whole, and the agent never holds them as a whole."""
    large = "x" * (8 << 20)

    async def answer(_: Any) -> str:  # noqa: ANN401 (JSON)
        return large

    async with serving(tmp_path, {"status": answer}), served(tmp_path) as session:
        status, got = await ask(session, "status")

    assert status == 200
    assert got["result"] == large


async def test_too_many_requests_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not reach the daemon."""
    monkeypatch.setattr(http, "ANSWERS_BURST", 2)
    monkeypatch.setattr(http, "ANSWERS_PER_S", 0.0001)
    async with daemon(tmp_path), served(tmp_path) as session:
        strangers = [(await ask(session, "names", token=""))[0] for _ in range(3)]
        statuses = [(await ask(session, "names"))[0] for _ in range(3)]

    assert strangers == [401] * 3  # who has no token uses up nothing
    assert statuses == [200, 200, 429]


async def test_an_address_in_use_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node hears why nobody can ask; it is tried again, and goes on as soon as the address is free."""
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    sources, troubles = Sources(lambda _: (b"", ""), _well, _well), Troubles(RecordingLog())
    taken = socket.create_server(("127.0.0.1", 0))
    address = Address("127.0.0.1", taken.getsockname()[1])
    agent = AgentHttp(address, None, os.devnull, sources, troubles, Failures())
    async with running(agent.run()):
        await until_said(troubles, "--http: cannot listen on")
        taken.close()
        await until_said(troubles)


async def test_the_token_of_a_mounted_secret_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet puts it into a directory of its own, and leads a link to the next one when the Secret changes."""
    monkeypatch.setattr(token_file, "FRESH_S", 0.0)
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o1777)  # as the kernel makes the root of a tmpfs
    (volume / "token").symlink_to("..data/token")
    answers = []
    async with daemon(tmp_path), served(tmp_path, file=volume / "token") as session:
        for number, token in enumerate((TOKEN, "f" * 16)):
            (volume / f"..{number}").mkdir()
            (volume / f"..{number}/token").write_text(token)
            (volume / "..new").symlink_to(f"..{number}")
            (volume / "..new").rename(volume / "..data")
            while (await ask(session, "names", token=token))[0] != 200:  # a reading from before may still be under way
                pass
            answers.append([(await ask(session, "names", token=each))[0] for each in (TOKEN, "f" * 16)])

    assert answers == [[200, 401], [401, 200]]
