"""Readings that a program prints: the program is started, and started again whenever it exits or hangs."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from criproxy.observe.backoff import Backoff
from criproxy.observe.children import Child
from criproxy.observe.line_programs import BadLine, LineProgram, restart_backoff
from criproxy.usage.readings import NoReading, reading_in
from criproxy.usage.values import Reading

SILENT_S = 10.0
"""At least so long a program may say nothing."""
SILENT_PERIODS = 5.0
"""The same, where readings are rarer."""
LONGEST_BYTES = 16 << 20
"""Of one reading, which has about 60 for each process: who starts many must not switch the quotas of a class off."""
CALM_S = 60.0
"""A program that has run for so long is started again after the shortest pause."""

NOT_JSON = "a line that is not JSON"

Took = Callable[[Reading], None]


@dataclass(slots=True, repr=False)
class ProgramSource:
    """Takes the readings of one class from a program.

    Args:
        kind: the name of the class.
        command: the program and its arguments.
        title: what people call it.
        took: gets each reading; one with a problem where there is none.
        silent_s: after so long without a line it is taken to hang.
        child: runs it; one that it has run before and that cannot be ended is not started again.
    """

    kind: str
    command: Sequence[str]
    title: str
    took: Took
    silent_s: float = SILENT_S
    backoff: Backoff = field(default_factory=restart_backoff)
    child: Child = field(default_factory=Child)

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
        )
        try:
            while True:
                begun_s = time.monotonic()
                problem = await program.follow(self._take)
                self.took(Reading(kind=self.kind, at_s=time.monotonic(), problem=problem))
                await self.child.end()
                if time.monotonic() - begun_s > CALM_S:
                    self.backoff.reset()
                await asyncio.sleep(self.backoff.pause_s())
        finally:
            await self.child.end()

    def _take(self, line: bytes) -> str:
        """Pass the reading of a line on; return the problem that it reports."""
        try:
            reading = reading_in(json.loads(line), self.kind, time.monotonic())
        except NoReading as error:
            raise BadLine(f"an invalid reading: {error}") from error
        except (ValueError, RecursionError) as error:
            raise BadLine(f"{NOT_JSON}: {error}") from error
        self.took(reading)
        return reading.problem


def silent_s(period_s: float) -> float:
    """How long a program may say nothing that says something in each period."""
    return max(SILENT_S, SILENT_PERIODS * period_s)
