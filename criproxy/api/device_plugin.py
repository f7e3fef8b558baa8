"""The commands that the device plugin sends to the daemon over the control socket: queries and reports.

The device plugin is a separate process, which continues if no daemon answers. Therefore each command has a short
timeout, and work that grows with the number of containers is done at most once for each change of the node.
docs/devices.md has the arguments and the answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy import __version__
from criproxy.api.quota_commands import QuotaCommands
from criproxy.api.unknown_words import with_known_action
from criproxy.control.controller import Controller
from criproxy.devices.published import BadReport, Published, read_report
from criproxy.engine.free import free_milli
from criproxy.errors import UsageError
from criproxy.model.bounded import bounded
from criproxy.model.incident import Action, Incident
from criproxy.model.node import Node
from criproxy.model.plain import from_plain
from criproxy.model.version import difference
from criproxy.observe.control_socket import Command
from criproxy.observe.logger import Log
from criproxy.policy.options import options_of
from criproxy.views.incidents import users

MOST_CHARACTERS = 500
"""The longest reason or name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReport:
    """The arguments of ``device-incident``."""

    device_class: str
    card: str
    """The id of the card as the kubelet knows it, without the number of a replica."""
    healthy: bool = False
    """Whether the card is healthy again; then the other arguments are ignored."""
    since_s: float = 0.0
    """When the card became unhealthy, in seconds since the epoch; it identifies a repeated report."""
    reason: str = ""
    action: Action = Action.NONE
    """The option ``onUnhealthy`` of its class."""


@dataclass(slots=True)
class DevicePluginCommands:
    """The handlers of the device plugin's commands."""

    controller: Controller
    _free: tuple[Node, Mapping[int, int]] | None = field(default=None)
    """The last answer, and the node for which it was computed."""

    def commands(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        return {
            "free-cpus": self.free_cpus,
            "device-plugin": self.lifetime,
            "device-inventory": self.inventory,
            "device-incident": self.incident,
            **QuotaCommands(self.controller).commands(),
        }

    async def lifetime(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-plugin``: it begins, or ends because somebody wants that.

        Raises:
            UsageError: the argument ``running`` is not a boolean.
        """
        plugin = self.controller.device_plugin
        match arguments.get("running"):
            case True:
                plugin.begin()
            case False:
                plugin.end()
            case other:
                raise UsageError(f"running: must be true or false, not {other!r:.60}")
        return {}

    async def free_cpus(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``free-cpus``, without arguments: milli-CPU by NUMA node, or null if criproxy places no containers."""
        controller = self.controller
        node, policy = controller.node, controller.context.state.policy
        if not controller.policy_switch.places or not controller.ready or node.released:
            return {"free_milli": None}
        if self._free is None or self._free[0] is not node:
            self._free = node, free_milli(node, options_of(policy).reserved(node.topology))
        return {"free_milli": {str(number): milli for number, milli in self._free[1].items()}}

    async def inventory(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-inventory``: keep the report, and end the incidents of cards that it reports as healthy.

        Raises:
            UsageError: the report is invalid.
            CriproxyError: the end of an incident cannot be stored.
        """
        try:
            report = read_report(arguments)
        except BadReport as error:
            raise UsageError(str(error)) from error
        self._publish(report)
        healthy = {(card.device_class, card.id) for card in report.cards if card.healthy}
        incidents = self.controller.node.incidents.values()
        about = dict.fromkeys(
            (each.device_class, each.card) for each in incidents if not each.ended and not each.excess
        )
        for device_class, card in about:
            if (device_class, card) in healthy:
                await self.controller.incidents.end(device_class, card)
        return {"stale_after_s": report.stale_after_s, "version": __version__}

    def _publish(self, report: Published) -> None:
        """Replace the last report; log the version of another device plugin than that of the last one."""
        plugin = self.controller.device_plugin
        before = plugin.report.version if plugin.report else ""
        plugin.publish(report)
        if report.version != before and (compared := difference(__version__, report.version)):
            event = "the device plugin and the daemon are of different versions"
            keys = {"device_plugin": report.version, "own": __version__, "device_plugin_is": compared}
            self.controller.context.log.warning(event, **keys)

    async def incident(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-incident``: whether the report is stored, and the containers that use the card.

        Raises:
            UsageError: an argument is invalid.
            CriproxyError: the report is not stored, and no action is taken; the client should repeat it.
        """
        report = _read(arguments, self.controller.context.log)
        self.controller.device_plugin.note_command()
        if report.healthy:
            return {"stored": True, "ended": await self.controller.incidents.end(report.device_class, report.card)}
        await self.controller.devices.begin()  # restores from the history which container has which card
        found = Incident(
            device_class=report.device_class,
            card=report.card,
            since_s=report.since_s,
            reason=report.reason or "unhealthy",
            action=report.action,
        )
        incident = await self.controller.incidents.report(found)
        return {"stored": True, "containers": users(self.controller.node, incident)}


def _read(arguments: Mapping[str, Any], log: Log) -> CardReport:
    try:
        known = with_known_action(bounded(arguments, MOST_CHARACTERS), Action.NONE, log)
        report = from_plain(CardReport, known)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not report.device_class or not report.card:
        raise UsageError("device_class and card: must name a card")
    if not report.healthy and not 0 < report.since_s < float("inf"):
        raise UsageError(f"since_s: must be seconds since the epoch, not {report.since_s!r}")
    return report
