"""A scenario's policy and configuration → settings of our own, as if they had been written in a policy file.

This is the one place that knows how scenario files abbreviate the configuration of CRI-RM and nri-plugins, and what
is otherwise there: every namespace may use every annotation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from criproxy.config.document import Document
from criproxy.config.mistakes import Mistake, reported
from criproxy.config.settings import Settings, read_settings
from criproxy.errors import ConfigError
from criproxy.model.machine.topology import Topology
from criproxy.simulate.scenario.place import At

POLICIES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "podpools": ("pools", {}),
    "static-pools": ("pools", {}),
    "memtier": ("topology-aware", {}),
    "static-plus": (
        "static",
        {"exclusiveFor": ["Guaranteed", "Burstable"], "sharedRemainder": True, "preferIsolatedCPUs": True},
    ),
}
"""Policies of CRI-RM that are another's special case here, with the options that make it one."""
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
    translated = _translated(configuration, rules)
    document = Document({option: value for option, (value, _) in translated.items()})
    contents = read_settings(document, configuration.file, topology)
    if contents.settings is not None and not contents.unfit:
        return contents.settings
    # The places are needed now only, and to find them takes long in a long file.
    for option, (_, source) in translated.items():
        _copy_places(document, option, source)
    contents = read_settings(document, configuration.file, topology)
    raise Unusable(reported([*contents.wrong, *contents.unfit]))


def _translated(configuration: Configuration, rules: str) -> dict[str, tuple[object, At]]:
    """Options of a policy file, each with what the scenario has in its place."""
    source, given = configuration.source, configuration.options.entries() if configuration.options else {}
    policy, implied = POLICIES.get(configuration.policy, (configuration.policy, {}))
    options: dict[str, tuple[object, At]] = {
        **{option: (value, source) for option, value in implied.items()},
        "policy": (policy, source),
        "rules": (rules, source),
        "annotations": ({"allow": {"*": ["*"]}}, source),
    }
    for key, at in given.items():
        if key in ("available", "reserved"):
            text = at.text()
            cpu = f"cpuset:{text.removeprefix(CGROUP)}" if text.startswith(CGROUP) else text
            options[f"{key}Resources"] = {"cpu": cpu}, at
        else:
            options[key] = at.data, at
    return options


def _copy_places(document: Document, option: str, source: At) -> None:
    """Let what is in *option* have the places that it has in the scenario."""
    whole, depth = source.document, len(source.path)
    for places, theirs in ((document.keys, whole.keys), (document.values, whole.values)):
        places[(option,)] = whole.place(source.path, of_key=places is document.keys)
        inside = (path for path in theirs if len(path) > depth and path[:depth] == source.path)
        places |= {(option, *path[depth:]): theirs[path] for path in inside}
