"""The command `reload-dry-run` of the control socket: what a policy file would do if it came into force now."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from criproxy.api.live import LiveNode, encoded
from criproxy.api.views.candidates import moved
from criproxy.api.views.situation import identity, in_order
from criproxy.errors import CriproxyError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.text.notices import Values
from criproxy.model.text.sources import hash_of, node_policy_of
from criproxy.node.configuration.load import FALLBACK, BadFile, Configuration, candidate
from criproxy.node.configuration.policy_switch import event_for
from criproxy.node.configuration.reload import Reload
from criproxy.node.configuration.try_out import CHANGES_PLUGIN, changes_plugin, read_file
from criproxy.node.settings import Settings
from criproxy.placement.answers.rehearsal import rehearse
from criproxy.process.control_socket import Command, Encoded

NOTHING: Values = {"ends_release": False, "exclusive_cpus": "", "moved": [], "refused": []}
"""The effects of a file that is refused, or changes nothing about containers."""


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handler of the only command, for the control socket."""
    assert live.reload is not None  # as in every daemon
    return {"reload-dry-run": Rehearsals(live.reload).command}


@dataclass(frozen=True, slots=True)
class Rehearsals:
    """Answers the command; the node, the configuration and the disk stay as they are."""

    reload: Reload

    async def command(self, arguments: Mapping[str, Any]) -> Encoded:
        """Answer ``criproxy reload --dry-run``: arguments ``text`` and ``source`` of the file.

        Raises:
            UsageError: an argument is wrong.
            CriproxyError: the policy failed at the running containers.
        """
        text, source = read_file(arguments)
        context = self.reload.context
        return await asyncio.to_thread(self._answer, text, source, context.state.node, context.settings)

    def _answer(self, text: str, source: str, node: Node, settings: Settings) -> Encoded:
        head: Values = {"file": source, "hash": hash_of(text), "mistakes": [], "policy": "", "apply": "", "same": False}
        try:
            new = self._accepted(text, source, node, settings)
        except BadFile as error:
            return encoded({**head, **NOTHING, "accepted": False, "changes": [], "mistakes": str(error).splitlines()})
        apply = "all" if new.settings.apply_all else "new"
        head |= {"accepted": True, "policy": new.settings.policy_name, "apply": apply}
        is_same = new.settings.configuration == settings.configuration and settings.policy_name != FALLBACK
        effects = NOTHING if is_same else self._effects(new, node)
        changes = list(self._changes(new, text, settings))
        return encoded({**head, **effects, "same": is_same and not changes, "changes": changes})

    def _accepted(self, text: str, source: str, node: Node, settings: Settings) -> Configuration:
        """Return the configuration of a file; raise BadFile."""
        new = candidate(text, source, node.topology, settings)
        if node_policy_of(source) and changes_plugin(text, self.reload.current):
            raise BadFile(f"{source} {CHANGES_PLUGIN}")
        return new

    def _effects(self, new: Configuration, node: Node) -> Values:
        """Return which containers would move, which would be refused, and which CPUs would be exclusive."""
        event = event_for(node, new.settings, self.reload.in_place.places_for(new))
        try:
            found = rehearse(node, new.policy, event)
            after, texts = found.decision.node, {container.key: text for container, text in found.refused}
            refused = in_order(container for container, _ in found.refused)
            return {
                "ends_release": bool(found.before.released and not after.released),
                "exclusive_cpus": format_cpuset(after.exclusive_cpus),
                "moved": list(moved(found.before, found.decision)),
                "refused": [{**identity(each), "text": texts[each.key]} for each in refused],
            }
        except Exception as error:  # the policy may be an external one
            raise CriproxyError(f"{new.source}: the policy failed at the running containers: {error!r}") from error

    def _changes(self, new: Configuration, text: str, settings: Settings) -> Iterator[str]:
        """Yield one sentence for each change beside the places of containers."""
        if new.settings.policy_name != settings.policy_name:
            yield f"policy: {settings.policy_name or 'none'} → {new.settings.policy_name}"
        for name, word in (("on_error", "onError"), ("adopt", "adopt"), ("promote", "promote")):
            old, value = getattr(settings, name).value, getattr(new.settings, name).value
            if old != value:
                yield f"{word}: {old or 'default'} → {value or 'default'}"
        if new.settings.devices != settings.devices:
            yield "devices: other rules for containers that are created from then on"
        if changes_plugin(text, self.reload.current):
            options = "devices.plugin, the classes that it offers or podresources.socket"
            yield f"{options}: criproxy device-plugin reads them only from the policy file, so they cannot be tried"
