"""Compute what `criproxy explain` shows of a decision besides its reasons: the candidates, and blocking containers.

This is never on the path of a call: a node is an immutable value, so the policy can be asked the same question later,
in a thread, when nothing has been decided for a moment. The answer goes into the history as a separate record. If the
process is killed before that, only the table is lost, not the decision or its reasons.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from criproxy.placement.answers.choice import chosen_for, considered
from criproxy.placement.decision import Step
from criproxy.placement.records.history import Entry
from criproxy.process.logger import Log
from criproxy.process.tasks import OnDemand, Tasks

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


class Explanations:
    """The decisions that have not been explained yet. Use only in the event loop's thread.

    Args:
        publish: called with each explanation, as a separate entry.
        log: receives failures of policies, and the number of decisions that were dropped.
        tasks: run the task that explains.
    """

    def __init__(self, publish: Callable[[Entry], None], log: Log, tasks: Tasks) -> None:
        self._publish = publish
        self._log = log
        self._waiting: dict[tuple[str, str], Step] = {}
        """By container; of a create that is retried at once, the last attempt counts."""
        self._lost = 0
        """Decisions that were dropped since the last batch, because too many waited."""
        self._last_s = 0.0
        """When the last waiting decision was added, on the loop's clock."""
        self._worker = OnDemand(tasks, "explain decisions", self._run)
        self._hurried = asyncio.Event()
        self._closing = False

    def add(self, step: Step) -> None:
        """Enqueue *step* if a policy decided about one container; other events are ignored. This is cheap."""
        if (about := chosen_for(step)) is None:
            return
        self._waiting.pop(about, None)
        self._waiting[about] = step
        room = min(MAX_WAITING, MAX_REMEMBERED // (len(step.before.containers) + 1))
        while len(self._waiting) > max(room, 1):
            del self._waiting[next(iter(self._waiting))]
            self._lost += 1
        self._last_s = asyncio.get_running_loop().time()
        self._worker.now()

    async def settled(self) -> None:
        """Return when the decisions added so far are explained and published, or after `PATIENCE_S`."""
        if self._worker.busy:
            self._hurried.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._worker.ended()

    async def close(self) -> None:
        """Publish what can be computed quickly: containers that would have to leave are no longer searched for."""
        self._closing = True
        self._hurried.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._worker.ended()

    async def _run(self) -> None:
        while self._waiting:
            await self._quiet()
            if self._lost:
                self._log.warning("decisions cannot be explained: too many were waiting", decisions=self._lost)
                self._lost = 0
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
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._hurried.wait()

    def _explain(self, steps: Sequence[Step]) -> list[Entry | Exception]:
        found = list[Entry | Exception]()
        for step in steps:
            try:
                answer = considered(step, search=not self._closing)
            except Exception as error:  # noqa: BLE001 (the decision itself was made before)
                found.append(error)
            else:
                found += [answer] if answer else []
        return found
