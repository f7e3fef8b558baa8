"""Log, record and explain the steps of the node, in order, after the calls that led to them have been answered.

The log, recordings, explanations and the history are never on the path of a call, and none of them can make one fail.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from criproxy.model.record import Kind, Record
from criproxy.model.text.bounded import bounded_text, bounded_texts
from criproxy.node.record.refusals import Refusals
from criproxy.placement.answers.choice import chosen_for, considered
from criproxy.placement.decision import Decision, Step
from criproxy.placement.events import Event
from criproxy.placement.records.history import Entry, entries_of
from criproxy.placement.records.log_line import log_line
from criproxy.process.failures import Failures
from criproxy.process.logger import Log
from criproxy.process.tasks import OnDemand, Tasks, wait_at_most

LINGER_S = 0.02
"""Delay before steps are published: until then the runtime and the kubelet process a call, and need the CPUs."""
TURN_S = 0.001
"""How long steps are published before calls have their turn."""
EventListener = Callable[[Event, Decision | Exception], None]
"""Receives an event and its result; must not raise."""
QUIET_S, LATEST_S = 0.2, 2.0
"""Seconds without a new decision after which the waiting decisions are explained, and the longest wait for that."""
MAX_WAITING = 256
"""Decisions that wait here or in the outbox; if there are more, the oldest ones are dropped."""
MAX_REMEMBERED = 32_000
"""Containers in the nodes before these decisions, counted once for each node: each takes 80 bytes in each node."""
BATCH = 16
"""Decisions that are explained in one call to a thread."""
PATIENCE_S = 2.0
"""How long a reader of the history waits until the last decisions have been explained."""


def record_of(entry: Entry, refusals: Refusals, at_s: float | None = None) -> Record:
    """Return the record of *entry* that goes to the store, its texts bounded; *refusals* follow what it says.

    *at_s*: when, if the entry does not know it.
    """
    at_s = entry.at_s if at_s is None else at_s
    # A line break would end a sentence in the store: parts such as the path of a mount are from tenants.
    about, sentences = entry.about, tuple(text.replace("\n", "\\n") for text in bounded_texts(entry.sentences))
    if about and entry.kind is Kind.REFUSED:
        refusals.add(about, bounded_text(" ".join(sentences)))
    elif about and entry.kind is Kind.GRANTED:
        refusals.remove(about)
    facts = {key: bounded_text(fact) if isinstance(fact, str) else fact for key, fact in entry.facts.items()}
    if about is None:
        return Record(at_s, "", "", entry.kind, sentences, "", facts)
    return Record(at_s, about.key, about.title, entry.kind, sentences, about.life, facts)


@dataclass(repr=False, eq=False)
class Outbox:
    """A queue of steps and entries that have not been published yet. Use only in the event loop's thread.

    Args:
        write: called with each record of the history.
        refusals: follow the entries.
        log: receives a line for each decision.
        failures: receives failures to log or record a step.
        tasks: run the task that publishes.
    """

    _write: Callable[[Record], None]
    _refusals: Refusals
    _log: Log
    _failures: Failures
    _tasks: Tasks
    listener: EventListener | None = None
    """Called with every event after it was applied or failed, in order."""
    _waiting: deque[Step | Entry | Callable[[], Entry]] = field(default_factory=deque)
    _is_due: bool = False
    """Whether what waits will be published soon."""

    def __post_init__(self) -> None:
        self._explanations = Explanations(self.put, self._log, self._tasks)

    @property
    def unexplained(self) -> int:
        """How many decisions since the start came too fast to be explained."""
        return self._explanations.lost

    def put(self, item: Step | Entry | Callable[[], Entry]) -> None:
        """Enqueue a step, an entry for the history, or a function that returns an entry; published soon, in order."""
        self._waiting.append(item)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(LINGER_S, self._publish_some)
        room = _room(item) if isinstance(item, Step) else MAX_WAITING
        while len(self._waiting) > room:  # the oldest are published at once
            self._next()

    def drain(self) -> None:
        """Publish everything that is queued, now."""
        while self._waiting:
            self._next()

    async def settled(self, *, closing: bool = False) -> None:
        """Publish everything that is queued, and wait for explanations unless they take too long.

        When *closing*, containers that would have to leave are no longer searched for.
        """
        self.drain()
        await self._explanations.settled(closing=closing)
        self.drain()

    def _publish_some(self) -> None:
        """Publish until nothing waits, or until it is the turn of calls, and then go on after them."""
        until_s = monotonic() + TURN_S
        try:
            while self._waiting and monotonic() < until_s:
                self._next()
        finally:
            self._is_due = bool(self._waiting)
            if self._is_due:
                asyncio.get_running_loop().call_soon(self._publish_some)

    def _next(self) -> None:
        item = self._waiting.popleft()
        with self._failures.harmless("an entry of the history"):
            if isinstance(item, Step):
                self._publish(item)
            else:
                self._write(record_of(item() if callable(item) else item, self._refusals))

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
                for entry in entries_of(step.before, step.event, result, step.at_s):
                    self._write(record_of(entry, self._refusals, step.at_s))


@dataclass(repr=False, eq=False)
class Explanations:
    """The decisions that have not been explained yet. Use only in the event loop's thread.

    Args:
        publish: called with each explanation, as a separate entry.
        log: receives failures of policies.
        tasks: run the task that explains.
    """

    _publish: Callable[[Entry], None]
    _log: Log
    _tasks: Tasks
    _waiting: dict[tuple[str, str], Step] = field(default_factory=dict)
    """By container; of a create that is retried at once, the last attempt counts."""
    lost: int = 0
    """Decisions that were dropped since the start, because too many waited."""
    _last_s: float = 0.0
    """When the last waiting decision was added, on the loop's clock."""
    _hurried: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: bool = False

    def __post_init__(self) -> None:
        self._worker = OnDemand(self._tasks, "explain decisions", self._run)

    def add(self, step: Step) -> None:
        """Enqueue *step* if a policy decided about one container; other events are ignored. This is cheap."""
        if (about := chosen_for(step)) is None:
            return
        self._waiting.pop(about, None)
        self._waiting[about] = step
        while len(self._waiting) > _room(step):
            del self._waiting[next(iter(self._waiting))]
            self.lost += 1
        self._last_s = asyncio.get_running_loop().time()
        self._worker.now()

    async def settled(self, *, closing: bool = False) -> None:
        """Return when the decisions added so far are explained and published, or after `PATIENCE_S`."""
        self._closing |= closing
        if self._worker.busy or self._closing:
            self._hurried.set()
        await wait_at_most(PATIENCE_S, self._worker.ended())

    async def _run(self) -> None:
        while self._waiting:
            await self._quiet()
            some = [self._waiting.pop(key) for key in list(self._waiting)[:BATCH]]
            for answer in await asyncio.to_thread(self._explain, some):
                if isinstance(answer, Entry):
                    self._publish(answer)
                else:
                    self._log.warning("a decision cannot be explained", exc_info=answer)
        self._hurried.clear()

    async def _quiet(self) -> None:
        """Return when nothing has been decided for a moment, or at once if a caller waits for the explanations."""
        loop = asyncio.get_running_loop()
        latest_s = loop.time() + LATEST_S
        while not self._hurried.is_set() and (due_s := min(self._last_s + QUIET_S, latest_s)) > loop.time():
            await wait_at_most(due_s - loop.time(), self._hurried.wait())

    def _explain(self, steps: Sequence[Step]) -> list[Entry | Exception]:
        found = list[Entry | Exception | None]()
        for step in steps:
            try:
                found.append(considered(step, search=not self._closing))
            except Exception as error:  # noqa: BLE001 (the decision itself was made before)
                found.append(error)
        return [each for each in found if each]


def _room(step: Step) -> int:
    """Return how many decisions may wait, each with the node before it, if they are like *step*."""
    return max(1, min(MAX_WAITING, MAX_REMEMBERED // (len(step.before.containers) + 1)))
