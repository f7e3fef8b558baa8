"""The node label of NVIDIA's config manager: it chooses one of the configurations of a ConfigMap, at run time.

The order is NVIDIA's: the label, an option, the key ``default``, the only key. Where NVIDIA's falls back to an empty
file, the node's own file counts. What cannot be chosen changes nothing, and neither does a ConfigMap, or a Node, that
is gone: the daemon keeps the text on the node.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from criproxy.agent.changes import any_changed
from criproxy.agent.kubernetes.request import Object
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.troubles import Troubles
from criproxy.devices.plugin.named_configuration import MAX_TEXT_CHARS, NamedConfiguration
from criproxy.errors import CriproxyError
from criproxy.model.text.bounded import bounded_texts
from criproxy.process.control_client import DaemonRefuses
from criproxy.process.tasks import Backoff

LABEL: Final = "nvidia.com/device-plugin.config"
DEFAULT: Final = "default"
COMMAND: Final = "device-configuration"
MOST_NAMED = 8
GAP_S = 5.0
"""The shortest time between two choices: with each, the device plugin may offer other resources."""


def choose(label: str, names: Mapping[str, object], default: str = "") -> tuple[str | None, str]:
    """Return the name of the configuration; "" for the node's own file, None with the reason if none can be chosen.

    Args:
        label: the value of the node's label; empty: it has none.
        names: the keys of the ConfigMap.
        default: the name that an option gives for nodes without the label; empty: none.
    """
    there = ", ".join(bounded_texts(sorted(names), MOST_NAMED)) or "none"
    for wanted, what in ((label, f"the node label {LABEL}"), (default, "the option --default-device-configuration")):
        if wanted in names:
            return wanted, ""
        if wanted:
            return None, f"{what} names the configuration {wanted!r}, but there are only {there}"
    if DEFAULT in names:
        return DEFAULT, ""
    return (next(iter(names)) if len(names) == 1 else ""), ""


def _has(present: Mapping[str, Any], wanted: NamedConfiguration) -> bool:
    """Whether the daemon, whose answer is *present*, has what it should have."""
    if not wanted.name:
        return not present["name"]
    return all(present[key] == getattr(wanted, key) for key in ("name", "hash", "source", "node_uid"))


@dataclass(slots=True, repr=False)
class DeviceConfiguration:
    """Follows the label and the ConfigMap.

    Args:
        view: the daemon.
        node: the Node of this machine, its metadata.
        config_map: the ConfigMap with the configurations.
        place: its namespace and name, for people.
        troubles: gets why nothing can be chosen.
        tell: called with a reason, a message and whether it is a warning, for an Event about the Node.
        default: the name for nodes without the label; empty: NVIDIA's fallbacks.
        gap_s: the shortest time between two choices.
    """

    view: NodeView
    node: Watched
    config_map: Watched
    place: str
    troubles: Troubles
    tell: Callable[[str, str, bool], None]
    default: str = ""
    gap_s: float = GAP_S
    _instance: str = ""
    """Of the daemon that was asked last."""
    _present: Mapping[str, Any] = field(default_factory=dict)
    _refused: tuple[NamedConfiguration, str] | None = None
    """What this daemon has refused, and why."""
    _told: str = ""

    async def run(self) -> None:
        """Follow for ever."""
        pauses, followed = Backoff(1.0, 60.0), (self.view, self.node, self.config_map)
        while True:
            seen = [each.version for each in followed]
            try:
                await self._look()
                pauses.reset()
            except CriproxyError as error:
                self.troubles.set("device-configuration", f"the daemon does not take a configuration of cards: {error}")
                await asyncio.sleep(min(pauses.pause_s(), 12 * self.gap_s))
                continue
            await any_changed(followed, seen)
            await asyncio.sleep(self.gap_s)

    async def _look(self) -> None:
        if not self.config_map.known and (problem := self.config_map.problem):
            self.troubles.set("device-configuration", f"configurations of cards are unknown: {problem}")
        if not (self.view.last and not self.view.problem and self.node.known and self.config_map.known):
            return
        if self._instance != self.view.last["instance"]:
            self._present, self._refused = await self.view.ask(COMMAND), None
            self._instance = str(self.view.last["instance"])
        wanted, problem = self._wanted()
        if wanted is not None and not _has(self._present, wanted):
            problem = await self._send(wanted)
        self.troubles.set("device-configuration", problem)
        if problem and problem != self._told:
            self.tell("DeviceConfigurationRefused", problem, True)
        self._told = problem

    def _wanted(self) -> tuple[NamedConfiguration | None, str]:
        """Return what the daemon should have, or None and why it keeps what it has."""
        node = next(iter(self.node.objects.values()), None)
        config_map = next(iter(self.config_map.objects.values()), None)
        now = self._present["name"]
        kept = f"the configuration {now} stays" if now else "the node's own file stays"
        if node is None:
            return None, ""  # said by what writes to the Node
        if config_map is None:
            return None, f"there is no ConfigMap {self.place} with configurations of cards: {kept}"
        label, uid = _label(node), str(node["metadata"].get("uid", ""))
        texts = config_map.get("data") or {}
        name, problem = choose(label, texts, self.default)
        if name is None:
            return None, f"{problem} in the ConfigMap {self.place}: {kept}"
        if now and self._present["node_uid"] != uid and not label and name != now:
            text = f"the Node was made anew, without the label {LABEL}: {kept} until it has one"
            return None, text
        text = str(texts.get(name, ""))
        if len(text) > MAX_TEXT_CHARS:
            return None, f"configuration {name} of the ConfigMap {self.place} is longer than {MAX_TEXT_CHARS:,}: {kept}"
        return NamedConfiguration(name=name, text=text, source=f"ConfigMap {self.place}", node_uid=uid), ""

    async def _send(self, wanted: NamedConfiguration) -> str:
        """Give it to the daemon; return why it refuses it."""
        if self._refused and self._refused[0] == wanted:
            return self._refused[1]
        try:
            self._present = await self.view.ask(COMMAND, asdict(wanted) if wanted.name else {"name": ""})
        except DaemonRefuses as error:
            if error.unknown:
                raise
            self._refused = wanted, f"the daemon refuses it, and the former one stays in effect: {error}"
            return self._refused[1]
        text = "the node's own file counts for the cards"
        if wanted.name:
            text = f"configuration {wanted.name} of the {wanted.source}, hash {wanted.hash}, counts for the cards"
        self.tell("DeviceConfigurationChosen", text, False)
        return ""


def _label(node: Object) -> str:
    return str((node["metadata"].get("labels") or {}).get(LABEL, ""))
