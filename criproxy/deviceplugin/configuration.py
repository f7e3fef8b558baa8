"""What is in force: our own policy file's section ``devices.plugin``, and the file of NVIDIA's that belongs to it.

The policy file is judged as `criproxy check --no-machine` judges it: which CPUs the machine has is no matter of cards,
and a node that has lost some of them keeps its cards.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from criproxy.config.choice import choose
from criproxy.config.load import examine
from criproxy.config.nvidia_file import Node, NvidiaFile, named_resources
from criproxy.config.nvidia_file import examine as examine_nvidia
from criproxy.deviceplugin.offering import Configuration
from criproxy.deviceplugin.options import Options, below
from criproxy.devices.options import DeviceOptions
from criproxy.devices.plan import NVIDIA_ALONE, PluginPlan
from criproxy.nvidia.options import PluginConfig

NVIDIA_VARIABLE = "CONFIG_FILE"
NVIDIA_RESOURCE = "nvidia.com/gpu"
PODRESOURCES = "pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the files say."""

    configuration: Configuration
    features: PluginConfig | None = None
    """As NVIDIA's feature discovery reads the same file, for labels; None where it would not start."""
    source: str = ""
    """Our own file; empty: there is none."""
    nvidia_source: str = field(default="", compare=False)
    nvidia_is_empty: bool = field(default=False, compare=False)
    """Whether nothing at all stands in NVIDIA's file, which then means its defaults."""
    podresources: Path | None = None
    """The kubelet's socket; None: it is not asked."""
    watched: tuple[Path, ...] = field(default=(), compare=False)
    """Files and folders whose change matters."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What has no effect, or is not in force; sentences."""

    @property
    def plan(self) -> PluginPlan:
        """The section."""
        return self.configuration.plan

    def file_of(self, kind: str) -> str:
        """The file that says how the cards of a class are offered; empty: none does."""
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
    """Read and judge all files of this node; may block.

    Raises:
        ConfigError: something is wrong, a line for each mistake as `criproxy check` prints it.
    """
    source, devices, notes = _policy_file(options)
    plan = devices.plan() if devices is not None else None
    asked = options.nvidia_config or options.env.get(NVIDIA_VARIABLE, "")
    if plan is None and (not source or asked):
        plan = NVIDIA_ALONE
    if plan is None:
        plan = PluginPlan(advertised=())
        notes.append(f"{source} has no devices.plugin section: no cards are offered")
    plan = replace(plan, nvidia_config=asked or _below(options, plan.nvidia_config))
    nvidia, features = _nvidia_files(options, plan)
    return Loaded(
        configuration=Configuration(plan=plan, nvidia=nvidia.config or PluginConfig()),
        features=features.config,
        source=source,
        nvidia_source=str(nvidia.file or ""),
        nvidia_is_empty=nvidia.is_empty,
        podresources=_podresources(options, devices),
        watched=tuple(_watched(options, plan)),
        notes=(*notes, *nvidia.notes, *(_of_features(text) for text in features.mistakes)),
    )


def _policy_file(options: Options) -> tuple[str, DeviceOptions | None, list[str]]:
    """Our own file, its section ``devices``, and notes; all empty where there is no file, and none was named."""
    if options.config is None and not os.path.lexists(options.policy_file):
        return "", None, [f"{options.policy_file} does not exist: NVIDIA's cards are offered as by NVIDIA's own plugin"]
    report = examine(choose(options.policy_file, options.hostname, options.group))
    if report.settings is None:
        raise report.error
    return str(report.choice.file), report.settings.common.devices, []


def _nvidia_files(options: Options, plan: PluginPlan) -> tuple[NvidiaFile, NvidiaFile]:
    """NVIDIA's file as its plugin and its feature discovery read it; empty where its cards are not offered."""
    if plan.nvidia is None:
        nothing = NvidiaFile(file=None, reason="", config=None)
        return nothing, nothing
    node = Node(explicit=options.name, hostname=options.hostname, group=options.group)
    found = examine_nvidia(plan, node, options.nvidia_arguments, options.env)
    if found.mistakes:
        raise found.error
    if plan.labels is None:
        return found, NvidiaFile(file=None, reason="", config=None)
    return found, examine_nvidia(plan, node, (), options.env, program="gfd")


def _of_features(mistake: str) -> str:
    return f"NVIDIA's cards get no labels: {mistake}"


def _below(options: Options, path: str) -> str:
    return str(below(options.host_root, path)) if path else ""


def _podresources(options: Options, devices: DeviceOptions | None) -> Path | None:
    """Where the kubelet says which ids are in use."""
    if options.kubelet_dir is not None:
        return options.kubelet_dir / PODRESOURCES
    path = (devices or DeviceOptions()).podresources.socket
    return below(options.host_root, path) if path else None


def _watched(options: Options, plan: PluginPlan) -> Iterator[Path]:
    yield options.policy_file
    if plan.nvidia is not None and plan.nvidia_config:
        yield Path(plan.nvidia_config)
