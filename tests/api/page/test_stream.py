"""The stream of changes: who gets what, and that nobody who does not read holds anybody up."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from criproxy.api.page import stream
from criproxy.api.page.stream import MOST_STREAMS, MOST_WAITING, Picture, Stream, Streams, picture

LIMIT_S = 60.0


class Changing:
    """A node whose one part is a number."""

    def __init__(self) -> None:
        self.number = 0
        self.text = ""
        self.looks = 0
        self.fails = False
        self._changed = asyncio.Event()

    async def look(self, before: Picture | None) -> Picture:
        """Look at it."""
        self.looks += 1
        if self.fails:
            self.fails = False
            raise ValueError("no look")
        return picture({"status": self.number, "text": self.text}, {}, before, [])

    async def changed(self) -> None:
        """Wait for `change`."""
        await self._changed.wait()

    def change(self, text: str = "") -> None:
        """Make it another one."""
        self.number += 1
        self.text = text
        self._changed.set()
        self._changed = asyncio.Event()


class Server:
    """A server with one stream."""

    def __init__(self, path: Path) -> None:
        self.node = Changing()
        self.streams = Streams(self.node.look, self.node.changed)
        self.path = str(path)
        self.is_open = True
        app = web.Application()
        app.router.add_get("/", self._serve)
        self.runner = web.AppRunner(app, shutdown_timeout=1.0)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        return await self.streams.serve(request, {}, self._allowed, request.headers.get("Peer", ""))

    async def _allowed(self) -> bool:
        return self.is_open

    def connect(self) -> aiohttp.ClientSession:
        """A client."""
        return aiohttp.ClientSession("http://node", connector=aiohttp.UnixConnector(self.path))


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A server that looks often."""
    monkeypatch.setattr(stream, "SHORTEST_PAUSE_S", 0.001)
    found = Server(tmp_path / "socket")
    await found.runner.setup()
    await web.UnixSite(found.runner, found.path).start()
    running = asyncio.ensure_future(_forever(found.streams))
    async with asyncio.timeout(LIMIT_S):
        yield found
    found.streams.close()
    running.cancel()
    await found.runner.cleanup()


async def _forever(streams: Streams) -> None:
    """As `Tasks.forever` runs it."""
    while True:
        try:
            await streams.run()
        except ValueError:
            await asyncio.sleep(0.001)


async def message(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next message."""
    text = await answer.content.readuntil(b"\n\n")
    found: dict[str, Any] = json.loads(text.partition(b"data: ")[2])
    return found


async def until(answer: aiohttp.ClientResponse, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first message that is *wanted*."""
    while not wanted(found := await message(answer)):
        pass
    return found


async def test_everything_then_changes(server: Server) -> None:
    """A page gets all parts first, and then those that are others."""
    async with server.connect() as session, session.get("/") as answer:
        first = await message(answer)
        server.node.change()
        second = await until(answer, lambda told: bool(told["parts"]))

    assert (first["whole"], first["parts"]) == (True, {"status": 0, "text": ""})
    assert (second["whole"], second["parts"]) == (False, {"status": 1})


async def test_pages_share_the_looks(server: Server) -> None:
    """A second page gets everything at once, and both get the same changes."""
    async with server.connect() as session, session.get("/") as one:
        await message(one)
        async with session.get("/") as other:
            begun = await message(other)
            server.node.change()
            told = [await until(each, lambda told: told["parts"].get("status") == 1) for each in (one, other)]

    assert begun["whole"]
    assert told[0] == told[1]


async def test_nobody_looks_while_no_page_is_open(server: Server) -> None:
    """The node is looked at for pages only; a page that is opened later gets what is the case then."""
    async with server.connect() as session, session.get("/") as answer:
        await message(answer)
    server.node.change()  # the server notices with it that the page is closed
    while server.streams._open:
        server.node.change()
        await asyncio.sleep(0)
    looks = server.node.looks
    for _ in range(20):
        server.node.change()
        await asyncio.sleep(0)
    after = server.node.looks

    async with server.connect() as session, session.get("/") as answer:
        begun = await message(answer)
        if begun["parts"]["status"] != server.node.number:  # a recent look was sent first
            await until(answer, lambda told: told["parts"].get("status") == server.node.number)

    assert after - looks <= 1  # one that had begun
    assert begun["whole"]


async def test_a_look_that_fails(server: Server) -> None:
    """The next look is sent as a whole to everybody: nothing that happened meanwhile is missing."""
    async with server.connect() as session, session.get("/") as answer:
        await message(answer)
        server.node.fails = True
        server.node.change()
        server.node.change()
        told = await until(answer, lambda told: told["whole"])

    assert told["parts"]["status"] == server.node.number


async def test_a_page_that_does_not_read_is_cut_off(server: Server) -> None:
    """Others go on to get changes, and what waits for it is bounded."""
    async with server.connect() as session, session.get("/") as good:
        await message(good)
        reader, writer = await asyncio.open_unix_connection(server.path, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: n\r\n\r\n")
        while not server.streams.dropped:
            server.node.change("x" * 500_000 + str(server.node.number))
            await until(good, lambda told: told["parts"].get("status") == server.node.number)
        server.node.change()
        await until(good, lambda told: told["parts"].get("status") == server.node.number)

    assert len(server.streams._open) <= 1
    writer.close()
    reader.feed_eof()


async def test_who_may_see_the_node_no_longer(server: Server) -> None:
    """Gets no further message: the stream ends."""
    async with server.connect() as session, session.get("/") as answer:
        await message(answer)
        server.is_open = False
        server.node.change("secret")
        rest = await answer.content.read()

    assert b"secret" not in rest


async def test_the_number_of_messages_that_wait_is_bounded() -> None:
    """One more than that cuts the stream."""
    waiting = Stream(None)

    taken = [waiting.put(b"") for _ in range(MOST_WAITING + 1)]

    assert taken == [True] * MOST_WAITING + [False]


async def test_a_further_page_takes_the_place_of_the_oldest(server: Server) -> None:
    """The oldest one is told so, and ends; the others go on, and one that has been closed counts no more."""
    async with server.connect() as session:
        answers = [await session.get("/") for _ in range(MOST_STREAMS + 1)]
        rest = await answers[0].content.read()
        for answer in answers[1:]:
            await message(answer)
        answers[1].close()
        answers.append(await session.get("/"))
        server.node.change()
        for answer in answers[2:]:
            await until(answer, lambda told: told["parts"].get("status") == 1)
            answer.close()

    assert rest.rpartition(b"event: ")[2].startswith(b"displaced\n")


async def test_who_opens_many_pages_closes_his_own(server: Server) -> None:
    """The oldest page of the client with most pages makes room, and not that of another one."""
    async with server.connect() as session:
        other = await session.get("/", headers={"Peer": "other"})
        crowd = [await session.get("/", headers={"Peer": "crowd"}) for _ in range(2 * MOST_STREAMS)]
        for answer in crowd[: 1 - MOST_STREAMS]:
            assert (await answer.content.read()).rpartition(b"event: ")[2].startswith(b"displaced\n")
        await message(other)
        server.node.change()
        for answer in (other, *crowd[1 - MOST_STREAMS :]):
            await until(answer, lambda told: told["parts"].get("status") == 1)
            answer.close()


async def test_the_end_of_the_server_ends_streams(server: Server) -> None:
    """They end by themselves: nobody waits until they are cut."""
    async with server.connect() as session, session.get("/") as answer:
        await message(answer)
        server.streams.close()
        rest = await answer.content.read()

    assert rest == b"" or rest.endswith(b"\n\n")
