"""Selects one of several named files for a node: as NVIDIA's config-manager does, and in criproxy's own order."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError

DEFAULT = "default"
LABEL = "nvidia.com/device-plugin.config"
"""The node's label that names a file."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected file."""

    name: str
    """Its name in the directory; empty for an empty configuration."""
    reason: str
    """Why it was selected; for users."""


def config_names(names: Collection[str]) -> list[str]:
    """Return the *names* of a directory that are configurations, without those that a ConfigMap's volume adds."""
    return sorted(name for name in names if not name.startswith(".."))


def choose_as_config_manager(
    names: Collection[str], label: str, default: str, fallbacks: Sequence[str] = ("named", "single", "empty")
) -> Choice:
    """Choose a file as NVIDIA does: the node's *label*, or the *default* of its flag, or the first fallback that works.

    *names* are those of `config_names`; *label* and *default* are empty if they are not set.

    Raises:
        PluginConfigError: With the class ``file`` and NVIDIA's message.
    """
    if not names:
        raise _error("no configuration files available")
    if label:
        return _choose_existing(label, names, "the node's label names it")
    if default:
        if default not in names:
            raise _error("specified config  does not exist", f"this is {default}, the default")
        return Choice(default, "it is the given default")
    for fallback in fallbacks:
        choice = _fallback(fallback, names)
        if choice is not None:
            return choice
    raise _error("no config was set, no default was provided, and all fallbacks failed")


def _fallback(fallback: str, names: Collection[str]) -> Choice | None:
    match fallback:
        case "named":
            return Choice(DEFAULT, f"it is named {DEFAULT}") if DEFAULT in names else None
        case "single":
            return Choice(next(iter(names)), "it is the only one") if len(names) == 1 else None
        case "empty":
            return Choice("", "no earlier fallback found one")
    raise _error(f"unknown fallback strategy: {fallback}", "it can be named, single or empty")


def choose(names: Collection[str], explicit: str = "", hostname: str = "", groups: Sequence[str] = ()) -> Choice:
    """Choose a file in criproxy's order: an explicit name, the host's, a group's, `default`, the only one.

    Raises:
        PluginConfigError: With the class ``file``: none of these files exists.
    """
    if explicit:
        return _choose_existing(explicit, names, "the option names it")
    if hostname and hostname in names:
        return Choice(hostname, "it has the name of this host")
    for group in groups:
        if group in names:
            return Choice(group, f"this host is in the group {group}")
    if DEFAULT in names:
        return Choice(DEFAULT, f"it is named {DEFAULT}")
    if len(names) == 1:
        return Choice(next(iter(names)), "it is the only one")
    if not names:
        raise _error("no configuration files available")
    wanted = ", ".join(name for name in (hostname, *groups, DEFAULT) if name)
    raise _error(f"none of the files {', '.join(sorted(names))} is for this host", f"name one of them {wanted}")


def _choose_existing(name: str, names: Collection[str], reason: str) -> Choice:
    if name not in names:
        raise _error(f"specified config {name} does not exist", f"there are {', '.join(sorted(names)) or 'none'}")
    return Choice(name, reason)


def _error(text: str, advice: str = "") -> PluginConfigError:
    return PluginConfigError(text, mistake_class="file", advice=advice)
