"""Made-up nodes for installations: the files that kubeadm, k3s, RKE2 and administrators write, and small real programs.

``nsenter``, ``systemctl`` and ``criproxy`` are shell scripts beside the root directory. They note in ``log`` what they
were asked, keep the state of units as files, and fail where the file ``fail`` has a word of their arguments.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.install import paths
from tests.conftest import ROOT

_KUBELET = """[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={}
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
_KUBEADM = """# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# This is a file that "kubeadm init" and "kubeadm join" generates at runtime
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
# This is a file that the user can use for overrides of the kubelet args as a last resort.
EnvironmentFile=-{}
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
_CONFIGURATION = """apiVersion: kubelet.config.k8s.io/v1beta1
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
containerRuntimeEndpoint: "{}"
cpuManagerReconcilePeriod: 0s
kind: KubeletConfiguration
memorySwap: {{}}
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
"""
_RANCHER = """[Unit]
Description=Kubernetes
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/{unit}
EnvironmentFile=-/etc/sysconfig/{unit}
EnvironmentFile=-{env}
KillMode=process
Delegate=yes
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/{command}
{more}"""
_CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
_LOCAL_UNITS = "/usr/local/lib/systemd/system"
_RUNTIME = "unix:///var/run/containerd/containerd.sock"


def _k3s(unit: str, command: str) -> str:
    """The unit that the installer of k3s writes: each word of *command* on a line, and an empty line at the end."""
    lines = "".join(f"    {word} \\\n" for word in command.split())
    return _RANCHER.format(unit="%N", env=f"/etc/systemd/system/{unit}.env", command=f"k3s \\\n{lines}\n", more="")


def _rke2(role: str) -> str:
    """A unit of the archive of RKE2."""
    stop = "ExecStopPost=-/bin/sh -c \"systemd-cgls /system.slice/%n | grep -Eo '[0-9]+ (containerd|kubelet)'\"\n"
    env = f"{_LOCAL_UNITS}/rke2-{role}.env"
    return _RANCHER.format(unit=f"rke2-{role}", env=env, command=f"rke2 {role}", more=stop)


FILES: dict[str, dict[str, str]] = {
    "kubeadm": {
        "/usr/lib/systemd/system/kubelet.service": _KUBELET.format("/usr/bin/kubelet"),
        "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": _KUBEADM.format("/etc/default/kubelet"),
        "/var/lib/kubelet/kubeadm-flags.env": f'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint={_RUNTIME} '
        '--pod-infra-container-image=registry.k8s.io/pause:3.9"\n',
        "/var/lib/kubelet/config.yaml": _CONFIGURATION.format(""),
        "/etc/default/kubelet": "# For administrators.\nKUBELET_EXTRA_ARGS=--node-ip=10.0.0.5\n",
        "/etc/containerd/config.toml": _CONTAINERD,
    },
    "kubeadm-rpm": {
        "/usr/lib/systemd/system/kubelet.service": _KUBELET.format("/usr/bin/kubelet"),
        "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": _KUBEADM.format("/etc/sysconfig/kubelet"),
        "/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS=""\n',
        "/var/lib/kubelet/instance-config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\n"
        f"containerRuntimeEndpoint: {_RUNTIME}\nkind: KubeletConfiguration\n",
        "/var/lib/kubelet/config.yaml": _CONFIGURATION.format(_RUNTIME),
        "/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=\n",
        "/etc/containerd/config.toml": _CONTAINERD,
    },
    "k3s": {
        "/etc/systemd/system/k3s.service": _k3s("k3s.service", "server '--write-kubeconfig-mode' '644'"),
        "/etc/systemd/system/k3s.service.env": "",
        "/etc/rancher/k3s/config.yaml": "token: secret\nkubelet-arg:\n  - max-pods=200\n",
    },
    "k3s-agent": {
        "/etc/systemd/system/k3s-agent.service": _k3s("k3s-agent.service", "agent"),
        "/etc/systemd/system/k3s-agent.service.env": "K3S_TOKEN='secret'\nK3S_URL='https://10.0.0.1:6443'\n",
        "/etc/rancher/node/password": "secret\n",
    },
    "rke2": {
        **{f"{_LOCAL_UNITS}/rke2-{role}.service": _rke2(role) for role in ("server", "agent")},
        **{f"{_LOCAL_UNITS}/rke2-{role}.env": "HOME=/root\n" for role in ("server", "agent")},
        "/etc/rancher/rke2/config.yaml": "server: https://10.0.0.1:9345\ntoken: secret\n",
    },
    "plain": {
        "/etc/systemd/system/kubelet.service": _KUBELET.format(
            "/usr/local/bin/kubelet \\\n  --config=/var/lib/kubelet/kubelet-config.yaml \\\n  --v=2"
        ),
        "/var/lib/kubelet/kubelet-config.yaml": _CONFIGURATION.format(_RUNTIME),
        "/etc/containerd/config.toml": _CONTAINERD,
    },
}
"""Of each kind of node: kubeadm as of Kubernetes 1.29 with a deb, and as of 1.35 with an rpm; a server and an agent of
k3s; an agent of RKE2; a kubelet that somebody has installed by hand."""
KUBELET = dict.fromkeys(FILES, "kubelet") | {"k3s": "k3s", "k3s-agent": "k3s-agent", "rke2": "rke2-agent"}
"""The active unit."""
RUNTIME = dict.fromkeys(("k3s", "k3s-agent", "rke2"), paths.K3S_CONTAINERD)
KINDS = tuple(FILES)
_SECRET = (
    "/etc/systemd/system/k3s.service.env /etc/systemd/system/k3s-agent.service.env /etc/rancher/node/password "
    "/etc/rancher/rke2/config.yaml"
).split()
"""Files that only root can read."""
_KUBELET_FILES = (
    "etc/default/kubelet etc/sysconfig/kubelet etc/rancher etc/systemd/system/kubelet.service.d var/lib/kubelet "
    "var/lib/rancher"
)

_NSENTER = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
case $1 in /*) program={root}$1; shift; exec "$program" "$@" ;; esac
exec "$@"
"""
_SYSTEMCTL = """#!/bin/sh
state={state}; root={root}
case $1 in
is-active | is-enabled) [ -e "$state/$1/$2" ]; exit ;;
show)
    restarts=$(cat $state/restarts 2>/dev/null || echo 0)
    echo "NRestarts=$restarts"
    [ ! -e $state/crashes ] || {{ cat $state/crashes; echo $((restarts + 1)) >$state/restarts; }}
    exit ;;
esac
echo "systemctl $*" >>$state/log
[ ! -e $state/fail ] || ! echo "$*" | grep -qf $state/fail || {{ echo 'Job failed.' >&2; exit 1; }}
action=$1; shift
[ "$1" != --now ] || shift
for unit; do
    case $action in
    enable)
        [ -e $root/etc/systemd/system/$unit ] || [ -e $root/usr/lib/systemd/system/$unit ] || exit 5
        touch $state/is-active/$unit $state/is-enabled/$unit ;;
    disable) rm -f $state/is-active/$unit $state/is-enabled/$unit ;;
    esac
    case $action/$unit in
    enable/criproxy.socket)
        drop_in=$root/etc/systemd/system/criproxy.socket.d/crio.conf
        socket=$root$(sed -n 's/^ListenStream=//p' $drop_in 2>/dev/null | tail -1)
        [ $socket != $root ] || socket=$root/run/criproxy/criproxy.sock
        mkdir -p ${{socket%/*}} && ln -sfn {runtime} $socket ;;
    enable/criproxy.service) mkdir -p $root/var/lib/criproxy && : >$root/var/lib/criproxy/criproxy.db ;;
    disable/criproxy.socket) rm -f $root/run/criproxy/criproxy.sock $root/run/criproxy/run/crio/crio.sock ;;
    enable/criproxy-controls.service) mkdir -p $root/var/lib/criproxy-controls ;;
    restart/criproxy.service | restart/criproxy-controls.service) ;;
    restart/containerd.service) cp $root/etc/containerd/config.toml $state/runtime ;;
    restart/crio.service) cat $root/etc/crio/crio.conf.d/* >$state/runtime 2>/dev/null || : ;;
    restart/*) (cd $root && grep -r . {files} 2>/dev/null | sort >$state/kubelet) ;;
    esac
done
"""
_CRIPROXY = """#!/bin/sh
echo "criproxy $*" >>{state}/log
[ ! -e {state}/fail ] || ! echo "$*" | grep -qf {state}/fail || {{ echo 'Error: as planned' >&2; exit 1; }}
[ "$1" != status ] || \
    echo '{{"notices": '"$(cat {state}/notices)"', "kubelet": {{"last_call_s": '"$(cat {state}/last_call_s)"'}}}}'
"""


@dataclass(frozen=True, slots=True)
class MadeUpNode:
    """A node below *folder*, which is short enough for paths of sockets."""

    folder: Path
    kind: str
    attempt: Callable[..., tuple[int, str]] | None = None
    """Carries out an `Attempt` on this node: see `Attempts.run`."""

    def install(self, **values: object) -> tuple[int, str]:
        """Return the exit status of an installation, negative for a signal, and what was told."""
        assert self.attempt is not None
        return self.attempt(folder=str(self.folder), kind=self.kind, **values)

    def uninstall(self, **values: object) -> tuple[int, str]:
        """Return the same of an uninstallation."""
        return self.install(action="uninstall", **values)

    def installs(self, **values: Any) -> str:  # noqa: ANN401 (of `Attempt`)
        """Return what is told by an installation that succeeds, or ends with another ``status``."""
        status = values.pop("status", 0)
        found, told = self.install(**values)
        assert found == status, told
        return told

    def uninstalls(self, **values: object) -> str:
        """Return the same of an uninstallation."""
        return self.installs(action="uninstall", **values)

    def refuses(self, **values: object) -> str:
        """Return what is told by one that fails."""
        return self.installs(status=1, **values)

    @property
    def root(self) -> Path:
        """The node's root directory."""
        return self.folder / "root"

    @property
    def state(self) -> Path:
        """What the programs remember."""
        return self.folder / "state"

    @property
    def programs(self) -> Path:
        """Where the programs are."""
        return self.folder / "bin"

    @property
    def payload(self) -> paths.Payload:
        """What a container with criproxy has with it."""
        names = (*paths.UNITS, *paths.OPTIONAL_UNITS)
        units = {name: (ROOT / "systemd" / name).read_text() for name in names}
        return paths.Payload(str(self.folder / "image"), units, "policy: static\n")

    def make(self, runtime: Path, *, has_package: bool) -> None:
        """Write all files; *runtime*: the socket of a runtime that answers."""
        for name, text in FILES[self.kind].items():
            self.write(name, text)
            self.at(name).chmod(0o600 if name in _SECRET else 0o644)
        socket = RUNTIME.get(self.kind, paths.CONTAINERD)
        for folder in ("/proc", "/opt", "/var/lib", "/etc", str(Path(socket).parent)):
            self.at(folder).mkdir(parents=True, exist_ok=True)
        os.link(runtime, self.at(socket))
        self.write("/etc/hostname", "node-1\n")
        for name in ("is-active", "is-enabled"):
            (self.state / name).mkdir(parents=True)
            (self.state / name / f"{KUBELET[self.kind]}.service").touch()
        (self.state / "last_call_s").write_text("0.0")
        (self.state / "notices").write_text("[]")
        self._programs(socket)
        if has_package:
            shutil.copytree(self.folder / "image", self.at(paths.HOME))
            for name, text in self.payload.units.items():
                self.write(f"/usr/lib/systemd/system/{name}", text)
            self.write(paths.POLICY, "policy: static\n")
            self.write(paths.PACKAGE_LIST, "/opt/criproxy\n")

    def at(self, name: str) -> Path:
        """Return where the node's path *name* is."""
        return self.root / name.lstrip("/")

    def write(self, name: str, text: str) -> None:
        """Write a file of the node."""
        self.at(name).parent.mkdir(parents=True, exist_ok=True)
        self.at(name).write_text(text)

    def read(self, name: str) -> str:
        """Return the text of a file of the node."""
        return self.at(name).read_text()

    @property
    def log(self) -> list[str]:
        """What the programs were asked, in order."""
        file = self.state / "log"
        return file.read_text().splitlines() if file.exists() else []

    def fail_on(self, words: str) -> None:
        """Let programs fail whose arguments have *words*; empty: none."""
        (self.state / "fail").write_text(f"{words}\n") if words else (self.state / "fail").unlink()

    def restart_kubelet(self) -> None:
        """Start the kubelet, which reads its configuration."""
        subprocess.run([self.programs / "systemctl", "restart", f"{KUBELET[self.kind]}.service"], check=True)

    def start_criproxy(self) -> None:
        """Enable and start criproxy's units, as administrators do."""
        subprocess.run([self.programs / "systemctl", "enable", "--now", *paths.ACTIVE], check=True)

    @property
    def is_cut_off(self) -> bool:
        """Whether the kubelet calls the socket of a criproxy that does not run."""
        is_called = "/run/criproxy/" in (self.state / "kubelet").read_text()
        return is_called and not (self.state / "is-active/criproxy.socket").exists()

    def snapshot(self) -> dict[str, object]:
        """Return all that an installation may change: each file, the units' state, the kubelet's configuration."""
        found: dict[str, object] = {}
        units = (path for name in ("is-active", "is-enabled") for path in (self.state / name).iterdir())
        for path in (*self.root.rglob("*"), *units):
            status = path.lstat()
            content: object = None
            if path.is_symlink():
                content = str(path.readlink())
            elif path.is_file():
                content = path.read_bytes()
            found[str(path.relative_to(self.folder))] = (stat.filemode(status.st_mode), status.st_uid, content)
        return found | {"kubelet": (self.state / "kubelet").read_text()}

    def _programs(self, socket: str) -> None:
        values: dict[str, object] = {"root": self.root, "state": self.state, "runtime": socket, "files": _KUBELET_FILES}
        for name, text in (("nsenter", _NSENTER), ("systemctl", _SYSTEMCTL)):
            _script(self.programs / name, text.format(**values))
        _script(
            self.programs / "containerd", "#!/bin/sh\necho containerd github.com/containerd/containerd 1.7.24 1.7.24\n"
        )
        image = self.folder / "image"
        _script(image / "bin/criproxy", _CRIPROXY.format(**values))
        package = image / "lib/python3.11/site-packages/criproxy/__init__.py"
        package.parent.mkdir(parents=True)
        package.write_text(f'__version__ = "{__version__}"\n')


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
