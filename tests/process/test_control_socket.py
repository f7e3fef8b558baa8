"""Commands over the control socket: the server, and the client of the command line."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import uvloop

from criproxy.cli.client import ask
from criproxy.errors import CriproxyError, UsageError
from criproxy.process import control_socket
from criproxy.process.control_socket import LINE_MAX_BYTES, ControlServer
from criproxy.wire.sockets import listen


async def double(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A command that answers, says no, is used wrongly or breaks, as its argument says."""
    match arguments.get("number"):
        case int(number):
            return {"doubled": number * 2}
        case "no":
            raise CriproxyError("not today")
        case "broken":
            raise ZeroDivisionError("secret detail")
        case other:
            raise UsageError(f"number: {other!r} is no number")


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[str]:
    """A control socket with the command `double`."""
    listener = listen(str(tmp_path / "control.sock"), 0o600)
    server = ControlServer({"double": double})
    await server.start(listener.sock)
    yield listener.path
    await server.stop()
    listener.close()


async def exchange(path: str, *lines: bytes) -> list[dict[str, Any]]:
    """Send *lines* and the end of file; return every answer."""
    reader, writer = await asyncio.open_unix_connection(path)
    for line in lines:
        writer.write(line)
    writer.write_eof()
    answers = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return [json.loads(line) for line in answers.splitlines()]


async def test_a_request_whose_asker_has_gone_is_not_begun(tmp_path: Path) -> None:
    """Who was told that the daemon does not answer is not surprised when it goes on and does it after all.

    A notice counts: who tells something that stays true need not wait, and a daemon that was stopped hears it late.
    """
    asked, heard = list[object](), asyncio.Event()

    async def note(arguments: Mapping[str, Any]) -> None:
        asked.append(arguments["who"])

    async def hear(_: Mapping[str, Any]) -> None:
        heard.set()

    listener = listen(str(tmp_path / "control.sock"), 0o600)
    gone, waits = (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2))
    for who, sock in (("gone", gone), ("waits", waits)):
        sock.connect(listener.path)
        sock.sendall(json.dumps({"command": "note", "arguments": {"who": who}}).encode() + b"\n")
    gone.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tells:
        tells.connect(listener.path)
        tells.sendall(b'{"command": "hear"}\n')
    waits.shutdown(socket.SHUT_WR)
    waits.setblocking(False)
    server = ControlServer({"note": note, "hear": hear}, notices={"hear"})
    await server.start(listener.sock)  # as a daemon that was stopped goes on
    async with asyncio.timeout(60):
        await heard.wait()
    await asyncio.wait_for(asyncio.get_running_loop().sock_recv(waits, 100), 60)
    await exchange(listener.path, b'{"command": "note", "arguments": {"who": "last"}}\n')
    await server.stop()
    listener.close()
    waits.close()
    assert asked == ["waits", "last"]


@pytest.fixture
async def contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A control socket for containers, with the command `double`, that reads 4 MiB in a second."""
    monkeypatch.setattr(control_socket, "BYTES_PER_S", 1 << 22)
    listener = listen(str(tmp_path / "contained.sock"), 0o600)
    server = ControlServer({"double": double}, clients_max=16)
    await server.start(listener.sock)
    yield listener.path
    await server.stop()
    listener.close()


def long_line(number: int) -> bytes:
    """Half of the longest request; one full of values takes the event loop a tenth of a second."""
    more = "x" * (LINE_MAX_BYTES // 2)
    return json.dumps({"command": "double", "arguments": {"number": number, "more": more}}).encode() + b"\n"


async def test_long_requests_from_containers_do_not_hold_up_calls(contained: str) -> None:
    """They are read at a limited rate, however many clients send them; all are answered."""
    loop = asyncio.get_running_loop()
    begun_s, line = loop.time(), long_line(2)
    answers = await asyncio.gather(*(exchange(contained, line, line) for _ in range(3)))
    assert answers == [[{"result": {"doubled": 4}}] * 2] * 3
    assert loop.time() - begun_s > 0.9 * (6 * len(line) - LINE_MAX_BYTES) / (1 << 22)


async def test_long_requests_of_those_who_hang_up_hold_up_nobody(contained: str) -> None:
    """They are dropped, and neither kept in memory nor counted: others would wait for minutes."""
    line = long_line(2)
    for _ in range(500):
        _, writer = await asyncio.open_unix_connection(contained)
        writer.write(line)
        with suppress(ConnectionError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
    assert await asyncio.wait_for(exchange(contained, b'{"command": "double", "arguments": {"number": 1}}\n'), 30) == [
        {"result": {"doubled": 2}}
    ]


async def test_clients_in_a_container_use_up_nothing(tmp_path: Path) -> None:
    """Where their number is limited, further ones are turned away, and one request runs at a time."""
    running, most, together = 0, 0, asyncio.Event()

    async def note(_: Mapping[str, Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await together.wait()
        running -= 1

    listener = listen(str(tmp_path / "control.sock"), 0o600)
    server = ControlServer({"note": note}, clients_max=2)
    await server.start(listener.sock)
    asks = (exchange(listener.path, b'{"command": "note"}\n') for _ in range(5))
    clients = [asyncio.create_task(asked) for asked in asks]
    for each in islice(asyncio.as_completed(clients, timeout=60), 3):  # those that are turned away
        with suppress(ConnectionError):
            await each
    together.set()
    answers = await asyncio.gather(*clients, return_exceptions=True)
    await server.stop()
    listener.close()
    assert (most, len([each for each in answers if each == [{"result": None}]])) == (1, 2)


class Waiting:
    """A command that waits for `go`, and one that does not, on a socket for few clients."""

    def __init__(self, folder: Path) -> None:
        self.go, self.begun, self.ended = asyncio.Event(), asyncio.Queue[None](), asyncio.Queue[str]()
        self.path = str(folder / "control.sock")
        table = {"poll": self.poll, "double": double}
        self.server = ControlServer(table, (), ("poll",), clients_max=4)

    async def poll(self, _: Mapping[str, Any]) -> str:
        """Answer when the test wants it."""
        self.begun.put_nowait(None)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise
        self.ended.put_nowait("answered")
        return "news"

    async def polls(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the connection of a client whose poll has begun."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(b'{"command": "poll"}\n')
        await asyncio.wait_for(self.begun.get(), 60)
        return reader, writer


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[Waiting]:
    """Return one that serves."""
    found = Waiting(tmp_path)
    listener = listen(found.path, 0o600)
    await found.server.start(listener.sock)
    yield found
    await found.server.stop()
    listener.close()


async def test_who_waits_holds_nobody_up(waiting: Waiting) -> None:
    """Where requests run one after the other, others run while some wait; these get their answers later."""
    clients = [await waiting.polls() for _ in range(3)]

    answers = await exchange(waiting.path, b'{"command": "double", "arguments": {"number": 2}}\n')
    assert answers == [{"result": {"doubled": 4}}]
    waiting.go.set()
    for reader, writer in clients:
        assert await asyncio.wait_for(reader.readline(), 60) == b'{"result": "news"}\n'
        writer.close()


async def test_a_poll_ends_with_its_client(waiting: Waiting) -> None:
    """Clients that come and go, such as one that crashes again and again, leave nothing that waits."""
    for _ in range(10):
        _, writer = await waiting.polls()
        writer.close()
        assert await asyncio.wait_for(waiting.ended.get(), 60) == "cancelled"


async def test_who_only_sends_no_more_gets_its_answer(waiting: Waiting) -> None:
    """As with ``nc``, which sends the end of the file after the request."""
    reader, writer = await waiting.polls()
    writer.write_eof()
    waiting.go.set()

    assert await asyncio.wait_for(reader.readline(), 60) == b'{"result": "news"}\n'
    writer.close()


async def test_a_stop_ends_polls(waiting: Waiting) -> None:
    """A daemon that ends does not wait for its agent."""
    reader, writer = await waiting.polls()

    await asyncio.wait_for(waiting.server.stop(), 60)

    assert await asyncio.wait_for(reader.read(), 60) == b""
    assert await asyncio.wait_for(waiting.ended.get(), 60) == "cancelled"
    writer.close()


def test_only_the_owner_may_ask(path: str) -> None:
    """The socket has mode 0600."""
    assert Path(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        ("no", CriproxyError, "not today"),
        ("many", UsageError, "number: 'many' is no number"),
        ("broken", CriproxyError, "the daemon failed at this command; its log has the reason"),
    ],
)
async def test_an_error_keeps_its_kind(path: str, number: str, kind: type[CriproxyError], text: str) -> None:
    """The client raises what the command raised, without the inside of a failure."""
    with pytest.raises(CriproxyError) as caught:
        await asyncio.to_thread(ask, path, "double", {"number": number})

    assert (type(caught.value), str(caught.value)) == (kind, text)


async def test_one_connection_carries_many_requests(path: str) -> None:
    """Answers come in the order of the requests, and an error ends nothing."""
    one = b'{"command": "double", "arguments": {"number": 1}}\n'

    answers = await exchange(path, one, b"nonsense\n", one)

    assert answers[0] == answers[2] == {"result": {"doubled": 2}}
    assert answers[1]["exit_status"] == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (rb'{"command": "add", "arguments": {"number": ["\ud800"]}}' + b"\n", "not Unicode"),
        (b"[1]\n", "must be an object"),
        (b'{"command": "double", "arguments": 3}\n', "must be an object"),
        (b'{"command": "halve"}\n', "knows no command 'halve'; it knows double"),
        (b'{"command": ["double"]}\n', "knows no command"),
        (b"{}\n", "knows no command None"),
    ],
)
async def test_a_malformed_request_is_answered(path: str, line: bytes, said: str) -> None:
    """Whatever the line is, the caller is told what is wrong with it."""
    (answer,) = await exchange(path, line)

    assert said in answer["error"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"command": "double"', id="no-end"),
        pytest.param(b" " * (control_socket.LINE_MAX_BYTES + 10) + b"\n", id="too-long"),
    ],
)
async def test_a_line_without_an_end_is_hung_up_on(path: str, line: bytes) -> None:
    """Half a request is never obeyed, and the next client is served."""
    try:
        answers = await exchange(path, line)
    except ConnectionError:  # hung up before all of it was sent
        answers = []

    assert answers == []
    assert await asyncio.to_thread(ask, path, "double", {"number": 1}) == {"doubled": 2}


async def test_a_silent_client_is_hung_up_on(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who says nothing keeps no connection."""
    monkeypatch.setattr(control_socket, "IDLE_S", 0.05)

    reader, writer = await asyncio.open_unix_connection(path)

    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


def test_an_answer_after_the_end_is_no_failure(tmp_path: Path) -> None:
    """The daemon ends while a command runs, and what it would have answered is dropped without an error in the log."""

    async def end_in_between() -> list[dict[str, Any]]:
        failed = list[dict[str, Any]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failed.append(what))
        begun, goes_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(_: Mapping[str, Any]) -> dict[str, Any]:
            begun.set()
            await goes_on.wait()
            done.set()
            return {}

        listener = listen(str(tmp_path / "control.sock"), 0o600)
        server = ControlServer({"slow": slow})
        await server.start(listener.sock)
        reader, writer = await asyncio.open_unix_connection(listener.path)
        writer.write(b'{"command": "slow"}\n')
        await begun.wait()
        await server.stop()
        assert await reader.read() == b""
        goes_on.set()
        await done.wait()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        writer.close()
        listener.close()
        return failed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the daemon's loop
        assert runner.run(end_in_between()) == []


async def test_stop_hangs_up(tmp_path: Path) -> None:
    """An idle client does not keep the daemon from ending."""
    listener = listen(str(tmp_path / "control.sock"), 0o600)
    server = ControlServer({})
    await server.start(listener.sock)
    reader, writer = await asyncio.open_unix_connection(listener.path)
    writer.write(b"{}\n")
    await reader.readline()

    await asyncio.wait_for(server.stop(), 60)

    assert await reader.read() == b""
    writer.close()
    listener.close()


@pytest.mark.parametrize("turns", range(8))
async def test_a_stop_as_a_client_connects(tmp_path: Path, turns: int) -> None:
    """In whichever turn of the loop, its connection is closed when the server has stopped, and it is not served."""
    listener, begun = listen(str(tmp_path / "control.sock"), 0o600), list[Mapping[str, Any]]()

    async def note(arguments: Mapping[str, Any]) -> None:
        begun.append(arguments)

    server = ControlServer({"note": note})
    await server.start(listener.sock)
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        client.connect(listener.path)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        listener.close()
        client.settimeout(0)
        with suppress(ConnectionError):
            assert client.recv(1) == b""
        with suppress(ConnectionError):
            client.send(b'{"command": "note"}\n')
        for _ in range(8):
            await asyncio.sleep(0)

    assert begun == []
