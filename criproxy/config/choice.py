"""Choosing the policy file of this node: the named file, or of a directory the node's, its group's, or the default.

A node's group is what CRI-RM takes from a node label. criproxy does not ask the API server: the label is the only line
of `GROUP_FILE`, which the setup of the node writes.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from criproxy.config.reading.files import read_text
from criproxy.errors import ConfigError

GROUP_FILE = Path("/etc/criproxy/group")
DEFAULT_NAME = "default.yaml"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""What host names and values of labels look like."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy file, and why it is this one."""

    file: Path
    reason: str
    """Such as ``the group is edge``."""


def choose(path: Path, hostname: str, group: str | None = None) -> Choice:
    """*path* itself; if it is a directory: ``HOSTNAME.yaml`` in it, else ``group-GROUP.yaml``, else ``default.yaml``.

    Args:
        path: a file or a directory.
        hostname: this node's.
        group: the node's; None takes it from `GROUP_FILE`, where there is one.

    Raises:
        ConfigError: the directory has none of them, or the names cannot be names of files.
    """
    if not os.path.isdir(path):  # noqa: PTH112 - is_dir() raises for a name that is too long
        return Choice(path, "it was named")
    if group is None:
        group = read_group(GROUP_FILE)
    candidates = {_name("host name", hostname): f"the host name is {hostname}"}
    if group:
        candidates[f"group-{_name('group', group)}"] = f"the group is {group}"
    candidates[DEFAULT_NAME] = "it has no file for this host name or group"
    for name, reason in candidates.items():
        # A broken link counts: the next candidate would silently be another policy.
        if os.path.lexists(path / name):
            return Choice(path / name, reason)
    raise ConfigError(f"{path}: has no policy file for this node; criproxy looked for {', '.join(candidates)}")


def read_group(file: Path) -> str | None:
    """The group that *file* names; None where it does not exist.

    Raises:
        ConfigError: it can be written by others, or holds more than one word.
    """
    if not os.path.lexists(file):
        return None
    text, mistakes = read_text(file)
    if mistakes:
        raise ConfigError("\n".join(mistake.located(file) for mistake in mistakes))
    words = (text or "").split()
    if len(words) != 1:
        text = "must contain one word, the group of this node; remove the file if the node is in no group"
        raise ConfigError(f"{file}: {text}")
    return words[0]


def why_no_name(name: str) -> str:
    """Why *name* can be neither a host's nor a group's; empty where it can."""
    if _NAME.fullmatch(name):
        return ""
    return (
        f"{name[:80]!r} cannot be part of the name of a policy file: "
        "it must be letters, digits, '-', '_' and '.', with a letter or digit first and last"
    )


def _name(what: str, name: str) -> str:
    if wrong := why_no_name(name):
        raise ConfigError(f"the {what} {wrong}")
    return f"{name}.yaml"
