"""Clients of the page that mean harm, or are only broken: a daemon as a process answers them briefly, and goes on."""

import asyncio
from contextlib import suppress
from urllib.parse import quote

import aiohttp
import pytest

from criproxy.api.page.stream import MOST_STREAMS
from criproxy.process.http.limits import MOST_CONNECTIONS
from tests.page.stage import Stage, crowd
from tests.page.test_http import get

MALFORMED = (
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 12_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /token HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX" + b"y" * 9_000 + b": z\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
)
"""Requests that HTTP does not allow, and such with which one hides a second request in the first."""
FORM = "application/x-www-form-urlencoded"
FORMS = (
    (f"{FORM}; charset=klingon", b"token=x"),
    (f"{FORM}; charset=utf-16", b"token=x"),
    (FORM, b"token=\xff\xfe"),
    (FORM, b"token=%ff%fe"),
    (FORM, b"&" * 8_000),
    ("multipart/form-data", b"token=x"),
    ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; filename="f"\r\n\r\nx\r\n--b--\r\n'),
    ("application/json", b'{"token": 1}'),
)
"""Bodies of a form that are not what a browser sends."""
QUESTIONS = (
    f"api/events?after={1 << 70}",
    "api/events?after=-1",
    "api/events?since_s=1e300",
    "api/who?cpus=0-99999999999",
    "api/who?cpus=" + "0-8191," * 900 + "1",
    "api/explain?container=%00",
    "api/explain?container=%ff%fe",
    "api/explain?container=" + quote("\u202e'\"; DROP TABLE events; --"),
    "api/explain?container=" + "%25_" * 1500,
    "api/status?namespace=" + "n" * 7000,
)
"""Arguments that no page sends."""


async def connection(node: Stage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A new one."""
    host, _, port = node.url.removeprefix("http://").rstrip("/").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def said(node: Stage, request: bytes) -> bytes:
    """All that the daemon answers to the bytes of a request."""
    reader, writer = await connection(node)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_what_is_malformed_fills_no_log(node: Stage) -> None:
    """It is refused, nothing that is hidden in it is answered, and the log has no word and no traceback of it."""
    answers = [await said(node, request) for request in MALFORMED]
    form = f"POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 9\r\n\r\n".encode()
    _, writer = await connection(node)
    writer.write(form + b"tok")  # and goes away in the middle
    writer.close()

    assert [b" 200 " in answer for answer in answers] == [False] * len(MALFORMED)
    assert (await get(f"{node.url}readyz"))[0] == 200
    log = node.serve.log.read_text()
    assert "Error handling request" not in log
    assert "Traceback" not in log


async def test_a_form_that_no_browser_sends(node: Stage) -> None:
    """It has no token."""
    async with aiohttp.ClientSession() as session:
        for kind, body in FORMS:
            async with session.post(f"{node.url}token", data=body, headers={"Content-Type": kind}) as answer:
                assert (kind, answer.status) == (kind, 403)

    assert "Traceback" not in node.serve.log.read_text()


@pytest.mark.parametrize("kind", [FORM, "text/plain"])
@pytest.mark.parametrize("path", ["/token", "/api/status", "/metrics"])
async def test_a_body_that_is_too_long(node: Stage, path: str, kind: str) -> None:
    """The answer says so; the client gets it although it is still sending, and its connection is closed."""
    reader, writer = await connection(node)
    size = 3_000_000
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
    writer.write(head.encode() + b"x" * size)
    answer = await reader.readuntil(b"\r\n\r\n")
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
    writer.close()

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert (b"application/json" in answer) is path.startswith("/api/")
    assert (await get(f"{node.url}readyz"))[0] == 200


async def test_a_body_of_unknown_length(node: Stage) -> None:
    """Browsers send none; it is refused before it is read."""
    answer = await said(
        node, b"POST /token HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 411 ")


async def test_questions_that_no_page_asks(node: Stage) -> None:
    """Each is answered, or refused in a sentence."""
    for path in QUESTIONS:
        status, body, headers = await get(node.url + path)
        assert status in (200, 400, 404), (path[:60], status, body[:200])
        assert headers["content-type"] == "application/json"
        assert len(body) < 20_000

    assert "Traceback" not in node.serve.log.read_text()


async def test_another_site_in_the_same_browser_gets_nothing(node: Stage) -> None:
    """Neither answers nor the places of open pages, which it could take; a link to the page works."""
    for site in ("cross-site", "same-site"):
        for path in ("api/status", "api/stream", "page/app.js"):
            status, body, _ = await get(node.url + path, **{"Sec-Fetch-Site": site})
            assert (path, status, b"blocks" in body) == (path, 403, False)
        assert (await get(node.url, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}))[0] == 200
    for site in ("same-origin", "none"):
        assert (await get(f"{node.url}api/stream", **{"Sec-Fetch-Site": site}))[0] == 200


async def test_a_head_takes_no_place(node: Stage) -> None:
    """A stream without a body is no stream."""
    async with aiohttp.ClientSession() as session:
        for _ in range(MOST_STREAMS + 1):
            async with session.head(f"{node.url}api/stream") as answer:
                assert answer.status == 405

    assert (await get(f"{node.url}api/stream"))[0] == 200


async def test_idle_connections_close_no_page(node: Stage) -> None:
    """Who holds connections open keeps out others who do, and not those who see a page."""
    async with aiohttp.ClientSession() as session, session.get(f"{node.url}api/stream") as answer:
        await answer.content.readuntil(b"\n\n")
        idle = [await connection(node) for _ in range(2 * MOST_CONNECTIONS)]
        await idle[0][0].read()  # it has been closed for one of the later ones
        assert (await get(f"{node.url}readyz"))[0] == 200
        await node.run(crowd(4)[3:])
        assert (await answer.content.readuntil(b"\n\n")).startswith(b"event: node")
        for _, writer in idle:
            writer.close()
