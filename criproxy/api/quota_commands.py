"""The commands by which the watcher queries the grants of containers, and reports containers over their quota.

The daemon is authoritative about which container has which vGPU and quota: a report that differs is refused.
docs/devices.md has the arguments and the answers.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Any, TypeVar

from criproxy.api.views.incidents import quotas_exceeded
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.holdings import NOTHING, Holdings
from criproxy.devices.usage.rows import grants, grants_of
from criproxy.devices.usage.values import Grant
from criproxy.errors import CriproxyError, UsageError
from criproxy.model.incident import END_OF_TIME_S, Action, Excess, Incident, Quantity, Use
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.workload import Container
from criproxy.node.controller import Controller
from criproxy.placement.answers.vgpu_excesses import MAY_BE_STOPPED
from criproxy.process.control_socket import Command
from criproxy.process.logger import Log

T = TypeVar("T")
MOST_CHARACTERS = 500
"""The longest name, id or reason."""
MOST_USED = 1 << 40
"""The highest plausible use, in MiB."""
MOST_STOP_S = 3600.0
MOST_PID = 1 << 22
"""The kernel's limit."""


class Asked(Enum):
    """The action that the policy file requires; see `plan.OverQuota`."""

    OBSERVE = "observe"
    ANNOTATE = "annotate"
    STOP = "stop"
    KILL = "kill-process"


_ACTIONS = {Asked.ANNOTATE: Action.ANNOTATE, Asked.STOP: Action.STOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReport:
    """The arguments of ``quota-incident``."""

    container_id: str
    device_class: str
    card: str
    quantity: Quantity
    over: bool = True
    """Whether the container is over the quota; if it is within it again, the fields below are ignored."""
    used: float = 0.0
    """In MiB, or in percent of the card's computing units."""
    allowed: int = 0
    since_s: float = 0.0
    """Since when it is over the quota, in seconds since the epoch."""
    action: Asked = Asked.OBSERVE
    stop_timeout_s: float = 10.0
    """The grace period of a container that is stopped."""
    pid: int = 0
    start_ticks: int = 0
    """The PID and the start time of the process to kill; replies about the incident contain them."""
    unanswered: bool = False
    """Whether the watcher has sent this report before without getting an answer, so that it has not acted."""


@dataclass(frozen=True, slots=True)
class QuotaCommands:
    """The handlers of the watcher's commands."""

    controller: Controller

    def commands(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        return {"device-grants": self.grants, "quota-incident": self.incident}

    async def grants(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-grants``, without arguments: the grants of containers, and the open incidents.

        Raises:
            CriproxyError: the running containers are not known yet; the watcher continues with its last answer.
        """
        rules, node = await self._known(), self.controller.node
        unconfirmed = self.controller.incidents.unconfirmed
        return await asyncio.to_thread(_grants_answer, node, self.controller.devices.holdings, rules, unconfirmed)

    async def incident(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``quota-incident``: whether it is stored, and whether the watcher is to kill a process now.

        Raises:
            UsageError: an argument is invalid, or differs from the container's grant.
            CriproxyError: the report is not stored, and no action is taken; the client should repeat it.
        """
        report = _read(arguments, self.controller.context.log)
        rules = await self._known()
        container = self.controller.node.containers.get(report.container_id)
        if not report.over:
            life = container.life if container else report.container_id
            incidents = self.controller.incidents
            ended = await incidents.within(life, report.device_class, report.card, report.quantity)
            return {"stored": True, "act": False, "ended": ended}
        if container is None or container.state not in MAY_BE_STOPPED:
            return {"stored": False, "act": False, "why": "the container is not running"}
        grant = self._grant(report, container, rules)
        if self.controller.context.state.passes_all:
            raise CriproxyError("bypass is on: the kubelet could not see why the container ends; report it again later")
        found = _incident(report, container, only_observed=grant.is_only_observed)
        incident, act = await self.controller.incidents.exceeded(found, container, unanswered=report.unanswered)
        return {"stored": True, "act": act, "action": incident.action_word}

    async def _known(self) -> DeviceRules | None:
        """Return the rules in force; raise CriproxyError until the running containers and their cards are known."""
        controller = self.controller
        controller.device_plugin.note_command()
        await controller.devices.begin()
        if not controller.ready:
            raise CriproxyError("criproxy does not know yet which containers are running; ask again")
        return controller.devices.rules

    def _grant(self, report: QuotaReport, container: Container, rules: DeviceRules | None) -> Grant:
        """Return the container's vGPU on that card."""
        controller = self.controller
        holdings = controller.devices.holdings
        if rules and holdings.is_unknown(container):  # a crash can lose the last entries of the history
            raise CriproxyError(f"criproxy does not know yet which cards {container.title} has; report it again")
        facts = holdings.of(container) or NOTHING
        has = grants_of(controller.node, container, facts, rules) if rules else ()
        about = [each for each in has if each.kind == report.device_class and report.card in each.cards and each.quota]
        if not about:
            raise UsageError(f"{container.title} has no vGPU of {report.device_class} card {report.card}")
        allowed = max(_allowed(each, report.quantity) for each in about)
        if report.allowed != allowed or not allowed:
            has_quota = f"has a quota of {allowed}" if allowed else "has no quota"
            raise UsageError(f"allowed: {container.title} {has_quota} of {report.quantity.value}, not {report.allowed}")
        return about[0]


def _grants_answer(
    node: Node, holdings: Holdings, rules: DeviceRules | None, unconfirmed: Collection[str]
) -> dict[str, Any]:
    """Return grants and open incidents. Run this in a thread: 64 containers take more than 2 ms."""
    found = grants(node, holdings, rules) if rules else ()
    waiting = [node.incidents[key] for key in unconfirmed if key in node.incidents]
    incidents = [{**each, "waits": _waits(each, node, waiting)} for each in quotas_exceeded(node)]
    return {"containers": [to_plain(each) for each in found], "incidents": incidents}


def _waits(incident: Mapping[str, Any], node: Node, waiting: Iterable[Incident]) -> bool:
    """Whether the container is stopped only if the watcher reports that it is still over its quota."""
    about = incident["device_class"], incident["card"], Quantity(incident["quantity"])
    life = node.containers[incident["container_id"]].life
    is_one = any(each.is_of_quota(life, *about) for each in waiting if not each.ended)
    return is_one and incident["use"] == Use.STOPPING.value


def _allowed(grant: Grant, quantity: Quantity) -> int:
    if grant.quota is None:
        return 0
    return grant.quota.memory_mib if quantity is Quantity.MEMORY else grant.quota.cores_percent


def _incident(report: QuotaReport, container: Container, *, only_observed: bool) -> Incident:
    asked = Asked.OBSERVE if only_observed else report.action
    return Incident(
        device_class=report.device_class,
        card=report.card,
        since_s=report.since_s,
        action=_ACTIONS.get(asked, Action.NONE),
        excess=Excess(
            life=container.life,
            quantity=report.quantity,
            used=round(report.used),
            allowed=report.allowed,
            kills=asked is Asked.KILL,
            stop_timeout_s=report.stop_timeout_s,
            pid=report.pid if asked is Asked.KILL else 0,
            start_ticks=report.start_ticks if asked is Asked.KILL else 0,
        ),
    )


def _read(arguments: Mapping[str, Any], log: Log) -> QuotaReport:
    report = report_of(QuotaReport, arguments, Asked.OBSERVE, log)
    if not report.container_id or not report.device_class or not report.card:
        raise UsageError("container_id, device_class and card: must name a container and a card")
    if not report.over:
        return report
    if not 0 < report.since_s < END_OF_TIME_S:
        raise UsageError(f"since_s: must be seconds since the epoch, not {report.since_s!r}")
    if not isfinite(report.used) or not report.allowed < report.used <= MOST_USED:
        raise UsageError(f"used: must be more than the {report.allowed} that are allowed, not {report.used!r}")
    if not (0 <= report.pid <= MOST_PID and report.start_ticks >= 0):
        raise UsageError("pid and start_ticks: must be those of a process")
    if not 0 <= report.stop_timeout_s <= MOST_STOP_S:
        raise UsageError(f"stop_timeout_s: must be at most {MOST_STOP_S:g} seconds, not {report.stop_timeout_s!r}")
    return report


def report_of(kind: type[T], arguments: Mapping[str, Any], weakest: Enum, log: Log) -> T:
    """Return the report in *arguments*, with an action that this daemon knows.

    A refusal would lose the report, and no container may be stopped for a word that nobody understands. So an unknown
    action becomes the *weakest* one of its enumeration, and the log says so. What is no text stays as it is: that is a
    mistake, and not a newer version.

    Raises:
        UsageError: an argument is invalid.
    """
    given: dict[str, Any] = bounded(arguments, MOST_CHARACTERS)
    asked = given.get("action")
    if isinstance(asked, str) and asked not in {each.value for each in type(weakest)}:
        text = "a newer device plugin asks for an action that this daemon does not know"
        log.warning(text, action=asked, instead=weakest.value)
        given["action"] = weakest.value
    try:
        return from_plain(kind, given)
    except ValueError as error:
        raise UsageError(str(error)) from None
