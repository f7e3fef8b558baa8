"""Who may see the page: it has the names, sizes and places of all containers, and a port has no owner.

A Unix socket has a mode, and a loopback address is for users of this machine, so both are open. Everybody else needs
the token of a file: as a bearer token, or in a browser, which cannot send one by itself, as a cookie that it gets for
the token. Web sites whose names are made to lead to a loopback address (DNS rebinding) are recognised by the Host
header, and others that ask from within the same browser by its Sec-Fetch-Site header.
"""

import asyncio
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol

from aiohttp import web

from criproxy.config.files import read_bytes
from criproxy.process.address import Address, is_loopback

COOKIE = "criproxy-page"
LEAST_CHARS = 16
"""A token that is shorter can be guessed."""
MOST_BYTES = 4096
BOM = "\ufeff".encode()
FRESH_S = 5.0
"""After this time the file is read again: tokens are rotated."""
PATIENCE_S = 5.0
"""How long a request waits for the file; then the token that was read last counts."""
OTHER_SITES = ("cross-site", "same-site")
"""What browsers say of requests that other web sites make, on other hosts and on other ports of this one."""


class WarningLog(Protocol):
    """A log that takes warnings."""

    def warning(self, event: str, **keys: object) -> None:
        """Write a line."""


@dataclass(slots=True, repr=False)
class Access:
    """Decides which requests are answered.

    Args:
        address: where the server listens; None: a socket that somebody else has made.
        file: has the token; None: nobody has one.
        log: gets a warning when the file cannot be used, once for each reason.
    """

    address: Address | None
    file: Path | None
    log: WarningLog
    _token: str = ""
    _read_s: float = float("-inf")
    _problem: str = ""
    _reading: "asyncio.Future[tuple[str, str]] | None" = None
    """One at a time: each takes a thread of the pool of the whole daemon, and the file may hang."""

    async def allows(self, request: web.Request) -> bool:
        """Whether *request* may see the page."""
        if request.path != "/" and request.headers.get("Sec-Fetch-Site") in OTHER_SITES:  # they may link to the page
            return False
        if self.file is None:
            return self.address is not None and self.address.is_local and self._is_for_us(request)
        return self._has_token(request, await self.token())

    def _is_for_us(self, request: web.Request) -> bool:
        return (self.address is not None and self.address.path is not None) or is_loopback(
            request.headers.get("Host", "")
        )

    def _has_token(self, request: web.Request, token: str) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return is_same(given.strip(), token)
        return is_same(request.cookies.get(cookie_name(token), ""), cookie_of(token))

    async def cookie_for(self, given: str) -> Mapping[str, str] | None:
        """Return the headers with the cookie for a browser that has *given* the token; None if the token is wrong."""
        token = await self.token()
        if not is_same(given.strip(), token):
            return None
        # Lax: a link from elsewhere, such as a chat, opens the page. Nothing can be changed with it.
        return {"Set-Cookie": f"{cookie_name(token)}={cookie_of(token)}; Path=/; HttpOnly; SameSite=Lax"}

    @property
    def problem(self) -> str:
        """Why the token cannot be used, as of the last reading; empty if it can, or there is no file."""
        return self._problem

    async def watch(self) -> None:
        """Read the file every few seconds, for ever, so that a problem is known before a request fails."""
        while self.file is not None:
            await self.token()
            await asyncio.sleep(FRESH_S)

    async def token(self) -> str:
        """Return the token; empty, which no request matches, if there is none."""
        if self.file is not None and self._reading is None and monotonic() - self._read_s > FRESH_S:
            self._reading = asyncio.ensure_future(asyncio.to_thread(read_token, self.file))
        reading = self._reading
        if reading is not None:
            await asyncio.wait({reading}, timeout=PATIENCE_S)
            if reading is self._reading and reading.done():
                self._take(*reading.result())
            elif reading is self._reading and not self._token:
                self._set_problem(f"{self.file}: cannot be read: no answer within {PATIENCE_S:g} s")
        return self._token

    def _take(self, token: str, problem: str) -> None:
        self._reading, self._read_s, self._token = None, monotonic(), token
        self._set_problem(problem)

    def _set_problem(self, problem: str) -> None:
        """Keep *problem*, and log it unless it was logged before."""
        if problem and problem != self._problem:
            self.log.warning("--http-token-file: nobody can open the page", reason=problem)
        self._problem = problem


def read_token(file: Path) -> tuple[str, str]:
    """Return the token in *file* and an empty text, or an empty token and why it cannot be used. May block.

    As with policy files, only root and our own user may have write access: whoever can write the file sets the token.
    """
    content, mistakes = read_bytes(file, MOST_BYTES)
    if mistakes or content is None:
        return "", f"{file}: {mistakes[0].text}"
    problem = _why_no_token(content)
    return ("", f"{file}: {problem}") if problem else (content.decode("ascii").strip(), "")


def _why_no_token(content: bytes) -> str:
    text = content.removeprefix(BOM).strip()
    if text and content.startswith(BOM):
        return "begins with a byte order mark: save the file as ASCII text"
    if odd := [each for each in text if not 0x20 <= each < 0x7F and each not in b"\r\n"]:
        return f"has the byte 0x{odd[0]:02X}: a token has only printable ASCII characters"
    if len(text.splitlines()) > 1:
        return f"has {len(text.splitlines())} lines: a token is one line"
    return "" if len(text) >= LEAST_CHARS else f"a token needs at least {LEAST_CHARS} characters"


def is_same(given: str, wanted: str) -> bool:
    """Compare in constant time; nothing is the same as an empty text."""
    return bool(wanted) and hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def cookie_of(token: str) -> str:
    """What a browser keeps instead of *token*: browsers also send it to other ports of this host."""
    return hmac.digest(token.encode(), COOKIE.encode(), "sha256").hex() if token else ""


def cookie_name(token: str) -> str:
    """Its own one for each token: tunnels to several nodes all end on this host, whose cookies they share."""
    return f"{COOKIE}-{hmac.digest(token.encode(), b'name', 'sha256').hex()[:8]}"
