"""Works out what `criproxy explain` shows of a decision beside its reasons: candidates, and containers in the way.

Never on the way of a call: a node is a value that never changes, so the same question can be asked of the policy
later, in a thread, when nothing has been decided for a moment. The answer goes into the history as a record of its own.
What is lost where the process is killed before that is the table, not the decision or its reasons.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from criproxy.engine.choice import chosen_for, considered
from criproxy.engine.decision import Step
from criproxy.engine.history import Entry
from criproxy.observe.logger import Log
from criproxy.observe.tasks import OnDemand, Tasks

QUIET_S, LATEST_S = 0.2, 2.0
"""Decisions are looked at again when none has been made for so long, but not later than that."""
MAX_WAITING = 256
"""Decisions that wait here or in the outbox; of more the oldest wait no longer."""
MAX_REMEMBERED = 32_000
"""Containers in the nodes before these, each counted once for each of them: it takes 80 bytes in each."""
TOGETHER = 16
"""So many are looked at by one visit to a thread."""
PATIENCE_S = 2.0
"""How long a reader of the history waits until the last decisions have been explained."""


class Explanations:
    """The decisions that have not been looked at again so far. For the event loop's thread.

    Args:
        told: gets what was found out, as an entry of its own.
        log: told of policies that fail at it, and of decisions that are not looked at.
        tasks: run the task that looks.
    """

    def __init__(self, told: Callable[[Entry], None], log: Log, tasks: Tasks) -> None:
        self._told = told
        self._log = log
        self._waiting: dict[tuple[str, str], Step] = {}
        """Of a create that is tried again at once, the last try counts."""
        self._lost = 0
        """Decisions that were forgotten since the last look, since too many waited."""
        self._last_s = 0.0
        """When the last of those that wait was heard of, on the loop's clock."""
        self._worker = OnDemand(tasks, "explain decisions", self._consider)
        self._hurried = asyncio.Event()
        self._closing = False

    def hear(self, step: Step) -> None:
        """Remember a decision that a policy made about one container; cheap, and nothing of other events."""
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
        """Return when what has been heard so far is told, or after `PATIENCE_S`."""
        if self._worker.busy:
            self._hurried.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._worker.ended()

    async def close(self) -> None:
        """Publish what is found quickly: containers that would have to leave are not searched any more."""
        self._closing = True
        self._hurried.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self._worker.ended()

    async def _consider(self) -> None:
        while self._waiting:
            await self._quiet()
            if self._lost:
                self._log.warning("decisions cannot be explained: too many were waiting", decisions=self._lost)
                self._lost = 0
            some = [self._waiting.pop(key) for key in list(self._waiting)[:TOGETHER]]
            for answer in await asyncio.to_thread(self._answers, some):
                if isinstance(answer, Entry):
                    self._told(answer)
                else:
                    self._log.warning("a decision cannot be explained", exc_info=answer)
        self._hurried.clear()

    async def _quiet(self) -> None:
        """Return when nothing has been decided for a moment, at once where somebody waits for it."""
        loop = asyncio.get_running_loop()
        latest_s = loop.time() + LATEST_S
        while not self._hurried.is_set() and (due_s := min(self._last_s + QUIET_S, latest_s)) > loop.time():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._hurried.wait()

    def _answers(self, steps: Sequence[Step]) -> list[Entry | Exception]:
        found = list[Entry | Exception]()
        for step in steps:
            try:
                answer = considered(step, search=not self._closing)
            except Exception as error:  # noqa: BLE001 (whatever a policy does here, it has decided before)
                found.append(error)
            else:
                found += [answer] if answer else []
        return found
