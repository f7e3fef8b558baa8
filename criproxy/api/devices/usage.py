"""The commands ``device-usage``, which reports the use of cards, and ``usage``, which returns it."""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from criproxy import __version__
from criproxy.api.control_socket import Command, Encoded
from criproxy.api.live import LiveNode, encoded
from criproxy.api.views.devices import usage as view
from criproxy.devices.usage.report_validation import BadUsage, read_usage, stale_after_s
from criproxy.devices.usage.rows import CardRow, rows
from criproxy.errors import UsageError
from criproxy.model.text.notices import timestamp
from criproxy.node.controller import Controller


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
        try:
            report = await asyncio.to_thread(read_usage, arguments)  # the time grows with the number of containers
        except BadUsage as error:
            raise UsageError(str(error)) from error
        self.controller.card_usage.publish(report)
        return {"stale_after_s": stale_after_s(report)}

    async def usage(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``usage``; argument ``history``: whether to include the last hour.

        Raises:
            UsageError: the argument has the wrong type.
        """
        history = arguments.get("history", False)
        if not isinstance(history, bool):
            raise UsageError(f"history: must be a bool, not {history!r}")
        controller = self.controller
        await controller.gone.check(controller.devices.holdings.having_cards(controller.node))
        watched, node = watched_now(controller, history=history), controller.node
        found, given = usage_rows(controller), controller.devices.ids_given(controller.device_plugin.ids())
        head = {
            "source": "daemon",
            "time": timestamp(time.time()),
            "version": __version__,
            "pid": os.getpid(),
            "guarded": controller.devices.rules is not None,
        }
        return await asyncio.to_thread(lambda: encoded({**head, **view.to_values(node, found, watched, given)}))


def watched_now(controller: Controller, *, history: bool = False) -> view.Watched:
    """Return the present use of cards and of the node."""
    usage, plugin, now_s = controller.card_usage, controller.device_plugin, time.time()
    return view.Watched(
        report=usage.report,
        reported_s=usage.reported_s,
        is_current=usage.is_current,
        plugin=plugin.report if plugin.runs else None,
        node_cpu_ratio=controller.node_use.cpu_ratio(),
        node_memory_ratio=controller.node_use.memory_ratio(),
        series=tuple((key, tuple(points)) for key, points in usage.history.series(now_s)) if history else (),
    )


def usage_rows(controller: Controller) -> list[CardRow]:
    """Return the containers with cards, and their use according to the last report if it is recent."""
    rules = controller.devices.rules
    holdings, report = controller.devices.holdings, controller.card_usage.current
    return list(rows(controller.node, holdings, rules, report)) if rules else []
