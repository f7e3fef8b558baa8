"""The command `device-configuration`: the cluster has chosen, by name, a configuration of NVIDIA's device plugin.

The agent sends it; the daemon checks it and puts it into its state directory, where the device plugin finds it, at once
and after any restart. What has mistakes changes nothing. docs/device-plugin.md has the arguments and the answer.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from criproxy.api.live import LiveNode
from criproxy.api.views.situation import argument
from criproxy.devices.plugin.named_configuration import (
    FILE_NAME,
    MAX_FILE_BYTES,
    MAX_TEXT_CHARS,
    NamedConfiguration,
    from_json,
)
from criproxy.errors import ConfigError, CriproxyError, UsageError
from criproxy.host.patience import Hangs, Patience
from criproxy.model.text.bounded import bounded_text
from criproxy.process.control_socket import Command
from criproxy.process.logger import Log
from criproxy.store.files import remove, write_whole

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
"""What Kubernetes accepts as a key of a ConfigMap."""
DISK_S = 10.0
"""How long the disk may take."""
MOST_MISTAKES = 10


def commands(live: LiveNode) -> Mapping[str, Command]:
    """Return the handler of the only command, for the control socket."""
    assert live.reload is not None  # as in every daemon
    log = live.controller.context.log
    return {"device-configuration": DeviceConfigurations(live.reload.in_place.state_dir, log).command}


@dataclass(slots=True, repr=False)
class DeviceConfigurations:
    """Answers the command.

    Args:
        state_dir: the daemon's.
        log: gets a line for each change.
    """

    state_dir: Path
    log: Log
    _patience: Patience = field(default_factory=Patience)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Answer the command: without ``name``, nothing changes; with an empty one, the node's own file counts again.

        Returns:
            ``name``, ``hash``, ``source`` and ``node_uid`` of what is chosen; all empty if nothing is.

        Raises:
            UsageError: an argument is wrong.
            CriproxyError: the text has mistakes, or the disk fails; what was chosen before still counts.
        """
        async with self._one:
            if "name" in arguments:
                await self._choose(arguments)
            now = await self._on_disk("read", partial(_read, self.state_dir / FILE_NAME))
        names = ("name", "hash", "source", "node_uid")
        return {name: str(getattr(now, name)) if now else "" for name in names}

    async def _choose(self, arguments: Mapping[str, Any]) -> None:
        given = {name: argument(arguments, name, "") for name in ("name", "text", "source", "node_uid")}
        if not given["name"]:
            await self._on_disk("remove", partial(remove, self.state_dir, FILE_NAME))
            self.log.info("the device plugin's configuration is no longer chosen in the cluster")
            return
        if not NAME.fullmatch(given["name"]):
            raise UsageError(f"name: must be a key of a ConfigMap, not {given['name']!r:.80}")
        chosen = NamedConfiguration(**{**given, "source": bounded_text(given["source"])})
        if len(chosen.text) > MAX_TEXT_CHARS:
            raise UsageError(f"text: must have at most {MAX_TEXT_CHARS:,} characters, not {len(chosen.text):,}")
        await asyncio.to_thread(_check, chosen)
        await self._on_disk("write", partial(write_whole, self.state_dir, FILE_NAME, chosen.to_json()))
        text = "the device plugin's configuration was chosen in the cluster"
        self.log.info(text, name=chosen.name, hash=chosen.hash, source=chosen.source)

    async def _on_disk(self, verb: str, work: Callable[[], T]) -> T:
        try:
            return await self._patience.wait(f"to {verb} {self.state_dir / FILE_NAME}", work, DISK_S)
        except Hangs as error:
            raise CriproxyError(str(error)) from None
        except OSError as error:
            raise CriproxyError(f"{self.state_dir / FILE_NAME}: {error.strerror or error}") from error


def _check(chosen: NamedConfiguration) -> None:
    """Raise ConfigError with the mistakes in a text; imports what the device plugin reads it with."""
    from criproxy.deviceplugin.configuration.nvidia_file import read

    found = read(chosen.text, (), Path(chosen.title))
    if found.is_empty:
        raise ConfigError(f"{chosen.title} is empty; for NVIDIA's defaults write 'version: v1'")
    if found.mistakes:
        raise ConfigError("\n".join(found.mistakes[:MOST_MISTAKES]))


def _read(file: Path) -> NamedConfiguration | None:
    # What is not ours counts as nothing, and is replaced.
    with suppress(FileNotFoundError, ConfigError), file.open("rb") as stream:
        return from_json(stream.read(MAX_FILE_BYTES))
    return None
