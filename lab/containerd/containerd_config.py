"""The configuration file of a private containerd, as its version wants it, and which version that is."""

import re
import subprocess
from pathlib import Path

from lab.containerd.cgroups import CgroupDriver

Version = tuple[int, int]

_VERSION = re.compile(r"^\S+ \S+ v?(\d+)\.(\d+)\.\d+", re.MULTILINE)
_COMMON = """version = {version}
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = [{disabled}]
[grpc]
address = "{directory}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{directory}/opt"
"""
_SERVICE = """[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"
stream_server_port = "0"
"""
_TO_2 = """restrict_oom_score_adj = true
sandbox_image = "{pause}"
"""
_FROM_2 = """[plugins."io.containerd.cri.v1.images"]
snapshotter = "{snapshotter}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
"""
_RUNTIME = """[plugins."{runtime}".cni]
bin_dir = "{directory}/cni/bin"
conf_dir = "{directory}/cni/net.d"
[plugins."{runtime}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."{runtime}".containerd.runtimes.runc.options]
Root = "{directory}/runc"
SystemdCgroup = {systemd_cgroup}
"""
_SNAPSHOTTER_TO_2 = """[plugins."{runtime}".containerd]
snapshotter = "{snapshotter}"
"""
_NRI = """[plugins."io.containerd.nri.v1.nri"]
disable = {disable_nri}
socket_path = "{directory}/nri.sock"
plugin_path = "{directory}/nri/plugins"
plugin_config_path = "{directory}/nri/conf.d"
"""
_RESTART = {False: "io.containerd.internal.v1.restart", True: "io.containerd.monitor.container.v1.restart"}
"""The plugin that restarts containers, which is not wanted; by whether this is containerd 2."""
_DEVMAPPER = "io.containerd.snapshotter.v1.devmapper"


def version_of(program: str) -> Version:
    """Major and minor version of a containerd; OSError if it does not run, ValueError if it says something else."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if not (found := _VERSION.search(said.stdout)):
        raise ValueError(f"{program} --version says {(said.stdout or said.stderr).strip()!r}, which names no version")
    return int(found[1]), int(found[2])


def render(
    version: Version, directory: Path, *, pause: str, snapshotter: str, cgroup_driver: CgroupDriver, nri: bool
) -> str:
    """The text of the file: everything lies below *directory*, pods use the image *pause*; NRI from 1.7 on."""
    newer = version >= (2, 0)
    parts = [_COMMON, _SERVICE, _FROM_2 if newer else _TO_2, _RUNTIME, "" if newer else _SNAPSHOTTER_TO_2]
    if version >= (1, 7):
        parts.append(_NRI)
    disabled = (_RESTART[newer], _DEVMAPPER)
    return "".join(parts).format(
        version=3 if newer else 2,
        directory=directory,
        disabled=", ".join(f'"{name}"' for name in disabled),
        runtime="io.containerd.cri.v1.runtime" if newer else "io.containerd.grpc.v1.cri",
        pause=pause,
        snapshotter=snapshotter,
        systemd_cgroup=_toml(cgroup_driver == "systemd"),
        disable_nri=_toml(not nri),
    )


def _toml(value: bool) -> str:
    return str(value).lower()
