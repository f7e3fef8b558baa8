"""The files of the page, read once: HTML, styles and scripts, which have nothing of the node in them."""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from re import search

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


@dataclass(frozen=True, slots=True)
class File:
    """One file as it is sent."""

    body: bytes
    headers: Mapping[str, str]
    etag: str


def read_files(folder: Path = STATIC) -> Mapping[str, File]:
    """All files by name. May block."""
    return {path.name: _read(path) for path in sorted(folder.iterdir()) if path.suffix in TYPES}


def _read(path: Path) -> File:
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {**HEADERS, "Content-Type": TYPES[path.suffix], "Cache-Control": "no-cache", "ETag": etag}
    if path.name == CLOSED:
        headers |= {"Content-Security-Policy": closed_policy(body), "Cache-Control": "no-store"}
    return File(body, headers, etag)


def closed_policy(body: bytes) -> str:
    """The policy of the page that has its own styles: their hash, and no scripts."""
    found = search(rb"<style>(.*?)</style>", body.replace(b"\n", b"\x00"))
    styles = found[1].replace(b"\x00", b"\n") if found else b""
    allowed = f"'sha256-{b64encode(hashlib.sha256(styles).digest()).decode()}'"
    return f"default-src 'none'; style-src {allowed}; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
