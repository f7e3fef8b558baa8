"""The commands of the control socket; their handlers are imported when the first command arrives."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from criproxy.daemon.behind import Behind, KubeletCpus
from criproxy.daemon.start import Started
from criproxy.observe.bypass import Bypass
from criproxy.observe.control_socket import Command
from criproxy.wire.stats import Stats

if TYPE_CHECKING:
    from criproxy.api.device_plugin import DevicePluginCommands
    from criproxy.api.page.access import Access
    from criproxy.api.recorder import Recorder
    from criproxy.api.situation import Situations
    from criproxy.api.usage import UsageCommands
    from criproxy.model.notices import Notice

QUERIES = ("status", "explain", "devices", "names", "who", "events", "fit")
"""How things are."""
USAGE = ("device-usage", "usage")
"""The watcher's report of the use of cards, and the query of it."""
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

    started: Started
    bypass: Bypass
    behind: Behind
    kubelet_cpus: KubeletCpus
    stats: Sequence[Stats] = ()
    """What the proxies have counted."""
    started_s: float = field(default_factory=time.time)
    page_access: "Access | None" = None
    """Of the page, if it is served."""
    _recorder: "Recorder | None" = None
    _situations: "Situations | None" = None
    _device_plugin: "DevicePluginCommands | None" = None
    _usage: "UsageCommands | None" = None

    def table(self) -> dict[str, Command]:
        """Return the handlers by command name, for the control socket."""
        table = {command: partial(self._query, command) for command in QUERIES}
        table |= {command: partial(self._of_device_plugin, command) for command in DEVICE_PLUGIN}
        table |= {command: partial(self._of_usage, command) for command in USAGE}
        switch = self.started.controller.policy_switch
        reload, try_out = self.started.reload, self.started.try_out
        try_out.why_not = self._why_not_try
        changes = {"reload": reload.command, "reload-try": try_out.begin, "reload-keep": try_out.keep}
        changes["reload-dry-run"] = self._rehearse
        return {"bypass": self.bypass.command, "release": switch.command, "record": self._record, **changes, **table}

    def _why_not_try(self) -> str:
        return f"{self.bypass.sentence}: nothing could be seen of a try" if self.bypass.on else ""

    async def _rehearse(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        await asyncio.to_thread(import_module, "criproxy.api.rehearsal")
        from criproxy.api.rehearsal import Rehearsals

        return await Rehearsals(self.started.controller, self.started.reload).command(arguments)

    async def _query(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        await asyncio.to_thread(import_module, "criproxy.api.queries")
        from criproxy.api.queries import Answers
        from criproxy.api.situation import Situations

        # A shell prompt waits for `names`.
        unreachable = await self.behind.unreachable() if command != "names" else ""
        self._situations = self._situations or Situations(self.started.controller)
        runtime = self.behind.endpoints.runtime
        answers = Answers(self._situations, partial(self._notices, unreachable), self.started_s, self.stats, runtime)
        return await answers.commands()[command](arguments)

    async def _of_device_plugin(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if self._device_plugin is None:
            await asyncio.to_thread(import_module, "criproxy.api.device_plugin")
            from criproxy.api.device_plugin import DevicePluginCommands

            self._device_plugin = DevicePluginCommands(self.started.controller)
        return await self._device_plugin.commands()[command](arguments)

    async def _of_usage(self, command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if self._usage is None:
            await asyncio.to_thread(import_module, "criproxy.api.usage")
            from criproxy.api.usage import UsageCommands

            self._usage = UsageCommands(self.started.controller)
        return await self._usage.commands()[command](arguments)

    async def _record(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        await asyncio.to_thread(import_module, "criproxy.api.recorder")
        from criproxy.api.recorder import Recorder

        self._recorder = self._recorder or Recorder(self.started.controller)
        return await self._recorder.command(arguments)

    def _notices(self, unreachable: str) -> "list[Notice]":
        """Return the notices of parts outside the controller."""
        from criproxy.model.notices import Notice

        bypass, unkept = self.bypass, self.started.keeping.problem
        found = [Notice("bypass", f"{bypass.sentence} ({bypass.reason}; since {bypass.since})")] if bypass.on else []
        if unreachable:
            found.append(Notice("runtime", unreachable))
        if self.behind.problem:
            found.append(Notice("criproxy-behind", self.behind.problem))
        if other := self.kubelet_cpus.difference:
            found.append(Notice("kubelet-reserved", other, wrong=False))
        if unwritten := self.started.pod_files.problem:
            found.append(Notice("pod-files", f"the files of pods with cards are out of date: {unwritten}"))
        if unkept:
            text = f"after a restart, criproxy cannot fall back to the current policy file: {unkept}"
            found.append(Notice("config-not-kept", text))
        if self.page_access is not None and (closed := self.page_access.problem):
            found.append(Notice("page-token", f"nobody can open the page of --http: {closed}"))
        return found
