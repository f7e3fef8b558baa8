"""The notes of `criproxy check` about settings that are valid, but may not be intended."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from criproxy.cli.offline.check_invocation import variables

if TYPE_CHECKING:
    from pydantic import BaseModel

    from criproxy.config.settings import Common
    from criproxy.devices.options.options import DeviceOptions
    from criproxy.model.machine.topology import Topology
    from criproxy.placement.options.policy_options import Options

DEFAULTS = {
    "etc/default/criproxy": "CRIPROXY_OPTIONS",
    "etc/default/criproxy-device-plugin": "CRIPROXY_DEVICE_PLUGIN_OPTIONS",
}
"""The environment files of the units, below the host's root directory, and the variables with the options."""
_THEN = {"keep": "may get those of the earlier pod", "hide": "get none", "fail": "are refused"}
"""What happens to containers that request cards without evidence, if a pod had their pod's name, by `onNoEvidence`."""
_UNLISTED = {**_THEN, "keep": "see the cards that they request"}
"""The same for containers that podresources does not list."""


_EMPTY = {
    "devices": (
        "criproxy leaves devices alone: write 'devices: {}' to hide cards from containers to which none is allocated"
    ),
    "devices.plugin": ("the device plugin offers no cards: write 'plugin: {}' to offer cards with the default options"),
    "devices.plugin.labels": "criproxy writes no labels: write 'labels: {}' to write them with the default options",
}
"""Sections that are off without a value, and on with ``{}`` → what follows, and how to switch them on."""


def empty_notes(common: "Common") -> Iterator[str]:
    """Yield a note about a section that the file names and gives no value: all its lines may be comments."""
    for path, then in _EMPTY.items():
        group: BaseModel | None = common
        *outer, name = path.split(".")
        for each in outer:
            group = getattr(group, each, None)
        if group is not None and name in group.model_fields_set and getattr(group, name) is None:
            yield f"{path} has no value, so {then}, or remove {name}"


def device_notes(options: "DeviceOptions | None") -> Iterator[str]:
    """Yield notes about options of the section ``devices`` with no effect, or with one that may not be intended."""
    if options is not None and not options.classes:
        yield (
            "devices.classes is empty: criproxy knows no cards, so it hides and protects nothing; remove classes "
            "to use all built-in classes, or remove devices"
        )
    if options is not None and options.podresources.socket and not options.checkpoint:
        mode = options.on_no_evidence
        yield (
            "devices.checkpoint is empty: podresources identifies pods only by name, so it is no evidence for a pod "
            "with the name of an earlier one, as in a StatefulSet. Containers of such a pod that request cards without "
            f"CDI names or device nodes in their creates, {_THEN[mode]} (onNoEvidence: {mode}). Init and ephemeral "
            f"containers that request cards in this way, {_UNLISTED[mode]}, as podresources never lists them"
        )
    if options is not None and (plan := options.plan()) is not None:
        from criproxy.devices.options.profiles import mig_notes

        yield from mig_notes(plan.profiles)


def http_notes(host_root: Path) -> Iterator[str]:
    """Yield notes about services whose ``--http`` is not on loopback."""
    for name, variable in DEFAULTS.items():
        yield from _http_notes(host_root / name, variable)


def _http_notes(file: Path, variable: str) -> Iterator[str]:
    from criproxy.errors import UsageError
    from criproxy.process.address import Address

    for text in _values("--http", _options(file, variable)):
        try:
            if not Address.parse(text).is_local:
                yield (
                    f"--http {text} in {file} is open to everyone who can reach that address: criproxy requires no "
                    "credentials, and metrics name this node's containers; :PORT listens only on loopback"
                )
        except UsageError:
            continue  # the daemon reports that


def _options(file: Path, variable: str) -> list[str]:
    """Return the options of a service in its unit's environment file; none if the file is missing or invalid."""
    try:
        return shlex.split(variables(file)[0].get(variable, ""))
    except ValueError:
        return []


def _values(option: str, words: list[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        if word.startswith(f"{option}="):
            yield word.partition("=")[2]
        elif word == option and number + 1 < len(words):
            yield words[number + 1]


def kubelet_notes(host_root: Path, options: "Options", topology: "Topology") -> Iterator[str]:
    """Yield notes about settings of the kubelet with which these *options* of a policy do not go together."""
    from criproxy.errors import reason_of
    from criproxy.host.cgroup import host_reader
    from criproxy.install.host import Host
    from criproxy.install.kubelet import read_kubelet
    from criproxy.install.kubelet_cpus import cannot_read, differences, managers

    try:
        kubelet = read_kubelet(Host(host_root))
        notes = [*managers(kubelet), *differences(kubelet, options, topology, host_reader(host_root).cgroup)]
    except OSError as error:
        notes = [cannot_read(f"{error.filename}: {reason_of(error)}")]
    yield from notes
