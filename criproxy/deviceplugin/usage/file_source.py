"""Readings from a file, which another program rewrites again and again."""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from criproxy.deviceplugin.usage.program_source import LONGEST_BYTES, TakeReading
from criproxy.deviceplugin.usage.readings import InvalidReading, parse_reading
from criproxy.devices.usage.values import Reading
from criproxy.host.patience import Hangs, Patience

AGE_PERIODS = 3.0
"""A reading that is older than so many periods is outdated: no container is judged by it."""
_READ_TIMEOUT_S = 5.0
_AHEAD_S = 1.0
"""How far the time of a file may be in the future; beyond that, it comes from a different clock."""

Version = tuple[int, int, int]
"""What changes when a file is written or replaced: its inode number, modification time and size."""


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
