"""What happens on the node without a call of the kubelet: exits, foreign changes, CPUs that come and go.

Here the parts are put together; each has its own file.
"""

import asyncio
from importlib import import_module

from criproxy.control.hotplug import Hotplug
from criproxy.control.inquiry import Inquiry


class Watch:
    """The parts, and how they are started.

    Made right after the machine was discovered: what changes from then on is noticed.
    """

    def __init__(self, inquiry: Inquiry) -> None:
        self._inquiry = inquiry
        self._hotplug = Hotplug(inquiry.followups)

    def start(self) -> None:
        """Watch until the controller's tasks are stopped."""
        self._hotplug.start()
        self._inquiry.followups.tasks.forever("watch", self._watch)

    async def _watch(self) -> None:
        """Load the parts beside the first calls, and start them: nothing of them is needed at the very start."""
        await self._load()
        from criproxy.control.coldstarts import ColdStarts
        from criproxy.control.drift import Drift
        from criproxy.control.exits import Exits

        followups = self._inquiry.followups
        exits = Exits(followups, self._inquiry)
        drift, cold_starts = Drift(followups, self._hotplug), ColdStarts(followups)
        followups.tasks.forever("follow events", exits.follow)
        followups.tasks.forever("list exited containers", exits.list_regularly)
        followups.tasks.forever("watch cgroups", drift.watch)
        followups.tasks.forever("end cold starts", cold_starts.watch)

    async def _load(self) -> None:
        for part in ("exits", "drift", "coldstarts"):
            await asyncio.to_thread(import_module, f"criproxy.control.{part}")
