"""Selects one of several named files for a node."""

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
