"""The commands that the device plugin sends to the daemon over the control socket: queries and reports.

The device plugin is a separate process, which continues if no daemon answers. Therefore each command has a short
timeout, and work that grows with the number of containers is done at most once for each change of the node.
docs/devices.md has the arguments and the answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from criproxy import __version__
from criproxy.api.live import LiveNode
from criproxy.api.quota_commands import MOST_CHARACTERS, QuotaCommands, report_of
from criproxy.api.views.incidents import users
from criproxy.devices.plugin.published import Published, PublishedCard, read_report
from criproxy.errors import UsageError
from criproxy.model.incident import END_OF_TIME_S, Action, Incident
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded_text
from criproxy.model.text.notices import difference
from criproxy.node.controller import Controller
from criproxy.placement.alloc.booked_cpus import free_milli
from criproxy.placement.options.policy_options import options_of
from criproxy.process.control_socket import Command
from criproxy.process.logger import Log


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
    instance: str = ""
    """See `Published.instance`."""


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handlers by command name, for the control socket."""
    return DevicePluginCommands(live.controller).commands()


@dataclass(slots=True)
class DevicePluginCommands:
    """The handlers of the device plugin's commands."""

    controller: Controller
    _free: tuple[Node, Mapping[int, int]] | None = field(default=None)
    """The last answer, and the node for which it was computed."""
    _latest: Published | CardReport | None = field(default=None)
    """The last report about cards."""

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
                refused = bounded_text(str(arguments.get("refused", "")), MOST_CHARACTERS)
                plugin.begin(str(arguments.get("instance", "")), refused)
            case False:
                plugin.end(str(arguments.get("instance", "")))
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
        """Answer ``device-inventory``: keep the report, and open and end incidents accordingly.

        Raises:
            UsageError: the report is invalid.
            CriproxyError: an incident, or its end, cannot be stored.
        """
        report = read_report(arguments)
        if self._publish(report):
            self._latest = report
            await self._update_incidents(report)
        return {"stale_after_s": report.stale_after_s, "version": __version__}

    def _publish(self, report: Published) -> bool:
        """Replace the last report, if this one counts; log the version of another device plugin than the last one's."""
        plugin = self.controller.device_plugin
        before = plugin.report.version if plugin.report else ""
        if not plugin.publish(report):
            return False
        if report.version != before and (compared := difference(__version__, report.version)):
            event = "the device plugin and the daemon are of different versions"
            keys = {"device_plugin": report.version, "own": __version__, "device_plugin_is": compared}
            self.controller.context.log.warning(event, **keys)
        return True

    async def _update_incidents(self, report: Published) -> None:
        """End the incidents of healthy cards, and open those that the daemon does not know, or has lost.

        Only a device plugin that serves a class knows that its cards are healthy: another one may be the one that saw
        them fail. The rest of a report is ignored once there is a newer one.
        """
        serving = {each.device_class for each in report.resources if each.registered}
        opened = {(each.device_class, each.card) for each in self._open_incidents()}
        for card in sorted(report.cards, key=lambda card: not card.healthy):  # ends do not depend on free places
            found = _reported(card)
            if self._latest is not report:
                return
            if card.healthy and card.device_class in serving and (card.device_class, card.id) in opened:
                await self.controller.incidents.end(card.device_class, card.id)
            elif found and found.key not in {each.key for each in self._open_incidents()}:
                await self._open(found)

    def _open_incidents(self) -> list[Incident]:
        return [each for each in self.controller.node.incidents.values() if not each.ended and not each.excess]

    async def _open(self, found: Incident) -> Incident:
        await self.controller.devices.begin()  # restores from the history which container has which card
        return await self.controller.incidents.report(found)

    async def incident(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-incident``: whether the report is stored, and the containers that use the card.

        Raises:
            UsageError: an argument is invalid.
            CriproxyError: the report is not stored, and no action is taken; the client should repeat it.
        """
        report = _read(arguments, self.controller.context.log)
        if report.instance and not self.controller.device_plugin.heeds(report.instance):
            return {"stored": False}  # its inventory has the same card, and counts once the kubelet has accepted it
        self.controller.device_plugin.note_command()
        self._latest = report
        if report.healthy:
            return {"stored": True, "ended": await self.controller.incidents.end(report.device_class, report.card)}
        incident = await self._open(_incident(report.device_class, report.card, report, report.action))
        return {"stored": True, "containers": users(self.controller.node, incident)}


def _reported(card: PublishedCard) -> Incident | None:
    """Return the incident of an unhealthy card; None if the card has not failed.

    An unknown action, of a newer device plugin, becomes the weakest one, as in ``device-incident``.
    """
    if card.healthy or not card.action or not 0 < (card.since_s or 0.0) < END_OF_TIME_S:
        return None
    action = {each.value: each for each in Action}.get(card.action, Action.NONE)
    return _incident(card.device_class, card.id, card, action)


def _incident(device_class: str, card: str, report: CardReport | PublishedCard, action: Action) -> Incident:
    since_s, reason = report.since_s or 0.0, report.reason or "unhealthy"
    return Incident(device_class=device_class, card=card, since_s=since_s, reason=reason, action=action)


def _read(arguments: Mapping[str, Any], log: Log) -> CardReport:
    report = report_of(CardReport, arguments, Action.NONE, log)
    if not report.device_class or not report.card:
        raise UsageError("device_class and card: must name a card")
    if not report.healthy and not 0 < report.since_s < END_OF_TIME_S:
        raise UsageError(f"since_s: must be seconds since the epoch, not {report.since_s!r}")
    return report
