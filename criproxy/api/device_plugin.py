"""The commands by which the device plugin asks the daemon and reports to it, over the control socket.

The device plugin is a process of its own, which goes on where no daemon answers; so each command is asked with a short
limit, and its answer takes no work that grows with the number of containers more than once for each change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from criproxy.control.controller import Controller
from criproxy.engine.free import free_milli
from criproxy.model.node import Node
from criproxy.observe.control_socket import Command
from criproxy.policy.options import options_of


@dataclass(slots=True)
class DevicePluginCommands:
    """What the device plugin asks and reports."""

    controller: Controller
    _free: tuple[Node, Mapping[int, int]] | None = None
    """The last answer, and the node of which it was."""

    def commands(self) -> dict[str, Command]:
        """By name, for the control socket."""
        return {"free-cpus": self.free_cpus}

    async def free_cpus(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``free-cpus``, which has no arguments: milli-CPU by NUMA node, null where criproxy places nothing."""
        controller = self.controller
        node, policy = controller.node, controller.context.state.policy
        if not controller.policy_switch.places or not controller.ready or node.released:
            return {"free_milli": None}
        if self._free is None or self._free[0] is not node:
            self._free = node, free_milli(node, options_of(policy).reserved(node.topology))
        return {"free_milli": {str(number): milli for number, milli in self._free[1].items()}}
