"""Supervises the program that reports NVML events: starts it, restarts it if it exits or hangs, parses its output."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from criproxy.deviceplugin.nvml_events import Registered
from criproxy.model.plain import from_plain
from criproxy.nvidia.xids import Event
from criproxy.observe.backoff import Backoff
from criproxy.observe.children import Child
from criproxy.observe.logger import Log

SILENCE_TIMEOUT_S = 30.0
"""The program prints a line at least every 5 s."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Pauses before the program is restarted."""


@dataclass(slots=True, repr=False)
class EventsWatch:
    """Watches the events of the machine's GPUs.

    Args:
        command: The program.
        on_registered: Called with the GPUs whose events are watched.
        on_event: Called with each event.
        log: Gets one line for each reason why there are no events.
    """

    command: Sequence[str]
    on_registered: Callable[[Registered], None]
    on_event: Callable[[Event], None]
    log: Log
    silence_timeout_s: float = SILENCE_TIMEOUT_S
    problem: str = ""
    """Why no events are received at the moment."""
    _gpus: tuple[str, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
    _child: Child = field(default_factory=Child)

    def use(self, gpus: Sequence[str]) -> None:
        """Watch the GPUs with these UUIDs from now on; without any, the program does not run."""
        if tuple(gpus) != self._gpus:
            self._gpus = tuple(gpus)
            self._changed.set()

    async def run(self) -> None:
        """Watch forever."""
        try:
            while True:
                self._changed.clear()
                if not self._gpus:
                    self.problem = ""
                    await self._changed.wait()
                    continue
                await self._run_program()
        finally:
            await self._child.end()

    async def _run_program(self) -> None:
        """Run the program until it exits or the GPUs to watch change; pause after an exit."""
        reading = asyncio.create_task(self._read_events(), name="follow events of cards")
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait({reading, changed}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                self._log_problem(reading.result())
                await asyncio.wait({changed}, timeout=self._backoff.pause_s())
        finally:
            for task in (reading, changed):
                task.cancel()
            await asyncio.gather(reading, changed, return_exceptions=True)
            await self._child.end()

    async def _read_events(self) -> str:
        """Read the program's output until it ends; return the reason."""
        try:
            lines = await self._child.start(self.command)
        except OSError as error:
            return f"{self.command[0]} cannot be run: {error.strerror}"
        problem = "the program that watches events of cards has exited"
        while True:
            try:
                async with asyncio.timeout(self.silence_timeout_s):
                    line = await lines.readline()
                if not line:
                    return problem
                problem = self._process(json.loads(line)) or problem
            except TimeoutError:
                return f"NVML has not answered for {self.silence_timeout_s:g} s"
            except ValueError as error:
                return f"the program that watches events of cards printed an invalid line: {error}"

    def _process(self, line: object) -> str:
        """Process one line; return the problem that it reports, or an empty string."""
        match line:
            case {"registered": found}:
                self.on_registered(from_plain(Registered, found))
            case {"event": event}:
                self.on_event(from_plain(Event, event))
            case {"problem": str(problem)}:
                return problem
        if self.problem:
            self.log.info("NVML events are received again")
        self.problem = ""
        self._backoff.reset()
        return ""

    def _log_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.log.warning("NVML events are not received", reason=problem)
        self.problem = problem
