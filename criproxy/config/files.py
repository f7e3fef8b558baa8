"""Reading a policy file or a token that only trusted users can write, and choosing the policy file of this node.

It is the named file, or of a directory the node's, its group's, or the default. A node's group is what CRI-RM takes
from a node label. criproxy does not ask the API server: the label is the only line of `GROUP_FILE`, which the setup of
the node writes.
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from criproxy.config.mistakes import Mistake
from criproxy.errors import ConfigError
from criproxy.model.text.amounts import format_bytes

MAX_BYTES = 1 << 20
STRANGERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
GROUP_FILE = Path("/etc/criproxy/group")
DEFAULT_NAME = "default.yaml"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""What host names and values of labels look like."""


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
        mistakes = [
            wrong for parent in _down(folder, real.parent) for wrong in _trust(parent.stat(), parent, "its directory ")
        ]
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
    mistakes = _trust(status, file)
    if len(content) > most_bytes:
        sizes = [format_bytes(size) for size in (status.st_size, most_bytes)]
        mistakes.append(_whole(f"is {sizes[0]}, larger than the maximum of {sizes[1]}"))
        return None, mistakes
    return content, mistakes


def _trust(status: os.stat_result, path: Path, prefix: str = "") -> list[Mistake]:
    """Why other users than root and ours could change what is at *path*."""
    found = []
    mode = stat.S_IMODE(status.st_mode)
    # In a sticky directory such as /tmp others can add files, but not replace ours; theirs have the wrong owner.
    sticky = stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX
    if mode & STRANGERS_WRITE and not sticky:
        who = "every user" if mode & stat.S_IWOTH else "its group"
        found.append(_whole(f"{prefix}can be written by {who} (mode {mode:04o}): chmod go-w {quote(str(path))}"))
    if status.st_uid not in {0, os.geteuid()}:
        owners = "root" if os.geteuid() == 0 else f"root or user {os.geteuid()}"
        found.append(_whole(f"{prefix}belongs to user {status.st_uid}, not to {owners}: chown root {quote(str(path))}"))
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


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy file, and why it is this one."""

    file: Path
    reason: str
    """Such as ``the group is edge``."""


def choose(path: Path, hostname: str, group: str | None = None) -> Choice:
    """*path* itself; if it is a directory: ``HOSTNAME.yaml`` in it, else ``group-GROUP.yaml``, else ``default.yaml``.

    Args:
        path: a file or a directory.
        hostname: this node's.
        group: the node's; None takes it from `GROUP_FILE`, where there is one.

    Raises:
        ConfigError: the directory has none of them, or the names cannot be names of files.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - is_dir() raises for a name that is too long
        return Choice(path, "it was named")
    if group is None:
        group = read_group(GROUP_FILE)
    candidates = {_name("host name", hostname): f"the host name is {hostname}"}
    if group:
        candidates[f"group-{_name('group', group)}"] = f"the group is {group}"
    candidates[DEFAULT_NAME] = "it has no file for this host name or group"
    for name, reason in candidates.items():
        # A broken link counts: the next candidate would silently be another policy.
        if os.path.lexists(path / name):
            return Choice(path / name, reason)
    raise ConfigError(f"{path}: has no policy file for this node; criproxy looked for {', '.join(candidates)}")


def read_group(file: Path) -> str | None:
    """The group that *file* names; None where it does not exist.

    Raises:
        ConfigError: it can be written by others, or holds more than one word.
    """
    if not os.path.lexists(file):
        return None
    text, mistakes = read_text(file)
    if mistakes:
        raise ConfigError("\n".join(mistake.located(file) for mistake in mistakes))
    words = (text or "").split()
    if len(words) != 1:
        text = "must contain one word, the group of this node; remove the file if the node is in no group"
        raise ConfigError(f"{file}: {text}")
    return words[0]


def why_no_name(name: str) -> str:
    """Why *name* can be neither a host's nor a group's; empty where it can."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"{name[:80]!r} cannot be part of the name of a policy file: "
        "it must be letters, digits, '-', '_' and '.', with a letter or digit first and last"
    )


def _name(what: str, name: str) -> str:
    if wrong := why_no_name(name):
        raise ConfigError(f"the {what} {wrong}")
    return f"{name}.yaml"
