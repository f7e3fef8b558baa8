"""A scenario's policy and configuration → settings of our own, as if they had been written in a policy file.

This is the one place that knows how scenario files abbreviate the configuration of CRI-RM and nri-plugins.
"""

from dataclasses import dataclass, field
from pathlib import Path

from criproxy.config.document import Document
from criproxy.config.document import Path as Way
from criproxy.config.explain import names_of
from criproxy.config.mistake import Mistake, told
from criproxy.config.registry import find
from criproxy.config.settings import Settings, to_settings
from criproxy.errors import ConfigError
from criproxy.model.amounts import parse_milli
from criproxy.model.topology import Topology
from criproxy.sim.scenario.place import At

POLICIES = {"podpools": "pools", "static-pools": "pools"}
"""Policies of CRI-RM that are another's special case here."""
CGROUP = "cgroup with cpuset.cpus="
"""A scenario has no cgroups; what one would allow is what the policy finds there."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What one `start` of a policy is given."""

    policy: str
    """As in a policy file."""
    options: At | None
    """A group; None is one without entries."""
    source: At
    """What to blame for the rest."""
    file: Path
    """Which has it."""


class Unusable(ConfigError):
    """A configuration that the policy does not accept; a sentence for each reason."""

    def __init__(self, mistakes: list[Mistake]) -> None:
        super().__init__("; ".join(mistake.sentence for mistake in mistakes))
        self.line = min((mistake.line for mistake in mistakes if mistake.line), default=0)
        """The first that is to blame; 0 where none is known."""


def settings(configuration: Configuration, rules: str, topology: Topology) -> Settings:
    """The settings for a machine, which are checked as `criproxy check` does.

    Args:
        configuration: as the scenario says.
        rules: ``crirm`` or ``nri``.
        topology: the machine.

    Raises:
        Unusable: it cannot be used, with the lines of the scenario file.
    """
    document = _Translated().of(configuration, rules)
    found, mistakes = to_settings(document, configuration.file, topology)
    if found is None:
        raise Unusable(told(mistakes))
    return found


@dataclass(slots=True)
class _Translated:
    """A policy file in the making, whose values stay where the scenario file has them."""

    document: Document = field(default_factory=Document)

    def of(self, configuration: Configuration, rules: str) -> Document:
        name = POLICIES.get(configuration.policy, configuration.policy)
        self.document.data = {}
        self._put(("policy",), name, configuration.source)
        known = _names(name)
        if "rules" in known:
            self._put(("rules",), rules, configuration.source)
        for key, at in (configuration.options.entries() if configuration.options else {}).items():
            match key:
                case "available" | "reserved":
                    self._resource(f"{key}Resources", at, known)
                case _:
                    self._put((key,), at.data, at)
        return self.document

    def _resource(self, option: str, at: At, known: list[str]) -> None:
        text = at.text()
        if text.startswith(CGROUP):
            text = f"cpuset:{text.removeprefix(CGROUP)}"
        if option == "reservedResources" and option not in known:  # as long as only reservedCpus is there
            reserved = text.removeprefix("cpuset:")
            count = -(-parse_milli(text) // 1000) if reserved == text else 0
            self._put(("reservedCpus",), list(range(count)) if count else reserved, at)
            return
        self._put((option,), {"cpu": text}, at)
        self.document.values[option, "cpu"] = self.document.keys[option, "cpu"] = at.document.place(
            at.path, of_key=False
        )

    def _put(self, path: Way, value: object, at: At) -> None:
        """Set an option to *value*, which the scenario has at *at*."""
        self.document.data[path[0]] = value
        for places, theirs in ((self.document.keys, at.document.keys), (self.document.values, at.document.values)):
            places[path] = at.document.place(at.path, of_key=places is self.document.keys)
            depth = len(at.path)
            places |= {
                (*path, *there[depth:]): place
                for there, place in theirs.items()
                if there[:depth] == at.path and len(there) > depth
            }


def _names(policy: str) -> list[str]:
    try:
        return names_of(find(policy).options)
    except ConfigError:
        return []  # told together with what else is wrong
