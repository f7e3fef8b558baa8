"""The paths of the page: ``/`` and its files, ``/api/…`` as JSON, ``/api/stream``; all are read-only.

The JSON is what the commands print with ``--format json``: the same handlers answer.
"""

import hashlib
import json
import math
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from criproxy.api.page.access import Access
from criproxy.api.page.stream import Streams
from criproxy.errors import CriproxyError, UsageError
from criproxy.process.control_socket import Command
from criproxy.process.http.limits import Shares, keep, peer_of
from criproxy.process.http.server import closing

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CLOSED = "closed.html"
"""What a browser sees that has not shown the token; all of it is in one file, since it may get no other."""
WRONG = b"<!-- wrong -->"
"""In that file, where `SAID` belongs after a wrong token."""
SAID = b'<p class="wrong" role="alert">This is not the token.</p>'
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: only our files, nothing inline, no other host, in no frame."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FORM = "application/x-www-form-urlencoded"
NOT_OPEN = (
    "this needs a token: send that of --http-token-file as 'Authorization: Bearer TOKEN'; "
    "without that file, only a Unix socket and a loopback address that is named as such are answered"
)
_JSON = {**HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store"}
ANSWERS_PER_S, ANSWERS_BURST = 10.0, 40
"""Answers as JSON for each client: each takes milliseconds of a thread."""
ALL_ANSWERS_PER_S, ALL_ANSWERS_BURST = 20.0, 80
"""For all clients together."""
ANSWERED = ("status", "devices", "usage", "events", "who", "explain")
"""Commands that are answered under ``/api``."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _finite(text: str) -> float:
    """The number in *text*; raise ValueError for what is none, infinity included."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


ARGUMENTS: Mapping[str, Mapping[str, Callable[[str], Any]]] = {
    "status": {"namespace": str, "pod": str},
    "events": {"since_s": _finite, "after": int, "namespace": str},
    "who": {"cpus": str},
    "explain": {"container": str},
}
"""By command, how each argument is read."""


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent."""

    body: bytes
    headers: Mapping[str, str]


def read_files(folder: Path = STATIC) -> Mapping[str, File]:
    """All files by name. May block."""
    return {path.name: _read(path) for path in sorted(folder.iterdir()) if path.suffix in TYPES}


def _read(path: Path) -> File:
    body = path.read_bytes()
    headers = {**HEADERS, "Content-Type": TYPES[path.suffix], "Cache-Control": "no-cache"}
    headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    if path.name == CLOSED:
        found = re.search(rb"<style>(.*?)</style>", body, re.DOTALL)  # it has its own styles, and no scripts
        styles = f"'sha256-{b64encode(hashlib.sha256(found[1] if found else b'').digest()).decode()}'"
        allowed = f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        headers |= {"Content-Security-Policy": allowed, "Cache-Control": "no-store"}
    return File(body, headers)


@dataclass(slots=True, repr=False)
class Page:
    """Answers the requests of pages.

    Args:
        commands: the handlers of the control socket, by command name.
        streams: send what changes.
        access: decides who may see anything.
        files: of the page, by name.
    """

    commands: Mapping[str, Command]
    streams: Streams
    access: Access
    files: Mapping[str, File]
    _shares: Shares = field(
        default_factory=lambda: Shares(ANSWERS_PER_S, ANSWERS_BURST, ALL_ANSWERS_PER_S, ALL_ANSWERS_BURST)
    )

    def routes(self) -> list[web.RouteDef]:
        """All paths, for `process.http.server`."""
        shown = {"/": self._index, "/page/{name}": self._file}
        asked: dict[str, Handler] = {f"/api/{command}": partial(self._query, command) for command in ANSWERED}
        asked["/api/stream"] = self._stream
        others = partial(_no_answer, [*asked])
        return [
            *(web.get(path, self._guarded(handler, self._closed)) for path, handler in shown.items()),
            *(web.get(path, self._guarded(handler, _not_open), allow_head=False) for path, handler in asked.items()),
            web.route("*", "/api/{name:.*}", self._guarded(others, _not_open)),  # last: what the others do not answer
            web.post("/token", self._token),
        ]

    def _guarded(self, handler: Handler, closed: Callable[[], web.StreamResponse]) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            return await handler(request) if await self.access.allows(request) else closed()

        return guarded

    def _closed(self, *, is_wrong: bool = False) -> web.Response:
        file = self.files[CLOSED]
        body = file.body.replace(WRONG, SAID) if is_wrong else file.body
        return closing(web.Response(status=403, body=body, headers=file.headers))

    async def _index(self, request: web.Request) -> web.StreamResponse:
        return _sent(request, self.files["index.html"])

    async def _file(self, request: web.Request) -> web.StreamResponse:
        file = self.files.get(request.match_info["name"])
        return _sent(request, file) if file else closing(web.Response(status=404, text="no such file\n"))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        keep(request)
        allowed = partial(self.access.allows, request)  # asked again: the token may be replaced
        return await self.streams.serve(request, {**HEADERS, "Cache-Control": "no-store"}, allowed, peer_of(request))

    async def _query(self, command: str, request: web.Request) -> web.StreamResponse:
        if not self._shares.take(peer_of(request)):
            return _refused(429, "too many requests; try again in a second")
        try:
            answer = await self.commands[command](_arguments(command, request.query))
        except UsageError as error:
            return _refused(400, str(error))
        except CriproxyError as error:
            return _refused(404 if command == "explain" else 503, str(error))
        return closing(web.Response(body=answer, headers=_JSON))

    async def _token(self, request: web.Request) -> web.StreamResponse:
        """Let a browser in that sends the token."""
        given = await _given(request)
        headers = await self.access.cookie_for(given)
        if headers is None:
            return self._closed(is_wrong=bool(given))
        return closing(web.Response(status=303, headers={**headers, "Location": "./", "Cache-Control": "no-store"}))


async def _given(request: web.Request) -> str:
    """The token in the form that the closed page sends; empty for every other body."""
    if request.content_type != FORM:
        return ""
    body = await request.read()
    return parse_qs(body.decode("utf-8", "replace")).get("token", [""])[-1]


def _not_open() -> web.Response:
    return _refused(403, NOT_OPEN)


async def _no_answer(paths: Sequence[str], request: web.Request) -> web.StreamResponse:
    """Refuse a request that none of *paths* answers, as JSON like all that is below ``/api``."""
    if request.path not in paths:
        return _refused(404, f"{request.path[:80]}: there is no such path; there are: {', '.join(paths)}")
    response = _refused(405, f"{request.path} accepts only GET requests, not {request.method[:20]}")
    response.headers["Allow"] = "GET"
    return response


def _arguments(command: str, query: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of *command* in a query; raise UsageError for one that it does not have, or that is malformed."""
    known, found = ARGUMENTS.get(command, {}), dict[str, Any]()
    for name, text in query.items():
        if name not in known:
            raise UsageError(f"{name[:80]!r}: there is no such argument; there are: {', '.join(known) or 'none'}")
        try:
            found[name] = known[name](text)
        except ValueError as error:
            raise UsageError(f"{name}: {text[:80]!r} is not a number") from error
    return found


def _sent(request: web.Request, file: File) -> web.Response:
    if request.headers.get("If-None-Match") == file.headers["ETag"]:
        return closing(web.Response(status=304, headers=file.headers))
    return closing(web.Response(body=file.body, headers=file.headers))


def _refused(status: int, text: str) -> web.Response:
    return closing(web.Response(status=status, body=json.dumps({"error": text}).encode(), headers=_JSON))
