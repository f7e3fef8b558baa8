"""The policy files that are or were in force, in files beside the database.

`last-good.json` has the last one that was in force: a start with a bad file goes on with it. `tried.json` has the one
in place of the policy file, which is tried until a time, or kept: a restart goes on with the try, or ends it; a
criproxy that does not know it leaves it alone. The folder ``configurations`` has the last ones that were in force, a
file for each: people read them, to see what was in force at a time and to bring it back; the daemon does not.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from criproxy.errors import StoreError
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.node import Places
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.text.sources import node_policy_of
from criproxy.store.database import NAME as DATABASE
from criproxy.store.files import check_own, read_json, remove, why_refused, write_whole

FOLDER = "configurations"
MOST = 10
LAST_GOOD_NAME, TRIED_NAME = "last-good.json", "tried.json"
MAX_BYTES = 8 << 20
"""More than any policy file has, escaped."""
MAX_TRIED_BYTES = 64 << 20
"""Two policy files, escaped, and the places of ten thousand containers."""
_NUMBERED = re.compile(r"(\d{1,15})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodFile:
    """What a policy file said when it came into force."""

    text: str = ""
    """All of it; empty where there was none, and no container was placed."""
    source: str = ""
    """Where it was: a path, or ``NodePolicy/NAME``."""
    configuration: str = ""
    """`Settings.configuration`: a digest of what it says."""
    available: str = ""
    """The CPUs of the cgroup that it names, in kernel notation: the cgroup may not be there yet after a reboot."""


def read_good(state_dir: Path) -> GoodFile | None:
    """The last good file; None where none is known, or it cannot be read. Blocks."""
    try:
        good = from_plain(GoodFile, read_json(state_dir, LAST_GOOD_NAME, MAX_BYTES))
        parse_cpuset(good.available)
    except ValueError:
        return None
    return good


def write_good(state_dir: Path, good: GoodFile) -> None:
    """Keep *good*, whole or not at all; nothing is written where it is kept already. Blocks.

    Raises:
        OSError: the disk fails, or the directory is not criproxy's own; what was kept before is still there.
    """
    check_own(state_dir)
    if read_good(state_dir) != good:
        write_whole(state_dir, LAST_GOOD_NAME, json.dumps(asdict(good)))


def is_new(state_dir: Path) -> bool:
    """Whether no daemon has ever served with that state directory. Blocks."""
    try:
        return not any((state_dir / name).exists() for name in (DATABASE, LAST_GOOD_NAME))
    except OSError:
        return False  # it cannot be known, so containers may run


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
    write_whole(folder, _name(number), json.dumps(asdict(replace(new, number=number))))
    for old in [*numbers, number][:-MOST]:
        (folder / _name(old)).unlink(missing_ok=True)


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
    found = (_NUMBERED.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def _name(number: int) -> str:
    return f"{number:06}.json"


def _read(folder: Path, number: int) -> InForceOnce | None:
    with suppress(ValueError, RecursionError):
        return replace(from_plain(InForceOnce, read_json(folder, _name(number), MAX_BYTES)), number=number)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The configuration, what comes back when its time is over, and where the containers were before."""

    good: GoodFile
    """The configuration that is in force."""
    file_hash: str = ""
    """`Configuration.file_hash` of the policy file that is not in force meanwhile; empty if it cannot be used."""
    begun_s: float = 0.0
    """When it came into force, in seconds since the epoch."""
    until_s: float = 0.0
    """When the former configuration comes back, in seconds since the epoch; 0: it does not, because it was kept."""
    before: GoodFile = field(default_factory=GoodFile)
    """The configuration that comes back; empty if there was no policy file."""
    before_kept: bool = False
    """Whether that was itself kept in place of the policy file."""
    places: Places = field(default_factory=dict)
    """Where the containers were under it."""

    @property
    def is_kept(self) -> bool:
        """Whether it stays until the policy file changes or, if it is of a NodePolicy, until somebody ends it."""
        return not self.until_s

    @property
    def outlasts_files(self) -> bool:
        """Whether a policy file that changes does not take its place."""
        return self.is_kept and bool(node_policy_of(self.good.source))

    def kept(self) -> "Tried":
        """The same configuration, which stays."""
        return Tried(good=self.good, file_hash=self.file_hash, begun_s=self.begun_s)

    def former(self) -> "Tried | None":
        """What is in place of the policy file again when the time is over; None: the policy file itself."""
        return replace(self, good=self.before).kept() if self.before_kept else None

    def has_begun(self, last: str) -> bool:
        """Whether it had come into effect, and had not ended, when the configuration *last* was in effect last.

        It is written before it comes into effect. If the disk hangs, the command has failed before the file is there.
        If *last* is unknown (empty), it counts.
        """
        return self.is_kept or last in ("", self.good.configuration) or last != self.before.configuration

    def places_under(self, configuration: str) -> Places | None:
        """Where containers return to under *configuration*; None if it is not the one before this try."""
        is_before = not self.is_kept and configuration == self.before.configuration
        return self.places if is_before else None


def read_tried(state_dir: Path) -> Tried | None:
    """The configuration in place of the policy file; None if there is none, or it cannot be read. Blocks."""
    try:
        return from_plain(Tried, read_json(state_dir, TRIED_NAME, MAX_TRIED_BYTES))
    except (ValueError, RecursionError):
        return None


def write_tried(state_dir: Path, tried: Tried | None, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Keep *tried*, whole or not at all; None removes the former one. *is_wanted* as for `write_whole`. Blocks.

    Raises:
        OSError: the disk fails, or the directory is not criproxy's own; what was kept before is still there.
    """
    if tried is None:
        remove(state_dir, TRIED_NAME)
    else:
        write_whole(state_dir, TRIED_NAME, json.dumps(to_plain(tried)), is_wanted)
