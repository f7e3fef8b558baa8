"""A child process that prints one value a line for as long as it runs; it may exit, hang, or print something else."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from criproxy.process.children import LONGEST_LINE_BYTES, Child
from criproxy.process.tasks import Backoff

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before a program is started again."""
CALM_S = 60.0
"""A program that has run for so long is started again after the shortest pause."""


class BadLine(Exception):
    """A line is not what the program should print; the text completes the sentence "the program printed …"."""


@dataclass(slots=True, repr=False)
class LineProgram:
    """A program whose standard output is read line by line.

    Args:
        command: the program and its arguments.
        title: the name of the program in problems.
        silence: what a problem says about a program that prints nothing, up to the number of seconds.
        silent_s: a program that prints nothing for so long hangs.
        unreadable: what a problem calls a line that is too long.
        longest_bytes: the maximum size of a line.
        child: runs the program; while a process that cannot be killed is left, no other one is started.
        first_s: the time until its first line, if it may take longer than that between lines.
        late: called with the problem if the first line takes longer than that.
    """

    command: Sequence[str]
    title: str
    silence: str
    silent_s: float
    unreadable: str
    longest_bytes: int = LONGEST_LINE_BYTES
    child: Child = field(default_factory=Child)
    first_s: float = 0.0
    late: Callable[[str], None] = lambda _: None

    async def keep_running(self, take: Callable[[bytes], str], failed: Callable[[str], None], pauses: Backoff) -> None:
        """Run the program, again after each end.

        Args:
            take: uses a line, and returns the problem that the line reports, or an empty string. It raises `BadLine`.
            failed: called with the problem at each end.
            pauses: those before the program is started again.
        """
        try:
            while True:
                begun_s = monotonic()
                failed(await self.follow(take))
                await self.child.end()
                if monotonic() - begun_s > CALM_S:
                    pauses.reset()
                await asyncio.sleep(pauses.pause_s())
        finally:
            await self.child.end()

    async def follow(self, take: Callable[[bytes], str]) -> str:
        """Start the program and pass each line to *take*, until the program exits or fails; return the problem.

        The caller then ends the child.
        """
        try:
            lines = await self.child.start(self.command, self.longest_bytes)
        except OSError as error:
            return f"{self.title} cannot be run: {error.strerror}"
        loop, limit = asyncio.get_running_loop(), asyncio.timeout(max(self.first_s, self.silent_s))
        late = loop.call_later(self.silent_s, lambda: self.late(self._silent(self.silent_s)))

        def begun(line: bytes) -> str:
            late.cancel()
            return take(line)

        try:
            async with limit:
                return await self._lines(lines, begun, limit)
        except TimeoutError:
            if limit.expired():
                return self._silent(self.silent_s if late.cancelled() else max(self.first_s, self.silent_s))
            raise
        finally:
            late.cancel()

    def _silent(self, time_s: float) -> str:
        return f"{self.silence} for {time_s:g} s"

    async def _lines(self, lines: asyncio.StreamReader, take: Callable[[bytes], str], limit: asyncio.Timeout) -> str:
        """Pass each line on; *limit* ends it when there is none for too long."""
        problem, loop = f"{self.title} has exited", asyncio.get_running_loop()
        while True:
            try:
                line = await lines.readline()
            except ValueError as error:
                return f"{self.title} printed {self.unreadable}: {error}"
            if not line:
                return problem
            limit.reschedule(loop.time() + self.silent_s)
            try:
                problem = take(line) or problem
            except BadLine as error:
                return f"{self.title} printed {error}"


def restart_backoff() -> Backoff:
    """Return the pauses between two starts of a program that does not keep running."""
    return Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
