"""What is told of the steps of the node, in order, when the calls that led to them have been answered.

The log, recordings, explanations and the history: none of it is on the way of a call, and none of it can fail one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from criproxy.control.node.explanations import MAX_REMEMBERED, MAX_WAITING, Explanations
from criproxy.control.node.history import History
from criproxy.engine.decision import Decision, Step
from criproxy.engine.events import Event
from criproxy.engine.history import Entry, entries_of
from criproxy.engine.log_line import log_line
from criproxy.model.record import Record
from criproxy.observe.failures import Failures
from criproxy.observe.logger import Log
from criproxy.observe.tasks import OnDemand, Tasks

LINGER_S = 0.02
"""How long what happens waits to be told: until then runtime and kubelet are at work on a call, and have the CPUs."""

Heard = Callable[[Event, Decision | Exception], None]
"""Gets an event and what came of it; must not fail."""


class Outbox:
    """Steps and entries that have not been told so far; for the event loop's thread.

    Args:
        write: gets the records of the history.
        history: makes records of entries.
        log: gets a line for each decision.
        failures: told of what cannot be told.
        tasks: run the task that tells.
    """

    def __init__(
        self,
        write: Callable[[Record], None],
        history: History,
        log: Log,
        failures: Failures,
        tasks: Tasks,
    ) -> None:
        self.heard: Heard | None = None
        """Told of every event when it has been applied or has failed, in their order."""
        self._history = history
        self._explanations = Explanations(self.put, log, tasks)
        self._write = write
        self._log = log
        self._failures = failures
        self._waiting: deque[Step | Entry | Callable[[], Entry]] = deque()
        self._worker = OnDemand(tasks, "tell of decisions", self._run, LINGER_S)

    def put(self, item: Step | Entry | Callable[[], Entry]) -> None:
        """Tell of a step, or write an entry or what makes one into the history, soon, and after all before it."""
        self._waiting.append(item)
        self._worker.soon()
        size = len(item.before.containers) + 1 if isinstance(item, Step) else 1
        while len(self._waiting) > max(1, min(MAX_WAITING, MAX_REMEMBERED // size)):  # the oldest are told at once
            self._next()

    def drain(self) -> None:
        """Tell of all that waits, now."""
        while self._waiting:
            self._next()

    async def settled(self) -> None:
        """Return when all that waits is told, and what it was chosen from, too, unless that takes too long."""
        self.drain()
        await self._explanations.settled()

    async def close(self) -> None:
        """Tell of all that waits, and of what is found quickly of its explanations."""
        self.drain()
        await self._explanations.close()
        self.drain()

    async def _run(self) -> None:
        while self._waiting:
            self._next()
            await asyncio.sleep(0)  # calls go first

    def _next(self) -> None:
        item = self._waiting.popleft()
        with self._failures.harmless("an entry of the history"):
            if isinstance(item, Step):
                self._tell(item)
            else:
                self._write(self._history.record(item() if callable(item) else item))

    def _tell(self, step: Step) -> None:
        """Log, let those hear of it who want to, and write the history."""
        result, harmless = step.result, self._failures.harmless
        if self.heard:
            with harmless("an event to a recording"):
                self.heard(step.event, result)
        with harmless("what a decision was chosen from"):
            self._explanations.hear(step)
        if isinstance(result, Decision):
            with harmless("a decision"):
                if line := log_line(step.event, step.before, result):
                    self._log.info(line[0], **line[1], decision_ms=round(step.took_s * 1000, 2))
            with harmless("a decision"):
                for entry in entries_of(step.before, step.event, result):
                    self._write(self._history.record(replace(entry, at_s=step.at_s)))
