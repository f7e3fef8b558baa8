"""Ends cold starts: a container that gets memory of one kind only may use the others when the time is over.

The engine has no clock, so it needs an event. The runtime reports how long a container has run, so that the time before
a restart of criproxy counts.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.entries import changed_keys
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.placement.events import ColdStartEnded
from criproxy.placement.options.memory import cold_for_s


@dataclass(slots=True)
class ColdStarts:
    """Waits for the end of each cold start."""

    context: Context
    _known: Mapping[str, Container] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)
    """Keys of containers."""

    async def watch(self) -> None:
        """Check containers that change, for ever."""
        while True:
            self._check()
            await self.context.state.changed()

    def _check(self) -> None:
        """Start a task for each new cold start, which waits for its end."""
        node = self.context.state.node
        for key in changed_keys(self._known, node.containers):
            if key not in self._waiting and (duration_s := cold_for_s(node, key)):
                self._waiting.add(key)
                self.context.tasks.forever("end cold starts", partial(self._end, key, duration_s))
        self._known = node.containers

    async def _end(self, key: str, duration_s: float) -> None:
        await asyncio.sleep(max(0.0, duration_s - await self._ran_s(key)))
        await self.context.state.apply(ColdStartEnded(key))
        self._waiting.discard(key)

    async def _ran_s(self, key: str) -> float:
        """Return for how many seconds the container has run; 0 if the runtime does not report that."""
        try:
            status = (await self.context.runtime.container_status(key)).status
        except RuntimeCallError:
            return 0.0
        return max(0.0, time.time() - status.started_at / 1e9) if status.started_at else 0.0
