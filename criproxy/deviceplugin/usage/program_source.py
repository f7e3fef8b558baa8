"""Readings that a program prints: the program is started, and started again whenever it exits or hangs."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from criproxy.deviceplugin.usage.readings import InvalidReading, parse_reading
from criproxy.devices.usage.values import Reading
from criproxy.process.backoff import Backoff
from criproxy.process.children.children import Child
from criproxy.process.children.line_programs import BadLine, LineProgram, restart_backoff

SILENT_S = 10.0
"""How long a program may print nothing, at least."""
SILENT_PERIODS = 5.0
"""The same in periods, for longer periods."""
LONGEST_BYTES = 16 << 20
"""The maximum size of a reading, which has about 60 bytes for each process: a container that starts many processes must
not be able to disable the quotas of a class."""
CALM_S = 60.0
"""A program that has run for so long is started again after the shortest pause."""

NOT_JSON = "a line that is not JSON"

TakeReading = Callable[[Reading], None]


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
        try:
            while True:
                begun_s = time.monotonic()
                problem = await program.follow(self._take)
                self._fail(problem)
                await self.child.end()
                if time.monotonic() - begun_s > CALM_S:
                    self.backoff.reset()
                await asyncio.sleep(self.backoff.pause_s())
        finally:
            await self.child.end()

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
