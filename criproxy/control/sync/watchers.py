"""What happens on the node without a call of the kubelet: exits, foreign changes, CPUs that come and go.

Here the parts are put together; each has its own file.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module

from criproxy.control.containers.refused_resizes import RefusedResizes
from criproxy.control.context import Context
from criproxy.control.reconcile.reconciler import Reconciler
from criproxy.control.sync.hotplug import Hotplug
from criproxy.control.sync.outcomes import Outcomes


class Watch:
    """The parts, and how they are started.

    Made right after the machine was discovered: what changes from then on is noticed.
    """

    def __init__(
        self,
        context: Context,
        reconciler: Reconciler,
        outcomes: Outcomes,
        refused: RefusedResizes,
        is_ready: Callable[[], bool],
    ) -> None:
        self._context = context
        self._reconciler = reconciler
        self._outcomes = outcomes
        self._refused = refused
        self._is_ready = is_ready
        self._hotplug = Hotplug(context)

    @property
    def problem(self) -> str:
        """Why nobody knows which CPUs and memory nodes there are now; empty where that is known."""
        return self._hotplug.error

    def start(self) -> None:
        """Watch until the controller's tasks are stopped."""
        self._hotplug.start()
        self._context.tasks.forever("watch", self._watch)

    async def _watch(self) -> None:
        """Load the parts beside the first calls, and start them: nothing of them is needed at the very start."""
        await self._load()
        from criproxy.control.sync.cold_starts import ColdStarts
        from criproxy.control.sync.drift import Drift
        from criproxy.control.sync.exits import Exits
        from criproxy.control.sync.promotion import Promotions

        context = self._context
        exits = Exits(context, self._outcomes)
        drift, cold_starts = Drift(context, self._reconciler, self._hotplug), ColdStarts(context)
        promotions = Promotions(context, self._refused, self._is_ready)
        context.tasks.forever("follow events", exits.follow)
        context.tasks.forever("list exited containers", exits.list_regularly)
        context.tasks.forever("watch cgroups", drift.watch)
        context.tasks.forever("end cold starts", cold_starts.watch)
        context.tasks.forever("look for room", promotions.watch)

    async def _load(self) -> None:
        for part in ("exits", "drift", "cold_starts", "promotion"):
            await asyncio.to_thread(import_module, f"criproxy.control.sync.{part}")
