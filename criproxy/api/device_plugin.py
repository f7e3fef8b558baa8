"""The commands by which the device plugin asks the daemon and reports to it, over the control socket.

The device plugin is a process of its own, which goes on where no daemon answers; so each command is asked with a short
limit, and its answer takes no work that grows with the number of containers more than once for each change.
docs/devices.md has the arguments and the answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy.api.quota_commands import QuotaCommands
from criproxy.control.controller import Controller
from criproxy.devices.published import BadReport, read_report
from criproxy.engine.free import free_milli
from criproxy.errors import UsageError
from criproxy.model.bounded import bounded
from criproxy.model.incident import Action, Incident
from criproxy.model.node import Node
from criproxy.model.plain import from_plain
from criproxy.observe.control_socket import Command
from criproxy.policy.options import options_of
from criproxy.views.incidents import users

MOST_CHARACTERS = 500
"""Of a reason or a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReport:
    """The arguments of ``device-incident``."""

    device_class: str
    card: str
    """Its id as the kubelet knows it, without the number of a replica."""
    healthy: bool = False
    """Whether it is healthy again; then nothing else matters."""
    since_s: float = 0.0
    """When it became unhealthy, in seconds since the epoch: with it, a report that is repeated is the same one."""
    reason: str = ""
    action: Action = Action.NONE
    """As ``onUnhealthy`` of its class says."""


@dataclass(slots=True)
class DevicePluginCommands:
    """What the device plugin asks and reports."""

    controller: Controller
    _free: tuple[Node, Mapping[int, int]] | None = field(default=None)
    """The last answer, and the node of which it was."""

    def commands(self) -> dict[str, Command]:
        """By name, for the control socket."""
        own = {"free-cpus": self.free_cpus, "device-inventory": self.inventory, "device-incident": self.incident}
        return {**own, **QuotaCommands(self.controller).commands()}

    async def free_cpus(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``free-cpus``, which has no arguments: milli-CPU by NUMA node, null where criproxy places nothing."""
        controller = self.controller
        node, policy = controller.node, controller.context.state.policy
        if not controller.policy_switch.places or not controller.ready or node.released:
            return {"free_milli": None}
        if self._free is None or self._free[0] is not node:
            self._free = node, free_milli(node, options_of(policy).reserved(node.topology))
        return {"free_milli": {str(number): milli for number, milli in self._free[1].items()}}

    async def inventory(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-inventory``: keep the report. An incident of a card that it calls healthy is over.

        Raises:
            UsageError: the report is none.
            CriproxyError: that an incident is over cannot be stored.
        """
        try:
            report = read_report(arguments)
        except BadReport as error:
            raise UsageError(str(error)) from error
        self.controller.device_plugin.publish(report)
        healthy = {(card.device_class, card.id) for card in report.cards if card.healthy}
        incidents = self.controller.node.incidents.values()
        about = dict.fromkeys(
            (each.device_class, each.card) for each in incidents if not each.ended and not each.excess
        )
        for device_class, card in about:
            if (device_class, card) in healthy:
                await self.controller.incidents.end(device_class, card)
        return {"stale_after_s": report.stale_after_s}

    async def incident(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-incident``: what is stored of the card, and the containers that use it.

        Raises:
            UsageError: an argument is not what it should be.
            CriproxyError: the report is not stored, and nothing is done; it is to be repeated.
        """
        report = _read(arguments)
        self.controller.device_plugin.heard()
        if report.healthy:
            return {"stored": True, "ended": await self.controller.incidents.end(report.device_class, report.card)}
        await self.controller.devices.begin()  # which container has which card, as the history knows it
        found = Incident(
            device_class=report.device_class,
            card=report.card,
            since_s=report.since_s,
            reason=report.reason or "unhealthy",
            action=report.action,
        )
        incident = await self.controller.incidents.report(found)
        return {"stored": True, "containers": users(self.controller.node, incident)}


def _read(arguments: Mapping[str, Any]) -> CardReport:
    try:
        report = from_plain(CardReport, bounded(arguments, MOST_CHARACTERS))
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not report.device_class or not report.card:
        raise UsageError("device_class and card: must name a card")
    if not report.healthy and not 0 < report.since_s < float("inf"):
        raise UsageError(f"since_s: must be seconds since the epoch, not {report.since_s!r}")
    return report
