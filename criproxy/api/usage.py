"""The commands ``device-usage``, by which the watcher reports who uses cards, and ``usage``, which shows that."""

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from criproxy import __version__
from criproxy.control.controller import Controller
from criproxy.errors import UsageError
from criproxy.model.notices import Values, timestamp
from criproxy.observe.control_socket import Command, Encoded
from criproxy.usage.report_validation import BadUsage, read_usage, stale_after_s
from criproxy.usage.rows import CardRow, rows
from criproxy.views import usage as view


@dataclass(slots=True)
class UsageCommands:
    """What is reported and asked of the use of cards."""

    controller: Controller

    def commands(self) -> dict[str, Command]:
        """By name, for the control socket."""
        return {"device-usage": self.report, "usage": self.usage}

    async def report(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``device-usage``: keep the report.

        Raises:
            UsageError: it is none.
        """
        try:
            report = await asyncio.to_thread(read_usage, arguments)  # its time grows with the containers
        except BadUsage as error:
            raise UsageError(str(error)) from error
        self.controller.card_usage.publish(report)
        return {"stale_after_s": stale_after_s(report)}

    async def usage(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``usage``; argument ``history``: whether the last hour is wanted, too.

        Raises:
            UsageError: if the argument is of another type.
        """
        history = arguments.get("history", False)
        if not isinstance(history, bool):
            raise UsageError(f"history: must be a bool, not {history!r}")
        controller = self.controller
        await controller.gone.look(controller.devices.holdings.having_cards(controller.node))
        watched, node = watched_now(controller, history=history), controller.node
        found, given = usage_rows(controller), controller.devices.ids_given(controller.device_plugin.ids())
        head = {
            "source": "daemon",
            "time": timestamp(time.time()),
            "version": __version__,
            "pid": os.getpid(),
            "guarded": controller.devices.rules is not None,
        }
        return await asyncio.to_thread(lambda: _encoded({**head, **view.tell(node, found, watched, given)}))


def watched_now(controller: Controller, *, history: bool = False) -> view.Watched:
    """What is known of the use of cards and of the node at this moment."""
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
    """The containers with cards, and what they use by the last report while it is recent."""
    rules = controller.devices.rules
    holdings, report = controller.devices.holdings, controller.card_usage.current
    return list(rows(controller.node, holdings, rules, report)) if rules else []


def _encoded(values: Values) -> Encoded:
    return Encoded(json.dumps(values).encode())
