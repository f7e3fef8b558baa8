"""The last policy file that was in force, in a file beside the database: a start with a bad one goes on with it."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from criproxy.model.cpuset import parse_cpuset
from criproxy.store.database import NAME as DATABASE
from criproxy.store.whole_file import check_own, read_json, write_whole

NAME = "last-good.json"
MAX_BYTES = 8 << 20
"""More than any policy file has, escaped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodFile:
    """What a policy file said when it came into force."""

    text: str = ""
    """All of it; empty where there was none, and no container was placed."""
    source: str = ""
    """Where it was."""
    configuration: str = ""
    """`Settings.configuration`: a digest of what it says."""
    available: str = ""
    """The CPUs of the cgroup that it names, in kernel notation: the cgroup may not be there yet after a reboot."""


def read_good(state_dir: Path) -> GoodFile | None:
    """The last good file; None where none is known, or it cannot be read. Blocks."""
    values = read_json(state_dir, NAME, MAX_BYTES)
    try:
        known = {each.name for each in fields(GoodFile)}  # a newer criproxy may have written others, too
        good = GoodFile(**{name: str(value) for name, value in values.items() if name in known})
        parse_cpuset(good.available)
    except (ValueError, TypeError, AttributeError):
        return None
    return good


def write_good(state_dir: Path, good: GoodFile) -> None:
    """Keep *good*, whole or not at all; nothing is written where it is kept already. Blocks.

    Raises:
        OSError: the disk fails, or the directory is not criproxy's own; what was kept before is still there.
    """
    check_own(state_dir)
    if read_good(state_dir) != good:
        write_whole(state_dir, NAME, json.dumps(asdict(good)))


def is_new(state_dir: Path) -> bool:
    """Whether no daemon has ever served with that state directory. Blocks."""
    try:
        return not any((state_dir / name).exists() for name in (DATABASE, NAME))
    except OSError:
        return False  # it cannot be known, so containers may run
