"""The machine of `criproxy check`, and the flags and variables with which its unit starts the device plugin."""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from criproxy.cli.operate.device_plugin import command, nvidia_flags
from criproxy.deviceplugin.nvidia.settings import overrides
from criproxy.install.paths import PLUGIN_DEFAULTS, UNIT_OPTIONS
from criproxy.install.texts import environment_of, unclosed_quote

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
    mistake: str = ""
    """Why the unit would not start with its environment file; empty if it would."""

    @property
    def notes(self) -> Iterator[str]:
        """Yield a note if flags or variables override NVIDIA's file."""
        if overriding := [override.source for override in overrides(self.flags, self.env)]:
            yield f"these flags and variables override NVIDIA's file: {' '.join(overriding)}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """The machine for which policy files are checked."""

    host_root: Path
    has_machine: bool
    """Whether the machine is checked, too; else its files are read as far as they exist."""
    hostname: str
    group: str | None
    """None: the group in the file of the node's group."""
    nri: bool = False
    """Whether criproxy is to be a plugin of the runtime there."""

    @property
    def root(self) -> Path | None:
        """The root of the machine's files; None if only the policy files are checked."""
        return self.host_root if self.has_machine else None

    @cached_property
    def invocation(self) -> Invocation:
        """How its unit starts the device plugin; variables of this process override those of the unit's file."""
        option = UNIT_OPTIONS[PLUGIN_DEFAULTS]
        of_unit, mistake = variables(self.root / PLUGIN_DEFAULTS[1:]) if self.root is not None else ({}, "")
        env = of_unit | {name: value for name, value in os.environ.items() if name != _CONFIG_FILE}
        options, wrong = _parsed(of_unit.pop(option, ""))
        return Invocation(
            env=env,
            flags=nvidia_flags(dict(options)),
            nvidia_config=options.get("nvidia_config") or of_unit.get(_CONFIG_FILE, ""),
            name=options.get("name") or "",
            mistake=mistake or (f"{self.root}{PLUGIN_DEFAULTS}: {option}: {wrong}" if wrong else ""),
        )


def variables(file: Path) -> tuple[dict[str, str], str]:
    """Return the variables in a unit's environment file, and what is wrong with it; none if it is missing."""
    if not os.path.lexists(file):
        return {}, ""
    if not file.is_file():  # reading a pipe may never end
        return {}, f"{file}: it is not a regular file"
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        return {}, f"{file}: {error}"
    line = unclosed_quote(text)
    return ({}, f"{file}:{line}: nothing closes the quote") if line else (environment_of(text), "")


def _parsed(options: str) -> tuple[dict[str, Any], str]:
    """Parse the *options* of the program; return them by the names of their parameters, and what is wrong with them."""
    try:
        words = shlex.split(options)
    except ValueError as error:
        return {}, str(error)
    parent = click.get_current_context()  # has the names of --help, which click caches at the first use of a command
    try:
        with command.make_context("device-plugin", words, parent=parent) as context:
            return {name: value for name, value in context.params.items() if value is not None}, ""
    except click.UsageError as error:
        return {}, error.format_message()
    except click.exceptions.Exit:
        return {}, "an option such as --help ends the program at once"
