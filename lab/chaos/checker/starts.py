"""Which containers started without a place: what the runtime's bundles tell, and what was seen of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from lab.chaos.checker.cgroups import Cgroups
from lab.chaos.checker.unplaced import Gap, Overlap, Start, Told, too_long, unlisted

Pair = tuple[str, str]
"""Ids of an owner and of another."""

_FOUND_S = 60.0


@dataclass(slots=True)
class Starts:
    """All that was seen since the last verdict.

    Args:
        cgroups: of what runs.
        bundles: the runtime's folder of them; without it, every container counts as placed.
        gaps: as the journal has them.
    """

    cgroups: Cgroups
    bundles: Path | None
    gaps: list[Gap]
    starts: dict[str, Start] = field(default_factory=dict)
    """By their ids, while they exist; also those about which there was a verdict."""
    judged: int = 0
    """How many there were."""
    _created: dict[str, str] = field(default_factory=dict)
    """Titles of those that exist and were not seen to execute anything, by their ids."""
    _overlaps: list[Overlap] = field(default_factory=list)
    _asked: int = 0
    """So many of them began before the end of the last gap."""
    _going_on: dict[Pair, Overlap] = field(default_factory=dict)
    _due: set[str] = field(default_factory=set)
    _new: set[str] = field(default_factory=set)
    """Those of `_due` that began since the end of the last gap."""
    _gone: set[str] = field(default_factory=set)
    """Of those who overlapped: whom the runtime did not list any more at the end of a gap, or the store has lost."""
    _seen: set[str] = field(default_factory=set)
    _last_s: dict[str, float] = field(default_factory=dict)
    """When the last one of a title began."""

    def see(self, running: Iterable[str], at_s: float) -> None:
        """Look at the bundles of those that are new, and whether they execute anything."""
        if self.bundles is None:
            return
        ids = set(running)
        new = ((key, _title(self.bundles / key / "config.json")) for key in ids - self._seen)
        self._created |= {key: title for key, title in new if title}
        self._seen = ids
        for key in self._created.keys() - ids:
            del self._created[key]
        for key in [*self._created]:
            self.has_begun(key, at_s)

    def has_begun(self, key: str, at_s: float) -> bool:
        """Whether a container executes anything, as far as it has to be known of it; from then on it has started."""
        has_begun = self.cgroups.has_begun(key)
        if has_begun and (title := self._created.pop(key, "")):
            self.starts[key] = Start(title, at_s, self._last_s.get(title, 0.0))
            self._last_s[title] = at_s
            self._due.add(key)
            self._new.add(key)
        return has_begun

    def overlapping(self, pairs: Mapping[Pair, str], names: Mapping[str, str], at_s: float) -> bool:
        """Note who overlaps at a look, for the verdict; False if there will be none."""
        if self.bundles is None:
            return False
        for pair in self._going_on.keys() - pairs.keys():
            del self._going_on[pair]
        for pair, sentence in pairs.items():
            if pair not in self._going_on:
                titles = names[pair[0]], names[pair[1]]
                self._going_on[pair] = Overlap(pair, titles, sentence, (at_s, at_s))
                self._overlaps.append(self._going_on[pair])
            self._going_on[pair].time = self._going_on[pair].time[0], at_s
        return True

    def back(self, listed: Iterable[str]) -> None:
        """A gap has ended, and the runtime lists these containers."""
        there, forgets = set(listed), self.gaps[-1].forgets
        for key in self._due if forgets else self._new - there:
            self.starts[key].is_excused = True
        overlaps = self._overlaps if forgets else self._overlaps[self._asked :]
        self._gone |= {key for each in overlaps for key in each.pair if forgets or key not in there}
        self._asked = len(self._overlaps)
        self._new.clear()

    @property
    def since_s(self) -> float:
        """From when on it has to be known what criproxy says; inf if there is nothing to judge.

        A container can have been found, and told about, before it started.
        """
        times = [*(self.starts[key].begun_s for key in self._due), *(each.time[0] for each in self._overlaps)]
        return min(times, default=inf) - _FOUND_S

    def verdict(self, told: Sequence[Told]) -> list[str]:
        """What is wrong, a sentence each, now that everything is at rest and criproxy has *told* this."""
        due = [self.starts[key] for key in self._due]
        found = [*unlisted(due, self.gaps, told), *too_long(self._overlaps, self.starts, self.gaps, told, self._gone)]
        self.judged += len(due)
        for each in (self._due, self._new, self._gone, self._overlaps, self._going_on):
            each.clear()
        self._asked = 0
        for key in self.starts.keys() - self._seen:
            del self.starts[key]
        return found


def _title(bundle: Path) -> str:
    """POD/NAME of a container whose specification names no CPUs; empty for others, and where nothing is left."""
    try:
        specification = json.loads(bundle.read_text())
    except (OSError, ValueError):
        return ""
    annotations = specification.get("annotations", {})
    if annotations.get("io.kubernetes.cri.container-type") != "container":
        return ""
    if specification["linux"].get("resources", {}).get("cpu", {}).get("cpus"):
        return ""
    return f"{annotations['io.kubernetes.cri.sandbox-name']}/{annotations['io.kubernetes.cri.container-name']}"
