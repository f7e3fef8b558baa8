"""What pods asked for, and what was done beside criproxy: lines of JSON that the driver of the churn writes.

    {"container": "POD/NAME", "owns": [2]}            how many CPUs it shall own; two numbers while it is resized
    {"container": "POD/NAME", "owns": [2, 0], "unsettled": true}   not judged before the next rest
    {"id": "ID", "container": "POD/NAME"}             who an id is; without it the runtime is asked; "" for a sandbox
    {"disturbed": "ID"}                               somebody else writes its cpuset: not judged before the next rest

A line is written before what it tells happens; only an id is learnt afterwards.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
        elif "id" in entry:
            self.names[entry["id"]] = entry["container"]
        else:
            self.owns[entry["container"]] = tuple(entry["owns"])
            if entry.get("unsettled"):
                self.unsettled.add(entry["container"])
