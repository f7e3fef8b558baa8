"""The files, sockets, units and commands that an installation uses, and what this program has with it.

Paths are those of the node.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]

SOCKET = "/run/criproxy/criproxy.sock"
CRIO_SOCKET = "/run/criproxy/run/crio/crio.sock"
"""With CRI-O: the kubelet recognises it by the end of the socket's path."""
CONTAINERD = "/run/containerd/containerd.sock"
CRIO = "/run/crio/crio.sock"
K3S_CONTAINERD = "/run/k3s/containerd/containerd.sock"
RUNTIMES = (CONTAINERD, CRIO, K3S_CONTAINERD)
NRI = "/run/nri/nri.sock"
"""Where runtimes take NRI plugins."""
CONTAINERD_CONFIG = "/etc/containerd/config.toml"
CRIO_NRI = "/etc/crio/crio.conf.d/20-criproxy-nri.conf"
CRIO_NRI_TEXT = """# criproxy is a plugin of CRI-O. Written by `criproxy install --nri`.
[crio.nri]
enable_nri = true
nri_plugin_request_timeout = {}
"""

HOME = "/opt/criproxy"
PROGRAM = f"{HOME}/bin/criproxy"
PACKAGE_LIST = "/var/lib/dpkg/info/criproxy.list"
"""Exists if dpkg has installed criproxy."""
POLICY = "/etc/criproxy/policy.yaml"
DEFAULTS = "/etc/default/criproxy"
OPTIONS = "CRIPROXY_OPTIONS"
"""The variable in that file."""
PLUGIN_DEFAULTS = "/etc/default/criproxy-device-plugin"
UNIT_OPTIONS = {DEFAULTS: OPTIONS, PLUGIN_DEFAULTS: "CRIPROXY_DEVICE_PLUGIN_OPTIONS"}
"""By environment file of a unit, the variable that has its options."""
PAGE_TOKEN = "/etc/criproxy/page-token"  # noqa: S105 (its path)
STATE_DIR = "/var/lib/criproxy"
RUN_DIR = "/run/criproxy"
JOURNAL = "/var/lib/criproxy-install.json"

UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""In the order in which systemd looks for a unit."""
UNIT_FOLDER = UNIT_FOLDERS[0]
UNITS = ("criproxy.service", "criproxy.socket", "criproxy.slice")
CONTROLS = "criproxy-controls.service"
"""The unit that applies what classes of the policy file set outside of CRI."""
CONTROLS_STATE_DIR = "/var/lib/criproxy-controls"
OPTIONAL_UNITS = ("criproxy-image.socket", "criproxy-device-plugin.service", CONTROLS)
ACTIVE = ("criproxy.socket", "criproxy.service")
"""The units that an installation enables and starts."""
Command = tuple[str, ...]
RELOAD: Command = ("systemctl", "daemon-reload")
RESTART: Command = ("systemctl", "restart", "criproxy.service")
STOP: Command = ("systemctl", "disable", "--now", *ACTIVE)
STOP_CONTROLS: Command = ("systemctl", "disable", "--now", CONTROLS)
PUT_BACK: Command = (PROGRAM, "controls", "--put-back")
RELEASE: Command = (PROGRAM, "release")
"""How the command begins that unpins all containers."""
CRIO_DROP_IN = f"{UNIT_FOLDER}/criproxy.socket.d/crio.conf"
CRIO_DROP_IN_TEXT = f"""# The kubelet recognises CRI-O by the end of this path.
[Socket]
ListenStream=
ListenStream={CRIO_SOCKET}
"""
KUBELET_DROP_IN = "20-criproxy.conf"
KUBELET_DROP_IN_TEXT = """\
# The kubelet starts after criproxy's socket, at boot too. \
It goes on while criproxy restarts: no Requires=, no BindsTo=.
[Unit]
Wants=criproxy.socket
After=criproxy.socket criproxy.service
"""
COMMAND_DROP_IN = "21-criproxy-command.conf"
"""For a kubelet whose unit has the endpoint on its command line."""


def setting_of(option: str) -> str:
    """Return the name of a setting in the file with criproxy's options."""
    return f"{OPTIONS} --{option}"


def socket_of(endpoint: str) -> str:
    """Return the path in *endpoint*, with /run for /var/run, which is a link to it."""
    path = endpoint.removeprefix("unix://").removeprefix("unix:")
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


def release(runtime: str) -> Command:
    """Return the command that unpins all containers."""
    return (*RELEASE, "--runtime-endpoint", f"unix://{runtime}")


def is_ours(endpoint: str) -> bool:
    """Whether *endpoint* is a socket of criproxy."""
    return socket_of(endpoint) in (SOCKET, CRIO_SOCKET)


@dataclass(frozen=True, slots=True)
class Payload:
    """What this program has with it, for a node that has no package of criproxy."""

    home: str = ""
    """The virtual environment that can be copied to the node; empty: there is none."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Texts of the unit files by name."""
    policy: str | None = None


def payload_for(host_root: Path) -> Payload:
    """Return what can be put on the node with the root directory *host_root*.

    In a container, that is the program itself, with its virtual environment, and the units and the policy file of the
    container's image. On the node itself, the program is in its place, and a checkout has the units and the policy.
    """
    is_node = host_root.resolve() == Path("/")
    home = "" if is_node or not Path(PROGRAM).exists() or Path(sys.prefix) != Path(HOME) else HOME
    folders = () if is_node else UNIT_FOLDERS
    units = next(filter(None, map(_units, (*folders, f"{_CHECKOUT}/systemd"))), {})
    policy = None if is_node else _text(POLICY)
    return Payload(home, units, policy or _text(f"{_CHECKOUT}/policies/default.yaml"))


def _units(folder: str) -> dict[str, str]:
    texts = {name: _text(f"{folder}/{name}") for name in (*UNITS, *OPTIONAL_UNITS)}
    return {name: text for name, text in texts.items() if text is not None}


def _text(path: str) -> str | None:
    with suppress(OSError):
        return Path(path).read_text()
    return None
