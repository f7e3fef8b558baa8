"""The commands ``device-usage``, which reports the use of cards, and ``usage``, which returns it."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from criproxy import __version__
from criproxy.api.live import LiveNode, encoded
from criproxy.api.views.devices import withdrawn
from criproxy.api.views.situation import argument, identity
from criproxy.devices.plugin.published import Advertised, Published, free_vgpus
from criproxy.devices.usage.reports import MINUTE_S, Point, SeriesKey, read_usage, stale_after_s
from criproxy.devices.usage.rows import CardRow, Uses, rows
from criproxy.devices.usage.values import CardUse, ClassUse, UsageReport
from criproxy.model.node import Node
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import ContainerState
from criproxy.node.controller import Controller
from criproxy.node.devices.plugin import CardUsage
from criproxy.process.control_socket import Command, Encoded


def to_values(
    node: Node,
    rows: Iterable[CardRow],
    report: UsageReport | None,
    plugin: Published | None,
    given: Mapping[tuple[str, str], int],
) -> Values:
    """Return the part of the answer of `criproxy usage` that grows with the number of containers.

    Args:
        node: has the containers.
        rows: the containers with cards.
        report: the watcher's; None if it is not recent.
        plugin: the report of the device plugin; None if it does not run.
        given: how many ids are allocated to containers, by class and resource.
    """
    ordered = sorted(rows, key=lambda row: (row.grant.title, row.container.attempt, row.container.key, row.card))
    uses = Uses(report)
    return {
        "cards": [_card(each, card) for each, card in uses.cards()],
        "containers": [_row(row) for row in ordered if row.container.state is not ContainerState.EXITED],
        "unknown_containers": [  # such as those of another runtime
            {"id": use.container_id, "class": kind, "card": use.card, "memory_mib": use.memory_mib}
            for kind, use in uses.all()
            if use.container_id not in node.containers
        ],
        "profiles": [*_profiles(plugin, given), *_withdrawn(plugin, ordered)] if plugin else [],
    }


def _watcher(usage: CardUsage) -> Values:
    """Return whether the watcher reports, and what it cannot read."""
    report = usage.report
    if report is None:
        return {"state": "none", "reported": None, "stale_after_s": None, "classes": []}
    return {
        "state": "reporting" if usage.is_current else "silent",
        "reported": timestamp(usage.reported_s),
        "stale_after_s": stale_after_s(report),
        "classes": [
            {"class": each.kind, "source": each.source, "problem": each.problem, "unread_cards": dict(each.unread)}
            for each in report.classes
        ],
    }


def _card(use: ClassUse, card: CardUse) -> Values:
    others = [each for each in use.others if each.card == card.card]
    cores = [each.cores_percent for each in others if each.cores_percent is not None]
    return {
        "class": use.kind,
        "id": card.card,
        "memory_mib": card.memory_mib,
        "total_mib": card.total_mib or None,
        "cores_percent": card.cores_percent,
        "not_a_container": {
            "memory_mib": sum(each.memory_mib for each in others),
            "cores_percent": sum(cores) if cores else None,
        },
    }


def _row(row: CardRow) -> Values:
    container, use = row.container, row.use
    return {
        **identity(container),
        "state": container.state.value,
        "class": row.grant.kind,
        "card": row.card,
        "resource": row.grant.resource,
        "ids": list(row.grant.ids),
        "profile": row.grant.quota.profile if row.grant.quota else "",
        "memory_mib": use.memory_mib if use else None,
        "memory_granted_mib": row.memory_limit_mib,
        "cores_percent": use.cores_percent if use else None,
        "cores_granted_percent": row.cores_limit_percent,
        "over_since": {quantity.value: timestamp(since_s) for quantity, since_s in row.over_since_s.items()},
        "actions": row.actions,
    }


def _profiles(plugin: Published, given: Mapping[tuple[str, str], int]) -> Iterable[Values]:
    """Yield the number of vGPUs, and of free ones, of each profile."""
    free = free_vgpus(plugin, given)
    for each in plugin.resources:
        if each.profile:
            own = given.get((each.device_class, each.name), 0)
            yield {**_profile(each), "given": own, "free": free[each.device_class, each.profile], "offered": True}


def _withdrawn(plugin: Published, rows: Iterable[CardRow]) -> Iterable[Values]:
    """Profiles that the policy file had, and whose vGPUs containers still have."""
    ids: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        if row.grant.quota and row.container.state is not ContainerState.EXITED:
            key = row.grant.kind, row.grant.quota.profile, row.grant.resource
            ids.setdefault(key, set()).update(row.grant.ids)
    for each in withdrawn(plugin.resources, ids):
        own = ids[each.device_class, each.profile, each.name]
        yield {**_profile(each), "given": len(own), "free": 0, "offered": False}


def _profile(each: Advertised) -> Values:
    names = {"class": each.device_class, "profile": each.profile, "resource": each.name}
    return {**names, "vgpus": each.ids, "healthy": each.healthy}


def _series(key: SeriesKey, points: Sequence[Point], node: Node) -> Values:
    container = node.containers.get(key.container_id)
    return {
        "class": key.device_class,
        "card": key.card,
        "id": key.container_id,
        "title": container.title if container else "",
        "points": [
            {"time": timestamp(at.minute * MINUTE_S), "memory_mib": at.memory_mib, "cores_percent": at.cores_percent}
            for at in points
        ],
    }


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handlers by command name, for the control socket."""
    return UsageCommands(live.controller).commands()


@dataclass(slots=True)
class UsageCommands:
    """The handlers of the commands about the use of cards."""

    controller: Controller

    def commands(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        return {"device-usage": self.report, "usage": self.usage}

    async def report(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-usage``: keep the report.

        Raises:
            UsageError: the report is invalid.
        """
        report = await asyncio.to_thread(read_usage, arguments)  # the time grows with the number of containers
        self.controller.card_usage.publish(report)
        return {"stale_after_s": stale_after_s(report)}

    async def usage(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``usage``; argument ``history``: whether to include the last hour.

        Raises:
            UsageError: the argument has the wrong type.
        """
        history, controller = argument(arguments, "history", False), self.controller
        await controller.gone.check(controller.devices.holdings.having_cards(controller.node))
        usage, plugin, node = controller.card_usage, controller.device_plugin, controller.node
        found, given = usage_rows(controller), controller.devices.ids_given(controller.device_plugin.ids())
        report, of_plugin = usage.current, plugin.report if plugin.runs else None
        series = [(key, tuple(points)) for key, points in usage.history.series(time.time())] if history else []
        head = {
            "source": "daemon",
            "time": timestamp(time.time()),
            "version": __version__,
            "pid": os.getpid(),
            "guarded": controller.devices.rules is not None,
            "watcher": _watcher(usage),
            "node": {"cpu_ratio": controller.node_use.cpu_ratio(), "memory_ratio": controller.node_use.memory_ratio()},
        }

        def answer() -> Encoded:
            values = to_values(node, found, report, of_plugin, given)
            return encoded({**head, **values, "history": [_series(*each, node) for each in series]})

        return await asyncio.to_thread(answer)


def usage_rows(controller: Controller) -> list[CardRow]:
    """Return the containers with cards, and their use according to the last report if it is recent."""
    rules = controller.devices.rules
    holdings, report = controller.devices.holdings, controller.card_usage.current
    return list(rows(controller.node, holdings, rules, report)) if rules else []
