"""The token that clients of an HTTP API need: in a file that is read again and again, since tokens are rotated."""

import asyncio
import hmac
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from criproxy.config.files import read_bytes

LEAST_CHARS = 16
"""A token that is shorter can be guessed."""
MOST_BYTES = 4096
BOM = "\ufeff".encode()
FRESH_S = 5.0
"""After this time the file is read again."""
PATIENCE_S = 5.0
"""How long a request waits for the file; then the token that was read last counts."""


class TokenFile:
    """The token in a file.

    Args:
        file: has the token; None: nobody has one.
        notify: gets why the file cannot be used whenever that changes; an empty text: it can.
    """

    def __init__(self, file: Path | None, notify: Callable[[str], object]) -> None:
        self.file, self._notify = file, notify
        self._token = ""
        self._read_s = float("-inf")
        self.problem = ""
        """Why the token cannot be used, as of the last reading; empty if it can, or there is no file."""
        self._reading: asyncio.Future[tuple[str, str]] | None = None
        """One at a time: each takes a thread of the pool of the whole process, and the file may hang."""

    async def watch(self) -> None:
        """Read the file every few seconds, for ever, so that a problem is known before a request fails."""
        while self.file is not None:
            await self.token()
            await asyncio.sleep(FRESH_S)
        await asyncio.Event().wait()

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
        if problem != self.problem:
            self.problem = problem
            self._notify(problem)


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
