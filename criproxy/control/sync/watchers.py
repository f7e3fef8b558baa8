"""What happens on the node without a call of the kubelet: exits, foreign changes, CPUs that come and go.

Here the parts are put together; each has its own file.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module

from criproxy.control.sync.hotplug import Hotplug
from criproxy.control.sync.outcomes import Inquiry


class Watch:
    """The parts, and how they are started.

    Made right after the machine was discovered: what changes from then on is noticed.
    """

    def __init__(self, inquiry: Inquiry, is_ready: Callable[[], bool] = lambda: True) -> None:
        self._inquiry = inquiry
        self._is_ready = is_ready
        self._hotplug = Hotplug(inquiry.followups)

    @property
    def problem(self) -> str:
        """Why nobody knows which CPUs and memory nodes there are now; empty where that is known."""
        return self._hotplug.error

    def start(self) -> None:
        """Watch until the controller's tasks are stopped."""
        self._hotplug.start()
        self._inquiry.followups.tasks.forever("watch", self._watch)

    async def _watch(self) -> None:
        """Load the parts beside the first calls, and start them: nothing of them is needed at the very start."""
        await self._load()
        from criproxy.control.sync.cold_starts import ColdStarts
        from criproxy.control.sync.drift import Drift
        from criproxy.control.sync.exits import Exits
        from criproxy.control.sync.promotion import Promotions

        followups = self._inquiry.followups
        exits = Exits(followups, self._inquiry)
        drift, cold_starts = Drift(followups, self._hotplug), ColdStarts(followups)
        followups.tasks.forever("follow events", exits.follow)
        followups.tasks.forever("list exited containers", exits.list_regularly)
        followups.tasks.forever("watch cgroups", drift.watch)
        followups.tasks.forever("end cold starts", cold_starts.watch)
        followups.tasks.forever("look for room", Promotions(followups, self._is_ready).watch)

    async def _load(self) -> None:
        for part in ("exits", "drift", "cold_starts", "promotion"):
            await asyncio.to_thread(import_module, f"criproxy.control.sync.{part}")
