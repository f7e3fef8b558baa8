"""The configuration in effect: section ``devices.plugin`` of our policy file, and the NVIDIA file that belongs to it.

In place of that file, the cluster may have chosen a configuration by name.

The policy file is validated as `criproxy check --no-machine` validates it: which CPUs the machine has does not matter
for cards, and a node that has lost some of its CPUs keeps its cards.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from criproxy.config.files import choose, read_bytes
from criproxy.config.load import examine
from criproxy.deviceplugin.cards.card_offers import Configuration
from criproxy.deviceplugin.configuration.nvidia_file import Node, NvidiaFile, examine_text
from criproxy.deviceplugin.configuration.nvidia_file import examine as examine_nvidia
from criproxy.deviceplugin.configuration.nvidia_notes import named_resources
from criproxy.deviceplugin.nvidia.options import GPU_RESOURCE, PluginConfig
from criproxy.deviceplugin.nvidia.settings import KUBELET_SOCKET, overrides
from criproxy.deviceplugin.server.plugin import KUBELET_DIR
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.options.options import DeviceOptions
from criproxy.devices.plugin.named_configuration import FILE_NAME, MAX_FILE_BYTES, NamedConfiguration, from_json
from criproxy.devices.plugin.plan import NVIDIA_ALONE, PluginPlan, Register
from criproxy.errors import ConfigError, UsageError
from criproxy.process.http.address import Address
from criproxy.wire.sockets import unix_path

DEFAULT_CONFIG = Path("/etc/criproxy/policy.yaml")
"""The daemon's default, too."""
NAMED_CONFIG = f"/var/lib/criproxy/{FILE_NAME}"
"""In the daemon's default state directory."""
NVIDIA_VARIABLE = "CONFIG_FILE"
PODRESOURCES = "pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command-line options, and the environment."""

    config: Path | None = None
    nvidia_config: str = ""
    """NVIDIA's file or directory; empty to use its environment variable, or else our own file."""
    nvidia_flags: Mapping[str, str] = field(default_factory=dict)
    """NVIDIA's flags without their dashes, by their first names."""
    name: str = ""
    """Name of the file to use if NVIDIA's path is a directory."""
    hostname: str = field(default_factory=lambda: os.uname().nodename)
    group: str | None = None
    named_config: Path | None = None
    """The file with the configuration that was chosen in the cluster, if there is one; None for the default path."""
    ignores_named: bool = False
    """Whether that file does not count."""
    kubelet_dir: Path | None = None
    """None for the default of Kubernetes; then our own file defines the podresources socket."""
    register: Register | None = None
    """None to use the setting of our own file."""
    http: str | None = None
    control_socket: str = "/run/criproxy/control.sock"
    host_root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def policy_file(self) -> Path:
        """Our own file, or the directory of such files."""
        return self.config or DEFAULT_CONFIG

    @property
    def kubelet_folder(self) -> Path:
        """The kubelet's directory."""
        return self.kubelet_dir or below(self.host_root, str(KUBELET_DIR))

    @property
    def named_file(self) -> Path:
        """The file with the configuration that was chosen in the cluster; it need not exist."""
        return self.named_config or below(self.host_root, NAMED_CONFIG)

    @property
    def daemon_socket(self) -> str:
        """The path of the daemon's control socket.

        Raises:
            UsageError: There is none in the option.
        """
        return unix_path(self.control_socket, "--control-socket")

    def kubelet_socket(self, register: Register) -> Path | None:
        """Return the kubelet's socket according to NVIDIA's flag or variable; None for the default path.

        Raises:
            UsageError: The path is empty, which disables registration, although *register* needs it.
        """
        given = {override.key: override.value for override in overrides(self.nvidia_flags, self.env)}
        path = given.get(KUBELET_SOCKET)
        if path == "" and register == "kubelet":
            raise UsageError(
                "--kubelet-socket (or the variable KUBELET_SOCKET) is empty, so the plugin would not register with "
                "any kubelet: leave it out, or use --register plugins-registry"
            )
        return Path(path) if path else None

    def address(self) -> Address | None:
        """Return the address for metrics and health; None if they are not served.

        Raises:
            UsageError: The address, or the path of the daemon's socket, is invalid.
        """
        daemon = self.daemon_socket
        address = Address.parse(self.http) if self.http is not None else None
        if address and address.path and os.path.realpath(address.path) == os.path.realpath(daemon):
            raise UsageError(f"--http and --control-socket are both {address.path}, which is the daemon's socket")
        return address


def below(host_root: Path, path: str) -> Path:
    """Return the path of the host's file *path*."""
    return host_root / path.lstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Configuration):
    """The contents of the configuration files, where they are, and what follows from them."""

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
    def classes(self) -> tuple[DeviceClass, ...]:
        """The classes whose cards are offered."""
        return tuple(each.kind for each in self.plan.advertised)

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
            named |= {GPU_RESOURCE, *named_resources(self.nvidia)}
        return resource in named


def load(options: Options) -> Loaded:
    """Read and validate all files of this node; may block.

    Raises:
        ConfigError: The files have mistakes; one line for each, as `criproxy check` prints it.
    """
    source, devices, notes = _policy_file(options)
    plan = devices.plan() if devices is not None else None
    nvidia_path, named = options.nvidia_config or options.env.get(NVIDIA_VARIABLE, ""), _named(options)
    if plan is None and (not source or nvidia_path or named):
        plan = NVIDIA_ALONE
    if plan is None:
        plan = PluginPlan(advertised=())
        notes.append(f"{source} has no devices.plugin section: no cards are offered")
    if not nvidia_path and plan.nvidia_config:
        nvidia_path = str(below(options.host_root, plan.nvidia_config))
    plan = replace(plan, nvidia_config=nvidia_path)
    own = [Path(nvidia_path)] if plan.nvidia is not None and nvidia_path else []
    nvidia, given = NvidiaFile(), [*overrides(options.nvidia_flags, options.env)]
    if plan.nvidia is not None and named is not None:
        nvidia = examine_text(plan, named.text, Path(named.title), given)
    elif plan.nvidia is not None:
        node = Node(explicit=options.name, hostname=options.hostname, group=options.group)
        nvidia = examine_nvidia(plan, node, given)
    if nvidia.mistakes:
        raise nvidia.error
    return Loaded(
        plan=plan,
        nvidia=nvidia.config or PluginConfig(),
        source=source,
        nvidia_source=str(nvidia.file or ""),
        nvidia_is_empty=nvidia.is_empty,
        podresources=_podresources(options, devices),
        watched=(options.policy_file, *own, options.named_file),
        notes=(*notes, *nvidia.notes),
    )


def _named(options: Options) -> NamedConfiguration | None:
    """Return the configuration that was chosen in the cluster; None if there is none."""
    file = options.named_file
    if options.ignores_named or not os.path.lexists(file):
        return None
    content, mistakes = read_bytes(file, MAX_FILE_BYTES)
    if content is None or mistakes:
        raise ConfigError("\n".join(mistake.located(file) for mistake in mistakes))
    try:
        return from_json(content)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def _policy_file(options: Options) -> tuple[str, DeviceOptions | None, list[str]]:
    """Return our own file, its section ``devices``, and notes; all empty if the default file does not exist."""
    if options.config is None and not os.path.lexists(options.policy_file):
        return "", None, [f"{options.policy_file} does not exist: NVIDIA's cards are offered as by NVIDIA's own plugin"]
    report = examine(choose(options.policy_file, options.hostname, options.group))
    if report.settings is None:
        raise report.error
    return str(report.choice.file), report.settings.common.devices, []


def _podresources(options: Options, devices: DeviceOptions | None) -> Path | None:
    """Return the socket on which the kubelet reports the IDs in use."""
    if options.kubelet_dir is not None:
        return options.kubelet_dir / PODRESOURCES
    path = (devices or DeviceOptions()).podresources.socket
    return below(options.host_root, path) if path else None
