"""The last policy file that was in force, kept beside the state: a start with a bad one goes on with it."""

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from errno import EPERM
from pathlib import Path

from criproxy.control.settings import Log
from criproxy.model.cpuset import parse_cpuset
from criproxy.store.database import NAME as DATABASE
from criproxy.store.store import is_of_all

NAME = "last-good.json"
MAX_BYTES = 8 << 20
"""More than any policy file has, escaped."""
RETRY_S = 10.0
"""Pause before a disk that failed is tried again."""
LOOK_S = 60.0
"""How often it is looked whether what was kept is still there: somebody may have removed the state directory."""
CLOSE_S = 1.0
"""How long an end waits for the disk."""


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
    try:
        if is_of_all(state_dir):
            return None
        with (state_dir / NAME).open("rb") as stream:
            values = json.loads(stream.read(MAX_BYTES))
        good = GoodFile(**{name: str(value) for name, value in values.items()})
        parse_cpuset(good.available)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return good


def write_good(state_dir: Path, good: GoodFile) -> None:
    """Keep *good*, whole or not at all; nothing is written where it is kept already. Blocks.

    Raises:
        OSError: the disk fails, or others write to the directory, too; what was kept before is still there.
    """
    if is_of_all(state_dir):
        raise OSError(EPERM, "other programs use the directory, too")
    if read_good(state_dir) == good:
        return
    new = state_dir / f"{NAME}.new"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(asdict(good), stream)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(state_dir / NAME)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def is_new(state_dir: Path) -> bool:
    """Whether no daemon has ever served with that state directory. Blocks."""
    try:
        return not any((state_dir / name).exists() for name in (DATABASE, NAME))
    except OSError:
        return False  # it cannot be known, so containers may run


@dataclass(slots=True, repr=False)
class Keeping:
    """Writes the last good file in the background, again and again while the disk fails, and anew where it was lost."""

    state_dir: Path
    log: Log
    problem: str = ""
    """Why the file in force is not the one that a start with a bad file would go on with; empty where it is."""
    _wanted: GoodFile | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def keep(self, good: GoodFile) -> None:
        """Keep *good* soon, if it says anything, in place of what was asked for before."""
        if good.text:
            self._wanted = good
            self._news.set()

    async def run(self) -> None:
        """Write what is to be kept whenever it is not there, until `close`."""
        while True:
            self._news.clear()
            if self._wanted is not None:
                await self._write(self._wanted)
            if self._closing and not self._news.is_set():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self.problem else LOOK_S):
                    await self._news.wait()
        self._ended.set()

    async def close(self) -> None:
        """Give what is not kept yet a last chance, for `CLOSE_S` at most."""
        self._closing = True
        self._news.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._ended.wait()

    async def _write(self, good: GoodFile) -> None:
        try:
            await asyncio.to_thread(write_good, self.state_dir, good)
        except OSError as error:
            problem = f"{self.state_dir / NAME} cannot be written: {error.strerror}"
            if problem != self.problem:
                self.log.warning("the policy file in force is not kept for a start with a bad one", error=problem)
            self.problem = problem
        else:
            self.problem = ""
