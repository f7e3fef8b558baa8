"""What happens on the node without a call of the kubelet: exits, foreign changes, CPUs that come and go.

Here the parts are put together; each has its own file.
"""

from criproxy.control.drift import Drift
from criproxy.control.exits import Exits
from criproxy.control.hotplug import Hotplug
from criproxy.control.inquiry import Inquiry


class Watch:
    """The parts, and how they are started.

    Made right after the machine was discovered: what changes from then on is noticed.
    """

    def __init__(self, inquiry: Inquiry) -> None:
        self._tasks = inquiry.followups.tasks
        self.exits = Exits(inquiry.followups, inquiry)
        self.hotplug = Hotplug(inquiry.followups)
        self.drift = Drift(inquiry.followups, self.hotplug)

    def start(self) -> None:
        """Watch until the controller's tasks are stopped."""
        self.hotplug.start()
        self._tasks.spawn("follow events", self.exits.follow())
        self._tasks.spawn("list exited containers", self.exits.list_regularly())
        self._tasks.spawn("watch cgroups", self.drift.watch())
