"""The commands of the control socket; their handlers are imported when the first command arrives."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from criproxy.api.control_socket import Command
from criproxy.daemon.problems import Problems
from criproxy.node.controller import Controller

if TYPE_CHECKING:
    from criproxy.api.devices.device_plugin import DevicePluginCommands
    from criproxy.api.devices.usage import UsageCommands
    from criproxy.api.recorder import Recorder

QUERIES = ("status", "explain", "devices", "names", "who", "events", "fit")
"""How things are."""
DEVICE_PLUGIN = (
    "free-cpus",
    "device-plugin",
    "device-inventory",
    "device-incident",
    "device-grants",
    "quota-incident",
)
"""The device plugin's commands; it waits only milliseconds for the answers."""
NOTICES = ("device-plugin",)
"""The commands that count although their client no longer waits: the device plugin says that it ends, and ends."""


@dataclass(slots=True, repr=False)
class Commands:
    """Answers the commands."""

    problems: Problems
    _recorder: "Recorder | None" = None
    _device_plugin: "DevicePluginCommands | None" = None
    _usage: "UsageCommands | None" = None

    def table(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        table: dict[str, Command] = {command: partial(self._of_device_plugin, command) for command in DEVICE_PLUGIN}
        table["device-usage"] = partial(self._of_usage, "device-usage")
        started, bypass = self.problems.started, self.problems.bypass
        switch, reload, try_out = started.controller.policy_switch, started.reload, started.try_out
        try_out.why_not = self._why_not_try
        table |= {"reload": reload.command, "reload-try": try_out.begin, "reload-keep": try_out.keep}
        table |= {"reload-dry-run": self._rehearse, "bypass": bypass.command, "release": switch.command}
        return {"record": self._record, **table, **self.queries()}

    def queries(self) -> dict[str, Command]:
        """Return those of the handlers that change nothing."""
        return {command: partial(self._query, command) for command in QUERIES} | {
            "usage": partial(self._of_usage, "usage")
        }

    @property
    def _controller(self) -> Controller:
        return self.problems.started.controller

    def _why_not_try(self) -> str:
        bypass = self.problems.bypass
        return f"{bypass.sentence}: nothing could be seen of a try" if bypass.on else ""

    async def _rehearse(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        await asyncio.to_thread(import_module, "criproxy.api.rehearsal")
        from criproxy.api.rehearsal import Rehearsals

        return await Rehearsals(self._controller, self.problems.started.reload).command(arguments)

    async def _query(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        problems = self.problems
        situations = await problems.situations()
        from criproxy.api.queries import Answers

        notices = await problems.beside() if command != "names" else []  # for which a shell prompt waits
        runtime = problems.behind.endpoints.runtime
        answers = Answers(situations, lambda: notices, problems.started_s, problems.stats, runtime)
        return await answers.commands()[command](arguments)

    async def _of_device_plugin(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if self._device_plugin is None:
            await asyncio.to_thread(import_module, "criproxy.api.devices.device_plugin")
            from criproxy.api.devices.device_plugin import DevicePluginCommands

            self._device_plugin = DevicePluginCommands(self._controller)
        return await self._device_plugin.commands()[command](arguments)

    async def _of_usage(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if self._usage is None:
            await asyncio.to_thread(import_module, "criproxy.api.devices.usage")
            from criproxy.api.devices.usage import UsageCommands

            self._usage = UsageCommands(self._controller)
        return await self._usage.commands()[command](arguments)

    async def _record(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        await asyncio.to_thread(import_module, "criproxy.api.recorder")
        from criproxy.api.recorder import Recorder

        self._recorder = self._recorder or Recorder(self._controller)
        return await self._recorder.command(arguments)
