"""A configuration that is in force in place of the policy file: tried until a time, or kept.

It is a file beside the database, so that a restart goes on with the try, or ends it. A criproxy that does not know it
leaves it alone, and uses the policy file.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from criproxy.model.place import Places
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.store.last_good import GoodFile
from criproxy.store.whole_file import read_json, remove, write_whole

NAME = "tried.json"
MAX_BYTES = 64 << 20
"""Two policy files, escaped, and the places of ten thousand containers."""


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
        """Whether it stays until the policy file changes."""
        return not self.until_s

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
        return from_plain(Tried, read_json(state_dir, NAME, MAX_BYTES))
    except (ValueError, RecursionError):
        return None


def write_tried(state_dir: Path, tried: Tried | None, is_wanted: Callable[[], bool] = lambda: True) -> None:
    """Keep *tried*, whole or not at all; None removes the former one. *is_wanted* as for `write_whole`. Blocks.

    Raises:
        OSError: the disk fails, or the directory is not criproxy's own; what was kept before is still there.
    """
    if tried is None:
        remove(state_dir, NAME)
    else:
        write_whole(state_dir, NAME, json.dumps(to_plain(tried)), is_wanted)
