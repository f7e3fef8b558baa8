"""Reads a file with a reading again and again; another program writes it."""

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from criproxy.discovery.patience import Hangs, Patience
from criproxy.usage.readings import NoReading, reading_in
from criproxy.usage.values import Reading
from criproxy.watcher.programs import LONGEST_BYTES, Took

AGE_PERIODS = 3.0
"""A reading that is older says nothing of now, and nobody is judged by it."""
_LOOK_S = 5.0
_AHEAD_S = 1.0
"""How far the time of a file may be in the future, before its clock is another one than ours."""

Version = tuple[int, int, int]
"""What changes when a file is written or replaced: its number, time and size."""


class _NoFile(Exception):
    """There is no reading in it; the text says why."""


@dataclass(slots=True, repr=False)
class FileSource:
    """Takes the readings of one class from a file.

    Args:
        kind: the name of the class.
        path: the file.
        took: gets each reading once; one with a problem where there is none.
        period_s: between two looks.
        patience: for the disk.
    """

    kind: str
    path: Path
    took: Took
    period_s: float
    patience: Patience
    _version: Version | None = None

    async def run(self) -> None:
        """Read it for ever."""
        loop = asyncio.get_running_loop()
        while True:
            begun_s = loop.time()
            reading = await self.read()
            if reading is not None:
                self.took(reading)
            await asyncio.sleep(max(begun_s + self.period_s - loop.time(), 0))

    async def read(self) -> Reading | None:
        """What it says now; None where it is the same as before and not too old."""
        try:
            said, at_s, version = await self.patience.wait(str(self.path), self._said, _LOOK_S)
            if version == self._version:
                return None
            self._version = version
            return reading_in(json.loads(said), self.kind, at_s)
        except (Hangs, _NoFile) as error:
            problem = str(error)
        except OSError as error:
            problem = f"{self.path} cannot be read: {error.strerror}"
        except NoReading as error:
            problem = f"{self.path} is not a valid reading: {error}"
        except (ValueError, RecursionError) as error:
            problem = f"{self.path} is not JSON: {error}"
        return Reading(kind=self.kind, at_s=time.monotonic(), problem=problem)

    def _said(self) -> tuple[bytes, float, Version]:
        """Its content, when it was written on the monotonic clock, and what tells it from others; blocks."""
        with self.path.open("rb") as file:
            found = os.fstat(file.fileno())
            age_s = time.time() - found.st_mtime
            oldest_s = AGE_PERIODS * self.period_s
            if age_s > oldest_s:  # without the age, so that the log has it once
                raise _NoFile(f"{self.path} is older than {oldest_s:g} s; it must be rewritten in every period")
            if age_s < -_AHEAD_S:
                raise _NoFile(f"{self.path} has a time in the future")
            said = file.read(LONGEST_BYTES + 1)
        if len(said) > LONGEST_BYTES:
            raise _NoFile(f"{self.path} has more than {LONGEST_BYTES} bytes")
        return said, time.monotonic() - max(age_s, 0), (found.st_ino, found.st_mtime_ns, found.st_size)
