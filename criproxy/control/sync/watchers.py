"""What happens on the node without a call of the kubelet: exits, foreign changes, CPUs that come and go.

Here the parts are put together; each has its own file.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from criproxy.control.containers.refused_resizes import RefusedResizes
from criproxy.control.context import Context
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.sync.hotplug import Hotplug
from criproxy.control.sync.outcomes import Outcomes

_PARTS = ("sync.exits", "sync.drift", "sync.cold_starts", "reconcile.promotion")
"""The modules that are loaded beside the first calls: nothing of them is needed at the very start."""


@dataclass(slots=True, repr=False)
class Watch:
    """Starts the parts. Made right after the machine was discovered: what changes from then on is noticed."""

    context: Context
    reconciler: Reconciler
    outcomes: Outcomes
    refused: RefusedResizes
    is_ready: Callable[[], bool]
    _hotplug: Hotplug = field(init=False)

    def __post_init__(self) -> None:
        self._hotplug = Hotplug(self.context)

    @property
    def problem(self) -> str:
        """Why the CPUs and memory nodes of the machine are not known now; empty where they are."""
        return self._hotplug.error

    def start(self) -> None:
        """Watch until the controller's tasks are stopped."""
        self._hotplug.start()
        self.context.tasks.forever("watch", self._watch)

    async def _watch(self) -> None:
        await self._load()
        from criproxy.control.reconcile.promotion import Promotions
        from criproxy.control.sync.cold_starts import ColdStarts
        from criproxy.control.sync.drift import Drift
        from criproxy.control.sync.exits import Exits

        context, exits = self.context, Exits(self.context, self.outcomes)
        context.tasks.forever("follow events", exits.follow)
        context.tasks.forever("list exited containers", exits.list_regularly)
        context.tasks.forever("watch cgroups", Drift(context, self.reconciler, self._hotplug).watch)
        context.tasks.forever("end cold starts", ColdStarts(context).watch)
        context.tasks.forever("promote containers", Promotions(context, self.refused, self.is_ready).watch)

    async def _load(self) -> None:
        for part in _PARTS:
            await asyncio.to_thread(import_module, f"criproxy.control.{part}")
