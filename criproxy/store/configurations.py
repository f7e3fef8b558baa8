"""The last configurations that were in force: one file for each in the folder ``configurations``.

People read them, to see what was in force at a time and to bring it back; the daemon does not.
"""

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from criproxy.errors import StoreError
from criproxy.store.directory import why_refused
from criproxy.store.last_good import is_new
from criproxy.store.whole_file import check_own, write_whole

FOLDER = "configurations"
MOST = 10
MAX_BYTES = 8 << 20
_NAME = re.compile(r"(\d{1,15})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class InForceOnce:
    """A configuration that came into force."""

    text: str
    """All of the policy file."""
    source: str
    """Where that was."""
    hash: str
    """As `Loaded.hash`."""
    policy: str
    at_s: float
    """When it came into force, in seconds since the epoch."""
    how: str
    """``file``: it was the policy file. ``tried``, ``kept``, ``back``: by ``criproxy reload``."""
    number: int = 0
    """Counts up from 1 over all of a node."""


def add(state_dir: Path, new: InForceOnce) -> None:
    """Write *new* with the next number, unless a restart brought it; the oldest beyond `MOST` go. Blocks.

    Raises:
        OSError: the disk fails, or the directory is not criproxy's own.
    """
    check_own(state_dir)
    folder = state_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    numbers = _numbers(folder)
    newest = _read(folder, numbers[-1]) if numbers else None
    if newest and (newest.hash, newest.source) == (new.hash, new.source) and new.how in ("file", newest.how):
        return
    number = numbers[-1] + 1 if numbers else 1
    write_whole(folder, f"{number:06}.json", json.dumps(asdict(replace(new, number=number))))
    for old in [*numbers, number][:-MOST]:
        _path(folder, old).unlink(missing_ok=True)


def read_all(state_dir: Path) -> list[InForceOnce]:
    """All of them, oldest first; without those that cannot be read. Blocks.

    Raises:
        StoreError: the directory is missing, is not criproxy's own, has no state of criproxy, or cannot be read.
    """
    folder = state_dir / FOLDER
    try:
        if not state_dir.exists():
            raise StoreError(f"there is no directory {state_dir}: name the daemon's with --state-dir")
        for place in (state_dir, folder):
            if reason := why_refused(place):
                raise StoreError(f"{place} is not read: it {reason}")
        found = [_read(folder, number) for number in _numbers(folder)]
    except FileNotFoundError:
        if is_new(state_dir):
            text = f"{state_dir} has no state: criproxy has not run with this directory; name the daemon's"
            raise StoreError(f"{text} with --state-dir") from None
        return []
    except OSError as error:
        remedy = "; this needs root" if isinstance(error, PermissionError) else ""
        raise StoreError(f"{folder} cannot be read: {error.strerror}{remedy}") from error
    return [each for each in found if each]


def _numbers(folder: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.json"


def _read(folder: Path, number: int) -> InForceOnce | None:
    with suppress(OSError, ValueError, TypeError, LookupError), _path(folder, number).open("rb") as stream:
        values = json.loads(stream.read(MAX_BYTES))
        texts = {name: str(values[name]) for name in ("text", "source", "hash", "policy", "how")}
        return InForceOnce(**texts, at_s=float(values["at_s"]), number=number)
    return None
