"""No CPU that a container owns is under another that runs: looked at every few milliseconds."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from lab.chaos.checker.cgroups import Cgroups, Group, show
from lab.chaos.checker.runtime import Runtime, Unavailable
from lab.chaos.checker.starts import Starts
from lab.chaos.checker.unplaced import Gap


@dataclass(slots=True)
class Journal:
    """The journal as far as it has been read."""

    path: Path
    owns: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """POD/NAME → numbers of CPUs of its own that are right; (0,) for one that shares."""
    unsettled: set[str] = field(default_factory=set)
    """POD/NAME of those whose place is changing."""
    disturbed: set[str] = field(default_factory=set)
    """Ids of those that somebody else moved."""
    names: dict[str, str] = field(default_factory=dict)
    """Id → POD/NAME; empty for a sandbox."""
    gaps: list[Gap] = field(default_factory=list)
    """In order; the last one may go on."""
    _at: int = 0

    def read(self) -> None:
        """Take in the lines that are new and complete."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data.rpartition(b"\n")[0]
        if whole:
            self._at += len(whole) + 1
            for line in whole.splitlines():
                self._take(json.loads(line))

    def settled(self) -> None:
        """All is at rest: everybody is judged again."""
        self.unsettled.clear()
        self.disturbed.clear()

    def _take(self, entry: dict[str, Any]) -> None:
        if "disturbed" in entry:
            self.disturbed.add(entry["disturbed"])
        elif "away" in entry:
            self._gap(away=entry["away"], at_s=entry["at_s"])
        elif "forgets" in entry:
            self.gaps[-1].forgets = True
        elif "id" in entry:
            self.names[entry["id"]] = entry["container"]
        else:
            self.owns[entry["container"]] = tuple(entry["owns"])
            if entry.get("unsettled"):
                self.unsettled.add(entry["container"])

    def _gap(self, *, away: bool, at_s: float) -> None:
        goes_on = bool(self.gaps) and self.gaps[-1].until_s == inf
        if away and not goes_on:
            self.gaps.append(Gap(at_s))
        elif not away and goes_on:
            self.gaps[-1].until_s = at_s


_ASK_AGAIN_S = 0.1


@dataclass(slots=True)
class Samples:
    """Looks, judges, and counts."""

    cgroups: Cgroups
    runtime: Runtime
    journal: Journal
    starts: Starts
    looks: int = 0
    with_owners: int = 0
    """Looks at which an owner and somebody else ran."""
    unjudged: int = 0
    """Looks with an overlap that could not be judged: the runtime did not tell in time who it was."""
    _found: frozenset[tuple[str, str]] = frozenset()
    _asked_s: float = 0.0
    _gaps_over: int = 0

    def look(self) -> Iterator[str]:
        """One look; a sentence for each pair that begins to overlap, unless `starts` is to judge it."""
        self.looks += 1
        at_s, groups = time.time(), self.cgroups.running()
        self.journal.read()  # after the cgroups: what is meant to happen is in it before it happens
        self._learn(groups)
        self.starts.see(groups, at_s)
        self._end_gaps()
        owners = [key for key in groups if self._owns(key)]
        self.with_owners += bool(owners) and len(groups) > 1
        pairs = {}
        for owner in owners:
            for other, group in groups.items():
                suspicious = other != owner and self.journal.names.get(other) and group.cpus & groups[owner].cpus
                if suspicious and (sentence := self._verify(owner, other, at_s)):
                    pairs[owner, other] = sentence
        if not self.starts.overlapping(pairs, self.journal.names, at_s):
            yield from (sentence for pair, sentence in pairs.items() if pair not in self._found)
        self._found = frozenset(pairs)

    def _owns(self, key: str) -> bool:
        """Whether it must be alone on its CPUs."""
        title = self.journal.names.get(key, "")
        return self._judged(key) and 0 not in self.journal.owns.get(title, (0,))

    def _judged(self, key: str) -> bool:
        return key not in self.journal.disturbed and self.journal.names.get(key) not in self.journal.unsettled

    def _verify(self, owner: str, other: str, at_s: float) -> str:
        """Look at owner, other and owner again: reading is not one moment, so the order matters."""
        before, between, after = self.cgroups.one(owner), self.cgroups.one(other), self.cgroups.one(owner)
        self.journal.read()
        if not self._owns(owner) or not self._judged(other):
            return ""
        if before is None or between is None or before != after or not before.cpus & between.cpus:
            return ""
        if not self.starts.has_begun(owner, at_s) or not self.starts.has_begun(other, at_s):
            return ""  # it is looked at again in some milliseconds
        return (
            f"two on one CPU: {self.journal.names[owner]} owns {show(before.cpus)}, "
            f"and {self.journal.names[other]} runs on {show(between.cpus)}"
        )

    def _end_gaps(self) -> None:
        """Where a gap has ended, ask which containers criproxy can find: it knows of no others that came in it."""
        over = sum(gap.until_s < inf for gap in self.journal.gaps)
        if over > self._gaps_over:
            with suppress(Unavailable):
                self.starts.back(self.runtime.containers())
                self._gaps_over = over

    def _learn(self, groups: Mapping[str, Group]) -> None:
        """Ask the runtime who it is that runs."""
        if groups.keys() <= self.journal.names.keys() or time.monotonic() < self._asked_s + _ASK_AGAIN_S:
            return
        self._asked_s = time.monotonic()
        try:
            self.journal.names |= {key: one.title for key, one in self.runtime.containers().items()}
            self.journal.names |= {sandbox.id: "" for sandbox in self.runtime.sandboxes()}
        except Unavailable:
            self.unjudged += 1
