"""The flags and variables with which a machine starts the device plugin; they override NVIDIA's file."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

UNIT_FILE = "etc/default/criproxy-device-plugin"
"""The environment file of the unit, below the host's root directory."""
OPTIONS = "CRIPROXY_DEVICE_PLUGIN_OPTIONS"
_CONFIG_FILE = "CONFIG_FILE"
"""A name that is too common to be read from the environment of `criproxy check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The settings that do not come from the policy file and NVIDIA's file."""

    env: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    """NVIDIA's flags without their dashes."""
    nvidia_config: str = ""
    """NVIDIA's file, or a directory of such files."""
    name: str = ""
    """The name of the file in the directory."""

    @property
    def notes(self) -> Iterator[str]:
        """Yield a note if flags or variables override NVIDIA's file."""
        from criproxy.deviceplugin.nvidia.settings import overrides

        if overriding := [override.source for override in overrides(self.flags, self.env)]:
            yield f"these flags and variables override NVIDIA's file: {' '.join(overriding)}"


def invocation_of(host_root: Path | None, environ: Mapping[str, str]) -> Invocation:
    """Return the invocation of the device plugin by its unit; variables in *environ* override those of the unit's file.

    Args:
        host_root: the root directory of the unit's file; None: the machine is ignored.
        environ: the environment of this process.
    """
    of_unit = variables(host_root / UNIT_FILE) if host_root is not None else {}
    env = of_unit | {name: value for name, value in environ.items() if name != _CONFIG_FILE}
    options = _parsed(of_unit.pop(OPTIONS, ""))
    named = options.get("nvidia_config") or of_unit.get(_CONFIG_FILE, "")
    from criproxy.cli.operate.device_plugin import nvidia_flags

    return Invocation(env=env, flags=nvidia_flags(dict(options)), nvidia_config=named, name=options.get("name") or "")


def variables(file: Path) -> dict[str, str]:
    """Return the variables in a unit's environment file; none if it is missing or invalid."""
    try:
        words = shlex.split(file.read_text(errors="replace"), comments=True)
    except (OSError, ValueError):
        return {}
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def _parsed(options: str) -> dict[str, Any]:
    """Parse the *options* of the program, by the names of their parameters; the program itself reports mistakes."""
    from criproxy.cli.operate.device_plugin import command

    try:
        words = shlex.split(options)
    except ValueError:
        return {}
    parent = click.get_current_context()  # has the names of --help, which click caches at the first use of a command
    with command.make_context("device-plugin", words, parent=parent, resilient_parsing=True) as context:
        return {name: value for name, value in context.params.items() if value is not None}
