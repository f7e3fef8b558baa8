"""Files that only root and criproxy read: written whole or not at all, and on the disk when that returns; read back."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from errno import ECANCELED, EPERM
from pathlib import Path
from typing import Any

from criproxy.store.directory import why_refused

MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW


def _always() -> bool:
    return True


def write_whole(directory: Path, name: str, text: str, is_wanted: Callable[[], bool] = _always) -> None:
    """Write the file *name* with *text* in *directory*, in place of a former one. Blocks.

    Args:
        directory: criproxy's own.
        name: of the file.
        text: its content.
        is_wanted: asked when the disk has the text, before it takes effect: the disk may have taken long.

    Raises:
        OSError: the disk fails, the directory is not criproxy's own, or it is not wanted any more; what was there
            before is still there.
    """
    check_own(directory)
    new = directory / f"{name}.new"
    try:
        with os.fdopen(os.open(new, _FLAGS, MODE), "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if not is_wanted():
            raise OSError(ECANCELED, os.strerror(ECANCELED))
        new.replace(directory / name)
        _sync(directory)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def read_json(directory: Path, name: str, most_bytes: int) -> Any:  # noqa: ANN401 (any JSON value)
    """Return the value in the file *name* of *directory*; None if it is missing, unreadable or no JSON. Blocks."""
    try:
        if why_refused(directory):
            return None
        with (directory / name).open("rb") as stream:
            return json.loads(stream.read(most_bytes))
    except (OSError, ValueError, RecursionError):
        return None


def remove(directory: Path, name: str) -> None:
    """Remove the file *name* of *directory*, if it is there, for good: also after a crash. Blocks; raises OSError."""
    if os.path.lexists(directory / name):
        (directory / name).unlink()
        _sync(directory)


def check_own(directory: Path) -> None:
    """Raise OSError unless *directory* is one that only criproxy and root can write."""
    if reason := why_refused(directory):
        raise OSError(EPERM, f"its directory {reason}")


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
