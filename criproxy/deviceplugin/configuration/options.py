"""The options of `criproxy device-plugin`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.deviceplugin.nvidia.settings import KUBELET_SOCKET, overrides
from criproxy.deviceplugin.server.plugin import KUBELET_DIR
from criproxy.devices.plugin.plan import Register
from criproxy.errors import UsageError
from criproxy.process.http.address import Address
from criproxy.wire.sockets import unix_path

DEFAULT_CONFIG = Path("/etc/criproxy/policy.yaml")
"""The daemon's default, too."""


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
