"""The paths of the page over HTTP, of a daemon as a process: what they answer, and to whom."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from criproxy.api.page.routes import ANSWERED, STATIC, read_files
from tests.addresses import free_address
from tests.page.stage import Stage, crowd, stage

LIMIT_S = 90.0
TOKEN = "a-token-of-the-node"  # noqa: S105 (of these tests)
PAGE = ("", "page/app.js", "api/status", "api/explain?container=shop/web-0/main", "api/stream")
OPEN = ("metrics", "healthz", "readyz")
LARGEST_BYTES = 200_000
WRONG = (
    ("api/explain?container=nobody", 404, "criproxy knows no container 'nobody'"),
    ("api/explain", 400, "name a container"),
    ("api/status?colour=red", 400, "there is no such argument"),
    ("api/events?after=soon", 400, "is not a number"),
    ("api/who?cpus=x", 400, "which CPUs?"),
    ("page/nothing.js", 404, "no such file"),
    ("page/..%2froutes.py", 404, "no such file"),
    ("api/release", 404, '{"error": "/api/release: there is no such path'),  # a command that changes something
    ("api/events?since_s=nan", 400, "'nan' is not a number"),
    ("api/events?since_s=-inf", 400, "'-inf' is not a number"),
    ("api/events?since_s=1e999", 400, "'1e999' is not a number"),
)
"""Path, status, and a part of the answer."""


async def get(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers; of a stream, its first bytes. Who has asked too much waits and asks again."""
    while (answer := await get_once(url, **headers))[0] == 429:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.1)
    return answer


async def get_once(url: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """The same without patience."""
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        body = await answer.content.readany() if url.endswith("/stream") else await answer.read()
        return answer.status, body, {name.lower(): value for name, value in answer.headers.items()}


def steady(answer: Any) -> Any:  # noqa: ANN401 (JSON)
    """Without times, which differ in each answer."""
    if isinstance(answer, dict):
        left_out = ("time", "last_call", "last_call_s")
        return {key: steady(value) for key, value in answer.items() if key not in left_out}
    return [steady(each) for each in answer] if isinstance(answer, list) else answer


async def test_the_json_is_that_of_the_commands(node: Stage) -> None:
    """Each path answers what the control socket answers, with the arguments in the query."""
    arguments = {"who": {"cpus": "0-3"}, "explain": {"container": "shop/web-0/main"}, "status": {"namespace": "shop"}}
    for command in ANSWERED:
        given = arguments.get(command, {})
        query = "&".join(f"{name}={value}" for name, value in given.items())
        status, body, headers = await get(f"{node.url}api/{command}?{query}")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert steady(json.loads(body)) == steady(await node.ask(command, **given))


async def test_wrong_requests(node: Stage) -> None:
    """A sentence says what is wrong, and only what is asked for is there."""
    for path, wanted, said in WRONG:
        found, body, _ = await get(f"{node.url}{path}")
        assert (path, found) == (path, wanted)
        assert said in body.decode()


async def test_headers_keep_browsers_on_this_host(node: Stage) -> None:
    """No inline scripts, no other hosts, no frames; what is about the node is not stored."""
    for path in PAGE:
        status, _, headers = await get(node.url + path)
        assert status == 200
        policy = headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == ("no-store" if path.startswith("api/") else "no-cache")


async def test_a_file_that_a_browser_has_is_not_sent_again(node: Stage) -> None:
    """The ETag tells."""
    _, _, headers = await get(f"{node.url}page/app.js")
    status, body, _ = await get(f"{node.url}page/app.js", **{"If-None-Match": headers["etag"]})

    assert (status, body) == (304, b"")


async def test_nothing_but_the_token_can_be_sent(node: Stage) -> None:
    """Every other method is refused."""
    async with aiohttp.ClientSession() as session:
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("", "api/status", "page/app.js"):
                async with session.request(method, node.url + path) as answer:
                    assert (answer.status, answer.headers["Allow"]) == (405, "GET" if "api" in path else "GET,HEAD")
                    if "api" in path:
                        assert await answer.json() == {"error": f"/{path} accepts only GET requests, not {method}"}


async def test_every_error_below_api_is_json(node: Stage) -> None:
    """Also where there is no such path, of whatever method; without a right to see anything, only that is said."""
    async with aiohttp.ClientSession() as session:
        for method, path in (("GET", "api/"), ("POST", "api/nope/x"), ("DELETE", "api/stream"), ("PUT", "api/%00")):
            for host, wanted in (("localhost", 405 if path == "api/stream" else 404), ("rebound.example", 403)):
                async with session.request(method, node.url + path, headers={"Host": host}) as answer:
                    assert (path, answer.status, (await answer.json()).keys()) == (path, wanted, {"error"})


async def test_a_flood_of_questions_is_answered_briefly(there: Stage) -> None:
    """Beyond a rate nobody gets JSON, and the daemon stays ready."""
    found = set[int]()
    while 429 not in found:  # on a slow machine, a question may take as long as the rate allows
        answers = await asyncio.gather(*(get_once(f"{there.url}api/status") for _ in range(8)))
        found |= {status for status, _, _ in answers}

    assert (found, (await get(f"{there.url}readyz"))[0]) == ({200, 429}, 200)


async def test_other_addresses_need_a_token(tmp_path: Path) -> None:
    """The page is closed without it, and metrics and health are not."""
    address = free_address("0.0.0.0")
    (tmp_path / "token").write_text(TOKEN)
    options = ["--http-token-file", str(tmp_path / "token")]
    async with asyncio.timeout(LIMIT_S), stage(tmp_path, options=options, address=address) as found:
        await found.run(crowd(3))
        for path in PAGE:
            status, body, _ = await get(found.url + path, Authorization="Bearer short")
            assert (status, b"needs a token" in body) == (403, True)
            assert (await get(found.url + path, Authorization=f"Bearer {TOKEN}"))[0] == 200
        assert [(await get(found.url + path))[0] for path in OPEN] == [200] * len(OPEN)


async def test_an_open_page_holds_up_no_stop(there: Stage) -> None:
    """The daemon ends as without it."""
    async with aiohttp.ClientSession() as session, session.get(f"{there.url}api/stream") as answer:
        await answer.content.readuntil(b"\n\n")
        assert await there.serve.stop() == 0


def test_the_files_are_small_and_name_no_other_host() -> None:
    """All of them together, and nothing in them is fetched from elsewhere or written inline."""
    files = read_files()
    texts = {path.name: path.read_text() for path in STATIC.iterdir()}

    assert files.keys() == texts.keys()
    assert sum(len(file.body) for file in files.values()) < LARGEST_BYTES
    for name, text in texts.items():
        said = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in said, name
        assert "https://" not in said, name
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", " onclick="):
            assert word not in said, (name, word)
