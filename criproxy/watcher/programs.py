"""Follows a program that prints readings: starts it, again where it ends or hangs, and reads what it says."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from criproxy.observe.backoff import Backoff
from criproxy.observe.children import Child
from criproxy.usage.readings import NoReading, reading_in
from criproxy.usage.values import Reading

SILENT_S = 10.0
"""At least so long a program may say nothing."""
SILENT_PERIODS = 5.0
"""The same, where readings are rarer."""
LONGEST_BYTES = 16 << 20
"""Of one reading, which has about 60 for each process: who starts many must not switch the quotas of a class off."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before it is started again."""
CALM_S = 60.0
"""What has run for so long is started again after the first pause."""

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
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    child: Child = field(default_factory=Child)

    async def run(self) -> None:
        """Follow it for ever."""
        try:
            while True:
                begun_s = time.monotonic()
                problem = await self._follow()
                self._problem(problem)
                await self.child.end()
                if time.monotonic() - begun_s > CALM_S:
                    self.backoff.reset()
                await asyncio.sleep(self.backoff.pause_s())
        finally:
            await self.child.end()

    async def _follow(self) -> str:
        """Take its readings; returns why it says no more that can be used."""
        try:
            lines = await self.child.start(self.command, LONGEST_BYTES)
        except OSError as error:
            return f"{self.title} cannot be run: {error.strerror}"
        problem = f"{self.title} has exited"
        while True:
            try:
                async with asyncio.timeout(self.silent_s):
                    line = await lines.readline()
                if not line:
                    return problem
                reading = reading_in(json.loads(line), self.kind, time.monotonic())
            except TimeoutError:
                return f"{self.title} has printed nothing for {self.silent_s:g} s"
            except NoReading as error:
                return f"{self.title} printed an invalid reading: {error}"
            except (ValueError, RecursionError) as error:
                return f"{self.title} printed a line that is not JSON: {error}"
            self.took(reading)
            problem = reading.problem or problem

    def _problem(self, problem: str) -> None:
        self.took(Reading(kind=self.kind, at_s=time.monotonic(), problem=problem))


def silent_s(period_s: float) -> float:
    """How long a program may say nothing that says something in each period."""
    return max(SILENT_S, SILENT_PERIODS * period_s)
