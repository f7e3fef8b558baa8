"""A watcher of quotas for tests: the real judgement between made-up readings and the daemon's commands."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from criproxy.deviceplugin.usage.quota_judgement import Judgement
from criproxy.deviceplugin.usage.quota_verdicts import Key, Over, Verdict, limits_of
from criproxy.devices.plugin.plan import QuotaPlan
from criproxy.devices.usage.values import ContainerUse, Grant
from criproxy.errors import CriproxyError
from criproxy.model.text.plain import from_plain

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Asks the daemon a command of its control socket."""


@dataclass
class Watcher:
    """Does with each reading what the device plugin's process does; `restart` makes it forget everything."""

    ask: Ask
    kind: str = "nvidia"
    stop_timeout_s: float = 10.0
    plan: QuotaPlan = field(default_factory=QuotaPlan)
    kills: list[str] = field(default_factory=list)
    """The containers of which it was to kill a process."""
    _judgement: Judgement | None = None
    _pending: dict[Key, dict[str, Any]] = field(default_factory=dict)

    def restart(self) -> None:
        """It is another process now."""
        self._judgement, self._pending = None, {}

    async def read(self, at_s: float, **used_mib: int) -> None:
        """Judge one reading, by the names of pods, and report what has changed."""
        answer = await self.ask("device-grants", {})
        grants = tuple(from_plain(Grant, each) for each in answer["containers"])
        judgement = self._judgement or self._resumed(answer["incidents"])
        uses = [_use(grant, used_mib[grant.pod]) for grant in grants if grant.pod in used_mib]
        limits = [each for of_card in limits_of(grants).get(self.kind, {}).values() for each in of_card]
        self._judgement, verdicts = judgement.after(at_s, limits, uses)
        self._pending |= {verdict.key: self._arguments(verdict) for verdict in verdicts}
        for each in answer["incidents"]:
            self._confirm(each)
        for key, arguments in [*self._pending.items()]:
            with suppress(CriproxyError):
                answer = await self.ask("quota-incident", arguments)
                del self._pending[key]
                self.kills += [key.container_id] if answer["act"] else []

    def _confirm(self, incident: Mapping[str, Any]) -> None:
        """Say how it is now with an incident on which the daemon has not acted since its restart."""
        key = Key(incident["container_id"], incident["card"], incident["quantity"])
        if not incident["waits"] or key in self._pending:
            return
        names = ("container_id", "card", "quantity", "device_class")
        is_over = self._judgement is not None and key in self._judgement.incidents()
        more = {"used": incident["used"], "allowed": incident["allowed"], "since_s": 1.0, "action": incident["action"]}
        self._pending[key] = {name: incident[name] for name in names} | (more if is_over else {"over": False})

    def _resumed(self, incidents: list[Mapping[str, Any]]) -> Judgement:
        judgement = Judgement(kind=self.kind, plan=self.plan)
        for each in incidents:
            judgement = judgement.resumed(Key(each["container_id"], each["card"], each["quantity"]))
        return judgement

    def _arguments(self, verdict: Verdict) -> dict[str, Any]:
        key = verdict.key
        named = {"container_id": key.container_id, "card": key.card, "quantity": key.quantity}
        arguments = {**named, "device_class": self.kind}
        if not isinstance(verdict, Over):
            return {**arguments, "over": False}
        return {
            **arguments,
            "used": verdict.used,
            "allowed": verdict.allowed,
            "since_s": 1700000000.0 + verdict.over_since_s,
            "action": verdict.action,
            "stop_timeout_s": self.stop_timeout_s,
        }


def _use(grant: Grant, memory_mib: int) -> ContainerUse:
    return ContainerUse(container_id=grant.container_id, kind=grant.kind, card=grant.cards[0], memory_mib=memory_mib)
