"""NVML's events, from a program that waits for them: it is started, and started again whenever it exits or hangs."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.deviceplugin.health.nvml_events import Registered
from criproxy.deviceplugin.line_programs import BadLine, LineProgram, restart_backoff
from criproxy.deviceplugin.nvidia.xids import Event
from criproxy.host.nvml import INITIALISED_S
from criproxy.model.text.plain import from_plain
from criproxy.process.children import Child
from criproxy.process.logger import Log
from criproxy.process.tasks import Backoff

SILENCE_TIMEOUT_S = 30.0
"""The program prints something every 5 s."""
INVALID_LINE = "an invalid line"


@dataclass(slots=True, repr=False)
class EventsWatch:
    """Watches the events of the machine's GPUs.

    Args:
        command: the program.
        on_registered: called when it is known which GPUs are watched.
        on_event: called with each event.
        log: gets each reason why there are no events once.
    """

    command: Sequence[str]
    on_registered: Callable[[Registered], None]
    on_event: Callable[[Event], None]
    log: Log
    silence_timeout_s: float = SILENCE_TIMEOUT_S
    first_s: float = INITIALISED_S
    """The time until the first line of the program."""
    on_mig: Callable[[Mapping[str, bool]], None] = lambda _: None
    """Called with which GPUs have MIG, by UUID: of those that support it."""
    on_cards: Callable[[Mapping[str, str]], None] = lambda _: None
    """Called with why GPUs do not work, by UUID; empty if they do. Nothing is known of others."""
    problem: str = ""
    """Why no events are received at the moment."""
    _gpus: tuple[str, ...] = ()
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _backoff: Backoff = field(default_factory=restart_backoff)
    _child: Child = field(default_factory=Child)

    def use(self, gpus: Sequence[str]) -> None:
        """Watch the GPUs with these UUIDs from now on; without any, the program does not run."""
        if tuple(gpus) != self._gpus:
            self._gpus = tuple(gpus)
            self._changed.set()

    def restart(self) -> None:
        """Start the program again."""
        self._changed.set()

    async def run(self) -> None:
        """Watch the GPUs that `use` names."""
        program = LineProgram(
            self.command,
            "the program that watches events of cards",
            "NVML has not answered",
            self.silence_timeout_s,
            unreadable=INVALID_LINE,
            child=self._child,
            first_s=self.first_s,
            late=self._log_problem,
        )
        while True:
            self._changed.clear()
            if not self._gpus:
                self.problem = ""
                await self._changed.wait()
                continue
            async with asyncio.TaskGroup() as group:
                work = program.keep_running(self._take, self._log_problem, self._backoff)
                running = group.create_task(work, name="follow events of cards")
                await self._changed.wait()
                running.cancel()

    def _take(self, line: bytes) -> str:
        """Pass on what a line reports; return its problem if it is why the program ends."""
        try:
            match json.loads(line):
                case {"registered": gpus}:
                    self.on_registered(from_plain(Registered, gpus))
                case {"event": event}:
                    self.on_event(from_plain(Event, event))
                    self._note_success()
                case {"alive": _}:
                    self._note_success()
                case {"cards": dict(faults)}:
                    self.on_cards(faults)
                case {"mig": dict(modes)}:
                    self.on_mig(modes)
                case {"unheard": str(problem)}:
                    self._log_problem(problem)
                case {"problem": str(problem)}:
                    return problem
        except ValueError as error:
            raise BadLine(f"{INVALID_LINE}: {error}") from error
        return ""

    def _note_success(self) -> None:
        """Note that NVML waits for events."""
        if self.problem:
            self.log.info("NVML events are received again")
        self.problem = ""
        self._backoff.reset()

    def _log_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.log.warning("NVML events are not received", reason=problem)
        self.problem = problem
