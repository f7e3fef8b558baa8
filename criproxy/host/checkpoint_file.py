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


@dataclass(frozen=True, slots=True)
class _State:
    """State between two reads."""

    last: Checkpoint | None = None
    identity: tuple[int, int, int] | None = None
    """Identity of the file that was read last."""
    problem: str = ""
    """What was wrong with that file."""


@dataclass(slots=True)
class CheckpointFile:
    """Keeps the last valid checkpoint: a damaged file does not discard what is known."""

    path: Path
    patience: Patience = field(default_factory=Patience)
    timeout_s: float = READ_TIMEOUT_S
    _state: _State = _State()
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises reads: a read that begins later sees everything written before."""

    async def read(self) -> Reading:
        """Read the file if it has changed."""
        async with self._lock:
            work = partial(_read, self.path, self._state)
            try:
                reading, self._state = await self.patience.wait(str(self.path), work, self.timeout_s)
            except Hangs as error:
                return Reading(self._state.last, problem=str(error), hangs=True)
            return reading


def _read(path: Path, state: _State) -> tuple[Reading, _State]:
    try:
        found = path.stat()
        if (identity := (found.st_ino, found.st_size, found.st_mtime_ns)) != state.identity:
            last, problem = _parse(path, state.last)
            state = _State(last, identity, problem)
    except FileNotFoundError:
        return Reading(state.last), _State(state.last)
    except OSError as error:
        return Reading(state.last, problem=f"{path}: {error.strerror}"), replace(state, identity=None)
    return Reading(state.last, current=not state.problem, problem=state.problem), state


def _parse(path: Path, last: Checkpoint | None) -> tuple[Checkpoint | None, str]:
    """Return the checkpoint, or the last one and why it is kept."""
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        return last, f"{path}: is larger than {LARGEST_BYTES >> 20} MiB"
    try:
        return read_checkpoint(data), ""
    except BadCheckpoint as error:
        return last, f"{path}: {error}"
