"""The configuration in effect: section ``devices.plugin`` of our policy file, and the NVIDIA file that belongs to it.

The policy file is validated as `criproxy check --no-machine` validates it: which CPUs the machine has does not matter
for cards, and a node that has lost some of its CPUs keeps its cards.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from criproxy.config.choice import choose
from criproxy.config.load import examine
from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.configuration.nvidia_file import Node, NvidiaFile
from criproxy.deviceplugin.configuration.nvidia_file import examine as examine_nvidia
from criproxy.deviceplugin.configuration.nvidia_notes import named_resources
from criproxy.deviceplugin.configuration.options import Options, below
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.devices.options.options import DeviceOptions
from criproxy.devices.plugin.plan import NVIDIA_ALONE, PluginPlan

NVIDIA_VARIABLE = "CONFIG_FILE"
NVIDIA_RESOURCE = "nvidia.com/gpu"
PODRESOURCES = "pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The contents of the configuration files."""

    configuration: Configuration
    source: str = ""
    """Path of our own file; empty if there is none."""
    nvidia_source: str = field(default="", compare=False)
    nvidia_is_empty: bool = field(default=False, compare=False)
    """Whether NVIDIA's file has no content at all, which stands for its defaults."""
    podresources: Path | None = None
    """The kubelet's podresources socket; None if it is not used."""
    watched: tuple[Path, ...] = field(default=(), compare=False)
    """Files and directories that are watched for changes."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Sentences about settings that have no effect or are not in effect."""

    @property
    def plan(self) -> PluginPlan:
        """The section ``devices.plugin``."""
        return self.configuration.plan

    def file_of(self, kind: str) -> str:
        """Return the file that defines how the cards of a class are offered; empty if there is none."""
        nvidia = self.plan.nvidia
        if nvidia is not None and nvidia.kind.name == kind and self.nvidia_source and not self.plan.shared_of(nvidia):
            return self.nvidia_source
        return self.source

    def names(self, resource: str) -> bool:
        """Whether the files name *resource* as one that this plugin offers."""
        plan = self.plan
        named = {each.resource for each in plan.advertised} | {each.target for each in plan.sharing}
        if plan.nvidia is not None:
            named |= {NVIDIA_RESOURCE, *named_resources(self.configuration.nvidia)}
        return resource in named


def load(options: Options) -> Loaded:
    """Read and validate all files of this node; may block.

    Raises:
        ConfigError: The files have mistakes; one line for each, as `criproxy check` prints it.
    """
    source, devices, notes = _policy_file(options)
    plan = devices.plan() if devices is not None else None
    nvidia_path = options.nvidia_config or options.env.get(NVIDIA_VARIABLE, "")
    if plan is None and (not source or nvidia_path):
        plan = NVIDIA_ALONE
    if plan is None:
        plan = PluginPlan(advertised=())
        notes.append(f"{source} has no devices.plugin section: no cards are offered")
    plan = replace(plan, nvidia_config=nvidia_path or _nvidia_path(options, plan.nvidia_config))
    nvidia = _nvidia_file(options, plan)
    return Loaded(
        configuration=Configuration(plan=plan, nvidia=nvidia.config or PluginConfig()),
        source=source,
        nvidia_source=str(nvidia.file or ""),
        nvidia_is_empty=nvidia.is_empty,
        podresources=_podresources(options, devices),
        watched=tuple(_watched_files(options, plan)),
        notes=(*notes, *nvidia.notes),
    )


def _policy_file(options: Options) -> tuple[str, DeviceOptions | None, list[str]]:
    """Return our own file, its section ``devices``, and notes; all empty if the default file does not exist."""
    if options.config is None and not os.path.lexists(options.policy_file):
        return "", None, [f"{options.policy_file} does not exist: NVIDIA's cards are offered as by NVIDIA's own plugin"]
    report = examine(choose(options.policy_file, options.hostname, options.group))
    if report.settings is None:
        raise report.error
    return str(report.choice.file), report.settings.common.devices, []


def _nvidia_file(options: Options, plan: PluginPlan) -> NvidiaFile:
    """Return NVIDIA's file; empty if its cards are not offered."""
    if plan.nvidia is None:
        return NvidiaFile(file=None, reason="", config=None)
    node = Node(explicit=options.name, hostname=options.hostname, group=options.group)
    found = examine_nvidia(plan, node, options.nvidia_flags, options.env)
    if found.mistakes:
        raise found.error
    return found


def _nvidia_path(options: Options, path: str) -> str:
    return str(below(options.host_root, path)) if path else ""


def _podresources(options: Options, devices: DeviceOptions | None) -> Path | None:
    """Return the socket on which the kubelet reports the IDs in use."""
    if options.kubelet_dir is not None:
        return options.kubelet_dir / PODRESOURCES
    path = (devices or DeviceOptions()).podresources.socket
    return below(options.host_root, path) if path else None


def _watched_files(options: Options, plan: PluginPlan) -> Iterator[Path]:
    yield options.policy_file
    if plan.nvidia is not None and plan.nvidia_config:
        yield Path(plan.nvidia_config)
