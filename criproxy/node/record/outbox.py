"""Log, record and explain the steps of the node, in order, after the calls that led to them have been answered.

The log, recordings, explanations and the history are never on the path of a call, and none of them can make one fail.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from criproxy.model.record import Record
from criproxy.node.record.explanations import MAX_REMEMBERED, MAX_WAITING, Explanations
from criproxy.node.record.history import History
from criproxy.placement.decision import Decision, Step
from criproxy.placement.events import Event
from criproxy.placement.records.history import Entry, entries_of
from criproxy.placement.records.log_line import log_line
from criproxy.process.failures import Failures
from criproxy.process.logger import Log
from criproxy.process.tasks import OnDemand, Tasks

LINGER_S = 0.02
"""Delay before steps are published: until then the runtime and the kubelet process a call, and need the CPUs."""

EventListener = Callable[[Event, Decision | Exception], None]
"""Receives an event and its result; must not raise."""


class Outbox:
    """A queue of steps and entries that have not been published yet. Use only in the event loop's thread.

    Args:
        write: called with each record of the history.
        history: converts entries to records.
        log: receives a line for each decision.
        failures: receives failures to log or record a step.
        tasks: run the task that publishes.
    """

    def __init__(
        self,
        write: Callable[[Record], None],
        history: History,
        log: Log,
        failures: Failures,
        tasks: Tasks,
    ) -> None:
        self.listener: EventListener | None = None
        """Called with every event after it was applied or failed, in order."""
        self._history = history
        self._explanations = Explanations(self.put, log, tasks)
        self._write = write
        self._log = log
        self._failures = failures
        self._waiting: deque[Step | Entry | Callable[[], Entry]] = deque()
        self._worker = OnDemand(tasks, "tell of decisions", self._run, LINGER_S)

    def put(self, item: Step | Entry | Callable[[], Entry]) -> None:
        """Enqueue a step, an entry for the history, or a function that returns an entry; published soon, in order."""
        self._waiting.append(item)
        self._worker.soon()
        size = len(item.before.containers) + 1 if isinstance(item, Step) else 1
        while len(self._waiting) > max(1, min(MAX_WAITING, MAX_REMEMBERED // size)):  # the oldest are published at once
            self._next()

    def drain(self) -> None:
        """Publish everything that is queued, now."""
        while self._waiting:
            self._next()

    async def settled(self) -> None:
        """Publish everything that is queued, and wait for explanations unless they take too long."""
        self.drain()
        await self._explanations.settled()

    async def close(self) -> None:
        """Publish everything that is queued, and those explanations that can be computed quickly."""
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
                self._publish(item)
            else:
                self._write(self._history.record(item() if callable(item) else item))

    def _publish(self, step: Step) -> None:
        """Call the listener, log the decision, and write the history."""
        result, harmless = step.result, self._failures.harmless
        if self.listener:
            with harmless("an event to a recording"):
                self.listener(step.event, result)
        with harmless("what a decision was chosen from"):
            self._explanations.add(step)
        if isinstance(result, Decision):
            with harmless("a decision"):
                if line := log_line(step.event, step.before, result):
                    self._log.info(line[0], **line[1], decision_ms=round(step.took_s * 1000, 2))
            with harmless("a decision"):
                for entry in entries_of(step.before, step.event, result):
                    self._write(self._history.record(replace(entry, at_s=step.at_s)))
