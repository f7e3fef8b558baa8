"""The commands of the control socket; the modules with their handlers are imported when the first command arrives."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from criproxy.agent import QUERIES
from criproxy.daemon.problems import Problems
from criproxy.process.control_socket import Command

_LIVE = "criproxy.api.live"
DEVICE_PLUGIN = "criproxy.api.device_plugin"
_OF_USAGE = ("usage", "device-usage")
_OF_PLUGIN = ("free-cpus", "device-plugin", "device-inventory", "device-incident", "device-grants", "quota-incident")
MODULES: Mapping[str, Sequence[str]] = {
    _LIVE: [name for name in QUERIES if name not in _OF_USAGE],
    "criproxy.api.usage": _OF_USAGE,
    DEVICE_PLUGIN: _OF_PLUGIN,
    "criproxy.api.device_configuration": ("device-configuration",),
    "criproxy.api.recorder": ("record",),
    "criproxy.api.rehearsal": ("reload-dry-run",),
    "criproxy.api.agent": ("agent",),
}
"""Modules with a function `commands`, which takes the `LiveNode` and returns their handlers, and what these answer."""
NOTICES = ("device-plugin",)
"""The commands that count although their client no longer waits: the device plugin says that it ends, and ends."""
WAITING = ("agent",)
"""The commands that wait for a change."""
_AGENT = (*QUERIES, *WAITING, "reload", "reload-dry-run", "device-configuration")
"""What the agent may ask, beside `_NODE_POLICIES`."""
_NODE_POLICIES = ("reload-try", "reload-keep", "reload-back")
"""What the agent may only do with the content of NodePolicy objects."""


@dataclass(slots=True, repr=False)
class Commands:
    """Answers the commands."""

    problems: Problems
    _handlers: dict[str, Mapping[str, Command]] = field(default_factory=dict)
    """By module."""

    def __post_init__(self) -> None:
        self.problems.started.try_out.why_not = self._why_not_try

    def table(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        started, bypass = self.problems.started, self.problems.bypass
        try_out = started.try_out
        return {command: partial(self._answer, module, command) for module, of in MODULES.items() for command in of} | {
            "reload": started.reload.command,
            "reload-try": try_out.begin,
            "reload-keep": try_out.keep,
            "reload-back": try_out.back,
            "bypass": bypass.command,
            "release": self._release,
        }

    def queries(self) -> dict[str, Command]:
        """Return those of the handlers that change nothing."""
        return {command: handler for command, handler in self.table().items() if command in QUERIES}

    def agent(self) -> dict[str, Command]:
        """Return those of the handlers that the agent may use."""
        table, try_out = self.table(), self.problems.started.try_out
        only = {command: partial(try_out.for_node_policy, table[command]) for command in _NODE_POLICIES}
        return {command: table[command] for command in _AGENT} | only

    async def _release(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        controller = self.problems.started.controller
        answer = await controller.policy_switch.command(arguments)
        return answer | {"not_put_back": "" if arguments.get("undo") else controller.controls.problem}

    def _why_not_try(self) -> str:
        bypass = self.problems.bypass
        return f"{bypass.sentence}: nothing could be seen of a try" if bypass.on else ""

    async def _answer(self, module: str, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if module not in self._handlers:
            live = await self.problems.live()
            imported = await asyncio.to_thread(import_module, module)
            self._handlers.setdefault(module, imported.commands(live))
        return await self._handlers[module][command](arguments)
