"""The checkpoint of the kubelet's device manager, with its allocations; read off the event loop after changes."""

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from criproxy.devices.evidence.checkpoint import BadCheckpoint, Checkpoint, read_checkpoint
from criproxy.host.patience import Hangs, Patience

READ_TIMEOUT_S = 1.0
"""Timeout for reading; the kubelet writes a few megabytes at most."""
LARGEST_BYTES = 64 << 20
"""No real checkpoint is larger; criproxy ignores a larger file."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of a read."""

    checkpoint: Checkpoint | None = None
    """The last checkpoint that could be read; None if there has been none."""
    current: bool = False
    """Whether it is the present content of the file: then a container that is not in it has no devices."""
    problem: str = ""
    """Why it is not; empty if there is no file."""
    hangs: bool = False
    """Whether reading hangs, or is known to hang."""
    identity: tuple[int, int, int] | None = field(default=None, compare=False)
    """Identity of the file that was read."""


@dataclass(slots=True)
class CheckpointFile:
    """Keeps the last valid checkpoint: a damaged file does not discard what is known."""

    path: Path
    patience: Patience = field(default_factory=Patience)
    timeout_s: float = READ_TIMEOUT_S
    _last: Reading = Reading()
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises reads: a read that begins later sees everything written before."""

    async def read(self) -> Reading:
        """Read the file if it has changed."""
        async with self._lock:
            work = partial(_read, self.path, self._last)
            try:
                self._last = await self.patience.wait(str(self.path), work, self.timeout_s)
            except Hangs as error:
                return replace(self._last, current=False, problem=str(error), hangs=True)
            return self._last


def _read(path: Path, last: Reading) -> Reading:
    try:
        found = path.stat()
        identity = (found.st_ino, found.st_size, found.st_mtime_ns)
        return last if identity == last.identity else replace(_parse(path, last.checkpoint), identity=identity)
    except FileNotFoundError:
        return Reading(last.checkpoint)
    except OSError as error:
        return Reading(last.checkpoint, problem=f"{path}: {error.strerror}")


def _parse(path: Path, last: Checkpoint | None) -> Reading:
    """Return what the file says, or the *last* checkpoint and why it is kept."""
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        return Reading(last, problem=f"{path}: is larger than {LARGEST_BYTES >> 20} MiB")
    try:
        return Reading(read_checkpoint(data), current=True)
    except BadCheckpoint as error:
        return Reading(last, problem=f"{path}: {error}")
