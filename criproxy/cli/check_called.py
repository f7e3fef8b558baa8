"""How the device plugin of a machine is called: its flags and variables count more than NVIDIA's file."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

UNIT_FILE = "etc/default/criproxy-device-plugin"
"""Below the host's root: where the unit takes variables and options from."""
OPTIONS = "CRIPROXY_DEVICE_PLUGIN_OPTIONS"
_CONFIG_FILE = "CONFIG_FILE"
"""Too common a name to be taken from the environment of whoever calls `criproxy check`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What counts beside the files."""

    env: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    """NVIDIA's flags."""
    nvidia_config: str = ""
    """NVIDIA's file, or a folder of such."""
    name: str = ""
    """Of the file in the folder."""

    @property
    def notes(self) -> Iterator[str]:
        """That something counts more than NVIDIA's file."""
        from criproxy.nvidia.flags import VARIABLES

        known = VARIABLES["plugin"]
        if said := [*self.arguments, *(f"{name}={value}" for name, value in self.env.items() if name in known)]:
            yield f"these flags and variables override NVIDIA's file: {' '.join(said)}"


def called(host_root: Path | None, environ: Mapping[str, str]) -> Called:
    """How the unit calls the plugin, and what *environ* says in the place of the unit's file.

    Args:
        host_root: above the unit's file; None: no machine is looked at.
        environ: of this process.
    """
    of_unit = variables(host_root / UNIT_FILE) if host_root is not None else {}
    env = of_unit | {name: value for name, value in environ.items() if name != _CONFIG_FILE}
    options = _parsed(of_unit.pop(OPTIONS, ""))
    named = options.get("nvidia_config") or of_unit.get(_CONFIG_FILE, "")
    from criproxy.cli.device_plugin import nvidia_arguments

    arguments = tuple(nvidia_arguments(dict(options)))
    return Called(env=env, arguments=arguments, nvidia_config=named, name=options.get("name") or "")


def variables(file: Path) -> dict[str, str]:
    """What a unit's environment file sets; nothing where there is none, or it cannot be understood."""
    try:
        words = shlex.split(file.read_text(errors="replace"), comments=True)
    except (OSError, ValueError):
        return {}
    return {name: value for name, equals, value in (word.partition("=") for word in words) if equals}


def _parsed(options: str) -> dict[str, Any]:
    """The *options* of the program by the names of their parameters; what is wrong with them, the program says."""
    from criproxy.cli.device_plugin import command

    try:
        words = shlex.split(options)
    except ValueError:
        return {}
    parent = click.get_current_context()  # has the names of --help, which a command remembers from its first use
    with command.make_context("device-plugin", words, parent=parent, resilient_parsing=True) as context:
        return {name: value for name, value in context.params.items() if value is not None}
