"""Writes a bundle as an archive of bounded size, with a list of its files."""

import io
import tarfile
import time
from collections.abc import Mapping

from criproxy import __version__
from criproxy.model.text.amounts import format_bytes
from criproxy.model.text.bounded import printable

MAX_BYTES = 20 << 20
"""Of all files of a bundle, before compression."""
MAX_FILE_BYTES = 8 << 20
MANIFEST = "MANIFEST"
_CUT = "\n… the rest is left out, since the bundle would be too large\n"
_RESERVED_BYTES = 64 << 10
"""For the list of files."""


def bounded_files(texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files, cut where one or all of them would be too large; the first ones come first."""
    left = MAX_BYTES - _RESERVED_BYTES
    files = dict[str, bytes]()
    for name, text in texts.items():
        content = text.encode(errors="replace")
        most = min(left, MAX_FILE_BYTES)
        if len(content) > most:
            kept = content[: max(0, most - len(_CUT.encode()))]
            content = kept.decode(errors="ignore").encode() + _CUT.encode()
        files[name] = content
        left = max(0, left - len(content))
    return files


def manifest(files: Mapping[str, bytes], titles: Mapping[str, str], hidden: str, at_s: float) -> str:
    """Return the list of *files*; *titles*: what is in them; *hidden*: what is hidden in them."""
    width = max(map(len, files), default=0)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
    lines = [f"criproxy {__version__}, support bundle of {at}", f"Hidden: {hidden}", ""]
    for name, content in sorted(files.items()):
        lines.append(f"{printable(name):{width}}  {format_bytes(len(content)):>9}  {titles.get(name, '')}".rstrip())
    return "".join(f"{line}\n" for line in lines)


def archive(folder: str, files: Mapping[str, bytes], at_s: float) -> bytes:
    """Return a compressed archive of *files* below *folder*, readable for the owner only."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(at_s)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()
