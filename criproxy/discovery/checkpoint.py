"""The file in which the kubelet's device manager keeps its allocations, read off the event loop when it has changed."""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.devices.checkpoint import BadCheckpoint, Checkpoint, read_checkpoint

LARGEST_BYTES = 64 << 20
"""Nobody's checkpoint is larger; a file that is tells nothing."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the file said."""

    checkpoint: Checkpoint | None = None
    """The last one that could be read; None: there was none yet."""
    current: bool = False
    """Whether it is what the file says now: then a container that is not in it was given nothing."""
    problem: str = ""
    """Why it is not; empty where there is no file."""


@dataclass(slots=True)
class CheckpointFile:
    """Remembers the last checkpoint: a file that is damaged does not take away what is known already."""

    path: Path
    _last: Checkpoint | None = None
    _seen: tuple[int, int, int] | None = None
    """Which file was read last."""
    _problem: str = ""
    """What was wrong with it."""
    _one_by_one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who begins to read sees all that was written before, and a disk that hangs holds one thread only."""

    async def read(self) -> Reading:
        """What the file says now."""
        async with self._one_by_one:
            return await asyncio.to_thread(self._read)

    def _read(self) -> Reading:
        try:
            found = os.stat(self.path)  # noqa: PTH116 (in a thread)
            if (seen := (found.st_ino, found.st_size, found.st_mtime_ns)) != self._seen:
                self._last, self._problem = self._parsed()
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._problem = None, ""
            return Reading(self._last)
        except OSError as error:
            self._seen = None
            return Reading(self._last, problem=f"{self.path}: {error.strerror}")
        return Reading(self._last, current=not self._problem, problem=self._problem)

    def _parsed(self) -> tuple[Checkpoint | None, str]:
        """The checkpoint, or the last one and why it stays."""
        with self.path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
        if len(data) > LARGEST_BYTES:
            return self._last, f"{self.path}: is larger than {LARGEST_BYTES >> 20} MiB"
        try:
            return read_checkpoint(data), ""
        except BadCheckpoint as error:
            return self._last, f"{self.path}: {error}"
