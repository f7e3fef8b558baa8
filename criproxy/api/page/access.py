"""Who may see the page: it has the names, sizes and places of all containers, and a port has no owner.

A Unix socket has a mode, and a loopback address is for users of this machine, so both are open. Everybody else needs
the token of a file: as a bearer token, or in a browser, which cannot send one by itself, as a cookie that it gets for
the token. Web sites whose names are made to lead to a loopback address (DNS rebinding) are recognised by the Host
header, and others that ask from within the same browser by its Sec-Fetch-Site header.
"""

import hmac
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from criproxy.process.http.address import Address, is_loopback
from criproxy.process.http.token_file import TokenFile, is_same
from criproxy.process.logger import Log

COOKIE = "criproxy-page"
OTHER_SITES = ("cross-site", "same-site")
"""What browsers say of requests that other web sites make, on other hosts and on other ports of this one."""


class Access(TokenFile):
    """Decides which requests are answered.

    Args:
        address: where the server listens; None: a socket that somebody else has made.
        file: has the token; None: nobody has one.
        log: gets a warning when the file cannot be used, once for each reason.
    """

    def __init__(self, address: Address | None, file: Path | None, log: Log) -> None:
        super().__init__(file, self._on_problem)
        self.address, self._log = address, log

    def _on_problem(self, problem: str) -> None:
        if problem:
            self._log.warning("--http-token-file: nobody can open the page", reason=problem)

    async def allows(self, request: web.Request) -> bool:
        """Whether *request* may see the page."""
        if request.path != "/" and request.headers.get("Sec-Fetch-Site") in OTHER_SITES:  # they may link to the page
            return False
        if self.file is None:
            if self.address is None or not self.address.is_local:
                return False
            return self.address.path is not None or is_loopback(request.headers.get("Host", ""))
        return self._has_token(request, await self.token())

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


def cookie_of(token: str) -> str:
    """What a browser keeps instead of *token*: browsers also send it to other ports of this host."""
    return hmac.digest(token.encode(), COOKIE.encode(), "sha256").hex() if token else ""


def cookie_name(token: str) -> str:
    """Its own one for each token: tunnels to several nodes all end on this host, whose cookies they share."""
    return f"{COOKIE}-{hmac.digest(token.encode(), b'name', 'sha256').hex()[:8]}"
