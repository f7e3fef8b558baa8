"""Brings files to the content that they shall have, by difference, and puts back what they had before."""

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from posixpath import basename, dirname
from time import monotonic
from typing import Any

from criproxy.controls.journal import BEFORE, Journal
from criproxy.controls.lane import Lane
from criproxy.controls.machine.kernel import KernelFiles, Value
from criproxy.errors import reason_of

FIRST_PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""Until a file that was repaired is repaired again; the pause doubles each time."""
MOST_SHOWN = 20
"""Of the files that were repaired."""
OFTEN = 3
"""So many repairs of one file are a trouble: another program wants something else."""
_PAIRS = {"scaling_min_freq": "scaling_max_freq", "min_freq_khz": "max_freq_khz"}
"""Of these, the kernel refuses a lower limit above the upper one."""
_ORDER = ("scaling_governor", *_PAIRS, *_PAIRS.values(), "energy_performance_preference")
"""Within a folder: with the governor performance, the kernel sets the preference, and takes no other one."""
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)


@dataclass(slots=True)
class Repairs:
    """A file that others have changed."""

    times: int = 0
    pause_s: float = FIRST_PAUSE_S / 2
    at_s: float = 0.0
    """Of the last repair; a monotonic clock."""
    found: str = ""
    """What they wrote last."""

    @property
    def due_s(self) -> float:
        """When it may be repaired again."""
        return self.at_s + self.pause_s if self.times else 0.0

    def repaired(self, found: str, now_s: float) -> None:
        """It is repaired now."""
        self.times, self.found, self.at_s = self.times + 1, found, now_s
        self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)

    def is_over(self, now_s: float) -> bool:
        """Whether nobody has changed it for long."""
        return now_s - self.at_s > 2 * self.pause_s


class ControlledFiles:
    """All files that this program has written.

    Args:
        lane: where they are read and written.
        journal: what they had before.
        kernel: reads and writes them.
    """

    def __init__(self, lane: Lane, journal: Journal, kernel: KernelFiles) -> None:
        self.problems: dict[str, str] = {}
        """Path → what is wrong with it, as a sentence."""
        self.immovable: set[str] = set()
        """Those that the kernel lets nobody change."""
        self.drift = 0
        """How often a file was repaired."""
        self.vanished = False
        """Whether a file did not exist in the last pass, so that the machine is another one now."""
        self._lane, self._journal, self._kernel = lane, journal, kernel
        self._wanted: Mapping[str, Value] = {}
        self._contents: dict[str, tuple[str, str]] = {}
        """Path → what was written, or is to be there and was found, and what the kernel shows of it."""
        self._repairs: dict[str, Repairs] = {}

    def __len__(self) -> int:
        return len(self._contents)

    @property
    def troubles(self) -> Iterable[str]:
        """Return what is wrong, as sentences."""
        yield from self.problems.values()
        for path, since_s in self._lane.hanging.items():
            yield f"{path} has not answered for {since_s:.0f} s"
        for path, repairs in self._repairs.items():
            if repairs.times >= OFTEN:
                again = f"it was repaired {repairs.times} times, and is at most every {repairs.pause_s:.0f} s"
                yield f"another program keeps writing {repairs.found!r:.60} to {path}: {again}"

    @property
    def repaired(self) -> list[dict[str, Any]]:
        """Return the files that others have changed lately, as JSON: those that were repaired most often first."""
        often = sorted(self._repairs.items(), key=lambda item: (-item[1].times, item[0]))[:MOST_SHOWN]
        return [{"path": path, "found": repairs.found, "times": repairs.times} for path, repairs in often]

    async def apply(self, wanted: Mapping[str, Value], *, look: bool = False) -> None:
        """Bring all files of *wanted* to their values, and all others back to what they had.

        Args:
            wanted: path → value.
            look: whether to read all of them again, and to repeat what failed.
        """
        self._wanted, self.vanished = wanted, False
        kept = self._contents if look else wanted  # what was not written is tried again
        self.problems = {path: text for path, text in self.problems.items() if path in wanted and path in kept}
        found = await self._read(look=look)
        await self._keep(found)
        targets = dict(self._targets(found))
        ordered = in_order(targets, found)
        results = await self._lane.run((path, partial(self._set, path, targets[path])) for path in ordered)
        failed = {path for path in ordered if path not in results or not self._is_set(path, targets, results[path])}
        await self._drop({path for path in self._left() if path in found} - failed)

    # ---------------------------------------------------------------- steps of a pass

    async def _read(self, *, look: bool) -> dict[str, str]:
        """Return what the files have that may have to be written."""
        wanted = (path for path in self._wanted if path not in self.immovable)
        paths = [*wanted, *self._left()] if look else [*filter(self._is_new, wanted), *self._left()]
        results = await self._lane.run((path, partial(self._kernel.read, path)) for path in paths)
        found = {path: text for path, text in results.items() if isinstance(text, str)}
        gone = set()
        for path, error in results.items():
            if not isinstance(error, Exception):
                continue
            is_gone = isinstance(error, OSError) and error.errno in _GONE
            if is_gone and path in self._journal.originals:
                gone.add(path)
            if path in self._wanted or not is_gone:
                self.problems[path] = f"cannot read {path}: {reason_of(error)}"
            self.vanished |= is_gone
        await self._drop(gone)
        return found

    async def _keep(self, found: Mapping[str, str]) -> None:
        """Store what the files had before."""
        new = {path: text for path, text in found.items() if path not in self._journal.originals}
        if new:
            await self._change_journal("what was there before", partial(self._journal.keep, new))

    async def _drop(self, paths: set[str]) -> None:
        for path in paths:
            self._contents.pop(path, None)
            self._repairs.pop(path, None)
            self.immovable.discard(path)
        if paths:
            await self._change_journal("that all is put back", partial(self._journal.drop, paths))

    async def _change_journal(self, what: str, change: "partial[None]") -> None:
        name = str(self._journal.directory / BEFORE)
        if isinstance(error := await self._lane.one(name, change), Exception):
            effect = "so nothing new is written" if what.startswith("what") else "so it is written again later"
            self.problems[BEFORE] = f"{what} cannot be stored in {name}: {reason_of(error)}; {effect}"

    def _targets(self, found: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """Yield what to write: path and content."""
        originals = self._journal.originals
        for path, text in found.items():
            if path not in originals:  # the disk does not take it
                continue
            value = self._wanted.get(path)
            if value is None:
                if text != originals[path]:
                    yield path, originals[path]
                continue
            content = value.content(originals[path])
            written, shown = self._contents.get(path, ("", ""))
            if written != content:
                if text != content and not value.is_passive:
                    yield path, content
                else:
                    self._contents[path] = content, text
            elif text != shown and not value.holds(text):
                if self._may_repair(path, text):
                    yield path, content
            elif (repairs := self._repairs.get(path)) and repairs.is_over(monotonic()):
                del self._repairs[path]

    def _may_repair(self, path: str, text: str) -> bool:
        repairs, now_s = self._repairs.setdefault(path, Repairs()), monotonic()
        if now_s < repairs.due_s:
            return False
        repairs.repaired(text, now_s)
        self.drift += 1
        return True

    def _set(self, path: str, content: str) -> str:
        self._kernel.write(path, content)
        return self._kernel.read(path)

    def _is_set(self, path: str, targets: Mapping[str, str], result: str | Exception) -> bool:
        """Note the outcome of a write; return whether the file has what it shall have."""
        value, content = self._wanted.get(path), targets[path]
        self.problems.pop(path, None)
        self._contents.pop(path, None)
        if isinstance(result, OSError) and value and result.errno in value.immovable_errnos:
            self.immovable.add(path)
            return False
        if isinstance(result, Exception):
            self.problems[path] = f"cannot write {content!r:.60} to {path}: {reason_of(result)}"
            self.vanished |= isinstance(result, OSError) and result.errno in _GONE
            return False
        self._contents[path] = content, result
        if result == content or (value and value.accepts(result)):
            return True
        self.problems[path] = f"the kernel made {result!r:.60} of {content!r:.60} in {path}"
        return False

    def _is_new(self, path: str) -> bool:
        """Whether *path* is not known to have its value."""
        original = self._journal.originals.get(path)
        return original is None or self._contents.get(path, ("", ""))[0] != self._wanted[path].content(original)

    def _left(self) -> list[str]:
        """Return the files that are not wanted any more."""
        return [path for path in self._journal.originals if path not in self._wanted]


def in_order(targets: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return the paths in an order of writes that the kernel takes: raise a maximum before its minimum, else after it.

    Args:
        targets: path → what will be written.
        found: path → what is there.
    """

    def rank(path: str) -> tuple[str, float]:
        folder, name = dirname(path), basename(path)
        order = float(_ORDER.index(name)) if name in _ORDER else -1.0
        other = next((lower for lower, upper in _PAIRS.items() if upper == name), "")
        if other and f"{folder}/{other}" in targets and _number(targets[path]) >= _number(found.get(path, "")):
            order = _ORDER.index(other) - 0.5
        return folder, order

    return sorted(targets, key=rank)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
