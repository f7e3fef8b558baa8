"""Readings of programs, which are started again whenever they end, and of files that others rewrite repeatedly."""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.deviceplugin.line_programs import BadLine, LineProgram, restart_backoff
from criproxy.deviceplugin.usage.readings import InvalidReading, parse_reading
from criproxy.devices.usage.values import Reading
from criproxy.host.patience import Hangs, Patience
from criproxy.process.children import Child
from criproxy.process.tasks import Backoff

SILENT_S = 10.0
"""How long a program may print nothing, at least."""
SILENT_PERIODS = 5.0
"""The same in periods, for longer periods."""
LONGEST_BYTES = 16 << 20
"""The maximum size of a reading, which has about 60 bytes for each process: a container that starts many processes must
not be able to disable the quotas of a class."""

NOT_JSON = "a line that is not JSON"

TakeReading = Callable[[Reading], None]
AGE_PERIODS = 3.0
"""A reading that is older than so many periods is outdated: no container is judged by it."""
_READ_TIMEOUT_S = 5.0
_AHEAD_S = 1.0
"""How far the time of a file may be in the future; beyond that, it comes from a different clock."""

Version = tuple[int, int, int]
"""What changes when a file is written or replaced: its inode number, modification time and size."""


@dataclass(slots=True, repr=False)
class ProgramSource:
    """Takes the readings of one class from a program.

    Args:
        kind: the name of the class.
        command: the program and its arguments.
        title: the name of the program in problems.
        take: called with each reading, and with one that has a problem when the program ends.
        silent_s: a program that prints nothing for so long hangs.
        backoff: the pauses before the program is started again.
        child: runs the program; while a previous process that cannot be killed is left, no other one is started.
        first_s: the time until its first reading, if it may take longer than that between readings.
    """

    kind: str
    command: Sequence[str]
    title: str
    take: TakeReading
    silent_s: float = SILENT_S
    backoff: Backoff = field(default_factory=restart_backoff)
    child: Child = field(default_factory=Child)
    first_s: float = 0.0

    async def run(self) -> None:
        """Run the program, again after each end."""
        program = LineProgram(
            self.command,
            self.title,
            silence=f"{self.title} has printed nothing",
            silent_s=self.silent_s,
            unreadable=NOT_JSON,
            longest_bytes=LONGEST_BYTES,
            child=self.child,
            first_s=self.first_s,
            late=self._fail,
        )
        await program.keep_running(self._take, self._fail, self.backoff)

    def _fail(self, problem: str) -> None:
        self.take(Reading(kind=self.kind, at_s=time.monotonic(), problem=problem))

    def _take(self, line: bytes) -> str:
        """Pass the reading of a line on; return the problem that it reports."""
        try:
            reading = parse_reading(json.loads(line), self.kind, time.monotonic())
        except InvalidReading as error:
            raise BadLine(f"an invalid reading: {error}") from error
        except (ValueError, RecursionError) as error:
            raise BadLine(f"{NOT_JSON}: {error}") from error
        self.take(reading)
        return reading.problem


def silent_s(period_s: float) -> float:
    """Return how long a program that prints a reading in each period may print nothing."""
    return max(SILENT_S, SILENT_PERIODS * period_s)


class _NoFile(Exception):
    """The file contains no usable reading; the text says why."""


@dataclass(slots=True, repr=False)
class FileSource:
    """Takes the readings of one class from a file.

    Args:
        kind: the name of the class.
        path: the file.
        take: called once with each reading, or with one that has a problem if the file cannot be used.
        period_s: the interval at which the file is read.
        patience: limits the time that the disk takes.
    """

    kind: str
    path: Path
    take: TakeReading
    period_s: float
    patience: Patience
    _version: Version | None = None

    async def run(self) -> None:
        """Read the file in every period."""
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            reading = await self.read()
            if reading is not None:
                self.take(reading)
            await asyncio.sleep(max(begun_s + self.period_s - loop.time(), 0))

    async def read(self) -> Reading | None:
        """Return the current reading; None if it is the same as before and not too old."""
        try:
            content, at_s, version = await self.patience.wait(str(self.path), self._content, _READ_TIMEOUT_S)
            if version == self._version:
                return None
            self._version = version
            return parse_reading(json.loads(content), self.kind, at_s)
        except (Hangs, _NoFile) as error:
            problem = str(error)
        except OSError as error:
            problem = f"{self.path} cannot be read: {error.strerror}"
        except InvalidReading as error:
            problem = f"{self.path} is not a valid reading: {error}"
        except (ValueError, RecursionError) as error:
            problem = f"{self.path} is not JSON: {error}"
        return Reading(kind=self.kind, at_s=time.monotonic(), problem=problem)

    def _content(self) -> tuple[bytes, float, Version]:
        """Return the file's content, the monotonic time when it was written, and its version; blocks."""
        with self.path.open("rb") as file:
            stat = os.fstat(file.fileno())
            age_s = time.time() - stat.st_mtime
            oldest_s = AGE_PERIODS * self.period_s
            if age_s > oldest_s:  # without the age, so that the log has it once
                raise _NoFile(f"{self.path} is older than {oldest_s:g} s; it must be rewritten in every period")
            if age_s < -_AHEAD_S:
                raise _NoFile(f"{self.path} has a time in the future")
            content = file.read(LONGEST_BYTES + 1)
        if len(content) > LONGEST_BYTES:
            raise _NoFile(f"{self.path} has more than {LONGEST_BYTES} bytes")
        return content, time.monotonic() - max(age_s, 0), (stat.st_ino, stat.st_mtime_ns, stat.st_size)
