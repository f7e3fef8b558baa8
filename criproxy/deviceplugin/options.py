"""What `criproxy device-plugin` was called with."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.deviceplugin.plugin import KUBELET_DIR
from criproxy.devices.plan import Register
from criproxy.errors import UsageError
from criproxy.observe.address import Address
from criproxy.wire.sockets import unix_path

DEFAULT_CONFIG = Path("/etc/criproxy/policy.yaml")
"""The daemon's, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `criproxy device-plugin` was called with."""

    config: Path | None = None
    nvidia_config: str = ""
    """NVIDIA's file or folder; empty: as its variable says, else our own file."""
    nvidia_arguments: tuple[str, ...] = ()
    """NVIDIA's flags."""
    name: str = ""
    """Of the file to use where NVIDIA's is a folder."""
    hostname: str = field(default_factory=lambda: os.uname().nodename)
    group: str | None = None
    kubelet_dir: Path | None = None
    """None: where Kubernetes has it, and podresources where our own file says."""
    register: Register | None = None
    """None: as our own file says."""
    http: str | None = None
    control_socket: str = "/run/criproxy/control.sock"
    host_root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def policy_file(self) -> Path:
        """Our own file, or the folder of them."""
        return self.config or DEFAULT_CONFIG

    @property
    def kubelet_folder(self) -> Path:
        """The kubelet's."""
        return self.kubelet_dir or below(self.host_root, str(KUBELET_DIR))

    def kubelet_socket(self, register: Register) -> Path | None:
        """The kubelet's socket, as NVIDIA's flag or variable says; None: where it usually is.

        Raises:
            UsageError: no kubelet is to be told, although that is how it learns of the plugin.
        """
        flags = [each.partition("=")[2] for each in self.nvidia_arguments if each.startswith("--kubelet-socket=")]
        said = flags[-1] if flags else self.env.get("KUBELET_SOCKET")
        if said == "" and register == "kubelet":
            raise UsageError(
                "--kubelet-socket (or the variable KUBELET_SOCKET) is empty, so the plugin would not register with "
                "any kubelet: leave it out, or use --register plugins-registry"
            )
        return Path(said) if said else None

    def address(self) -> Address | None:
        """Where to serve metrics and health.

        Raises:
            UsageError: it cannot be understood, or the daemon's socket cannot.
        """
        unix_path(self.control_socket, "--control-socket")
        address = Address.parse(self.http) if self.http is not None else None
        if address and address.path and os.path.realpath(address.path) == os.path.realpath(self.control_socket):
            raise UsageError(f"--http and --control-socket are both {address.path}, which is the daemon's socket")
        return address


def below(host_root: Path, path: str) -> Path:
    """The host's file *path*."""
    return host_root / path.lstrip("/")
