"""Reading a policy file or a token, and whether only trusted users can write it: it decides over the whole node."""

import os
import stat
from pathlib import Path
from shlex import quote

from criproxy.config.reading.mistake import Mistake
from criproxy.model.text.amounts import format_bytes

MAX_BYTES = 1 << 20
STRANGERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_text(file: Path) -> tuple[str | None, list[Mistake]]:
    """The text of *file*, None where it cannot be read, and what is wrong with file, folder, owner and encoding."""
    content, mistakes = read_bytes(file)
    return _decode(content, mistakes) if content is not None else None, mistakes


def read_bytes(file: Path, most_bytes: int = MAX_BYTES) -> tuple[bytes | None, list[Mistake]]:
    """The content of *file*, None if it cannot be read or is too large; and what is wrong with file, folder, owner."""
    try:
        real, folder = (Path(os.path.realpath(path, strict=True)) for path in (file, file.parent))
        if not real.is_relative_to(folder):
            return None, [_whole(f"is a link to {real}, outside its directory: put the file itself there")]
        mistakes = [wrong for parent in _down(folder, real.parent) for wrong in _folder_mistakes(parent)]
        content, of_file = _read(real, most_bytes)
    except FileNotFoundError:
        text = "is a broken link" if file.is_symlink() else "there is no such file or directory"
        return None, [_whole(text)]
    except OSError as error:
        return None, [_whole(f"cannot be read: {error.strerror}")]
    return content, [*mistakes, *of_file]


def _down(folder: Path, last: Path) -> list[Path]:
    """*folder* and what lies between it and *last*, which is in it."""
    return [folder, *(parent for parent in (last, *last.parents) if parent != folder and folder in parent.parents)]


def _read(file: Path, most_bytes: int) -> tuple[bytes | None, list[Mistake]]:
    # Checked and read through one descriptor, so that no other process can swap the file in between.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None, [_whole("is a directory" if stat.S_ISDIR(status.st_mode) else "is not a regular file")]
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = stream.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    mistakes = [_whole(text) for text in _trust(status, file)]
    if len(content) > most_bytes:
        sizes = [format_bytes(size) for size in (status.st_size, most_bytes)]
        mistakes.append(_whole(f"is {sizes[0]}, larger than the maximum of {sizes[1]}"))
        return None, mistakes
    return content, mistakes


def _folder_mistakes(folder: Path) -> list[Mistake]:
    return [_whole(f"its directory {text}") for text in _trust(folder.stat(), folder)]


def _trust(status: os.stat_result, path: Path) -> list[str]:
    """Sentences on why other users than root and ours could change what is at *path*."""
    found = []
    mode = stat.S_IMODE(status.st_mode)
    # In a sticky directory such as /tmp others can add files, but not replace ours; theirs have the wrong owner.
    sticky = stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX
    if mode & STRANGERS_WRITE and not sticky:
        who = "every user" if mode & stat.S_IWOTH else "its group"
        found.append(f"can be written by {who} (mode {mode:04o}): chmod go-w {quote(str(path))}")
    if status.st_uid not in {0, os.geteuid()}:
        owners = "root" if os.geteuid() == 0 else f"root or user {os.geteuid()}"
        found.append(f"belongs to user {status.st_uid}, not to {owners}: chown root {quote(str(path))}")
    return found


def _decode(content: bytes, mistakes: list[Mistake]) -> str | None:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
        what = "is UTF-16" if utf16 else f"the byte 0x{content[error.start]:02X} is not UTF-8"
        mistakes.append(Mistake(line, column, f"{what}: save the file as UTF-8 text"))
        return None


def _whole(text: str) -> Mistake:
    return Mistake(0, 0, text)
