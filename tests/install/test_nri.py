"""`criproxy install --nri`: criproxy as a plugin of the runtime, and the switch between that and the proxy."""

import json
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from criproxy.install import paths
from criproxy.install.texts import NRI_PLUGIN
from criproxy.simulate.hosts import machine
from tests.install.conftest import MakeNode
from tests.install.nodes import KINDS, KUBELET, MadeUpNode
from tests.sysfs import write_sysfs

OPTION = f"--nri=unix://{paths.NRI}"
ASKED = "criproxy status --format json"
"""How an installation finds out whether the runtime asks criproxy."""


@pytest.fixture
def make(make_node: MakeNode, runtime_socket: Path) -> MakeNode:
    """As `make_node`; k3s and RKE2 have switched NRI on."""

    def made(kind: str, *, has_package: bool = False) -> MadeUpNode:
        node = make_node(kind, has_package=has_package)
        if KUBELET[kind] != "kubelet":
            node.at(paths.NRI).parent.mkdir()
            node.at(paths.NRI).hardlink_to(runtime_socket)
        return node

    return made


def is_asked(node: MadeUpNode) -> bool:
    """Whether criproxy is a plugin, by the options with which it starts."""
    file = node.at(paths.DEFAULTS)
    return file.exists() and OPTION in file.read_text()


def is_called(node: MadeUpNode) -> bool:
    """Whether the kubelet calls criproxy since its last start."""
    return "/run/criproxy/" in (node.state / "kubelet").read_text()


@pytest.mark.parametrize("has_package", [True, False], ids=["package", "container"])
@pytest.mark.parametrize("kind", KINDS)
def test_install_and_uninstall(make: MakeNode, kind: str, has_package: bool) -> None:
    """The kubelet is left alone; a second run does nothing; uninstalled, the node is as before."""
    node = make(kind, has_package=has_package)
    before, is_containerd = node.snapshot(), KUBELET[kind] == "kubelet"

    told = node.installs(nri=True)
    assert "criproxy is installed, and the runtime asks it." in told
    assert is_asked(node)
    assert f"systemctl restart {KUBELET[kind]}.service" not in node.log
    if is_containerd:
        table = tomllib.loads((node.state / "runtime").read_text())["plugins"][NRI_PLUGIN]
        assert table == {"disable": False, "plugin_request_timeout": "10s"}
    assert node.log.count("systemctl restart containerd.service") == is_containerd
    installed, count = node.snapshot(), len(node.log)

    assert "Nothing to do: criproxy is installed, and the runtime asks it." in node.installs(nri=True)
    assert (node.snapshot(), node.log[count:]) == (installed, [ASKED])

    node.uninstalls()
    assert node.snapshot() == before
    assert node.log.count("systemctl restart containerd.service") == 2 * is_containerd
    if is_containerd:
        assert (node.state / "runtime").read_text() == node.read(paths.CONTAINERD_CONFIG)


@pytest.mark.parametrize("kind", KINDS)
def test_switching_both_ways(make: MakeNode, kind: str) -> None:
    """Each is installed over the other, the kubelet first asks who is there, and nothing is left of either."""
    node = make(kind)
    before = node.snapshot()
    for nri in (False, True, False, True):
        count = len(node.log)
        node.installs(nri=nri)
        assert (is_asked(node), is_called(node)) == (nri, not nri)
        assert not any("stop" in line or "disable" in line for line in node.log[count:])
        restarts = [line.split()[-1] for line in node.log[count:] if "restart" in line]
        assert restarts[:1] == [f"{KUBELET[kind]}.service"] if nri else restarts[-1:] == [f"{KUBELET[kind]}.service"]
        assert "Nothing to do" in node.installs(nri=nri)

    node.uninstalls()
    assert node.snapshot() == before


def test_changes_of_others_stay_over_a_switch(make: MakeNode) -> None:
    """Uninstalling removes only criproxy's settings from files that an administrator has changed since."""
    node = make("kubeadm")
    node.installs()
    node.installs(nri=True)
    args = node.read("/etc/default/kubelet").replace("--node-ip=10.0.0.5", "--node-ip=10.0.0.6 -v=4")
    node.write("/etc/default/kubelet", args)
    config = node.read(paths.CONTAINERD_CONFIG) + '[debug]\nlevel = "debug"\n'
    node.write(paths.CONTAINERD_CONFIG, config)

    told = node.uninstalls()
    assert node.read("/etc/default/kubelet") == args
    assert node.read(paths.CONTAINERD_CONFIG) == config
    assert f"{paths.CONTAINERD_CONFIG} was changed since and stays" in told


def test_crio(make: MakeNode, runtime_socket: Path) -> None:
    """It gets a file of its own, and the kubelet no socket with another name."""
    node = make("kubeadm")
    node.at(paths.CRIO).parent.mkdir()
    node.at(paths.CRIO).hardlink_to(runtime_socket)
    flags = node.read("/var/lib/kubelet/kubeadm-flags.env").replace("/run/containerd/containerd.sock", paths.CRIO)
    node.write("/var/lib/kubelet/kubeadm-flags.env", flags)
    before = node.snapshot()

    node.installs(nri=True)
    assert tomllib.loads(node.read(paths.CRIO_NRI))["crio"]["nri"]["enable_nri"]
    assert (node.state / "runtime").read_text() == node.read(paths.CRIO_NRI)
    assert not node.at(paths.CRIO_DROP_IN).exists()
    node.uninstalls()
    assert node.snapshot() == before


def test_a_runtime_that_does_not_ask(make: MakeNode) -> None:
    """All is taken back: also the runtime has its former configuration again, and the kubelet calls criproxy."""
    node = make("plain")
    node.installs()
    before = node.snapshot()
    say_that_nobody_asks(node)

    told = node.refuses(nri=True, timeout_s=0.1)
    assert "nobody asks criproxy (for 0.1 s)" in told
    assert "systemctl restart containerd.service'" not in told, "it was"
    assert node.snapshot() == before
    assert (node.state / "runtime").read_text() == node.read(paths.CONTAINERD_CONFIG)
    assert node.log[-1] == "systemctl restart criproxy.service"


def say_that_nobody_asks(node: MadeUpNode) -> None:
    """Let `criproxy status` say that the runtime does not ask."""
    (node.state / "notices").write_text(json.dumps([{"kind": "nri", "wrong": True, "text": "nobody asks criproxy"}]))


@pytest.mark.parametrize("kind", ["plain", "k3s"])
def test_a_runtime_that_does_not_ask_any_more(make: MakeNode, kind: str) -> None:
    """A second run finds it, changes nothing, and says what may help."""
    node = make(kind)
    node.installs(nri=True)
    before = node.snapshot()
    say_that_nobody_asks(node)

    told = node.refuses(nri=True, timeout_s=0.1)
    unit = {"plain": "containerd", "k3s": "k3s"}[kind]
    assert "nobody asks criproxy (for 0.1 s); if the configuration of the runtime was changed after its start" in told
    assert f"restart it: 'systemctl restart {unit}.service'" in told
    assert ("going back" in told, node.snapshot() == before) == (False, True)


def test_a_runtime_that_has_lost_its_configuration(make: MakeNode) -> None:
    """It gets that again, and is asked whether it asks."""
    node = make("plain")
    before = node.read(paths.CONTAINERD_CONFIG)
    node.installs(nri=True)
    node.write(paths.CONTAINERD_CONFIG, before)
    count = len(node.log)

    node.installs(nri=True)
    assert node.log[count:] == ["systemctl restart containerd.service", ASKED]


def test_another_socket_in_the_options(make: MakeNode) -> None:
    """Set by hand it stays, and it is said where the runtime takes plugins."""
    node = make("plain")
    node.write(paths.DEFAULTS, 'CRIPROXY_OPTIONS="--nri unix:///run/nri.sock"\n')
    say_that_nobody_asks(node)

    told = node.refuses(nri=True, timeout_s=0.1)
    assert f"--nri in {paths.DEFAULTS} names /run/nri.sock, but the runtime takes plugins at {paths.NRI}" in told


def test_what_has_to_be_done_by_hand(make_node: MakeNode) -> None:
    """Nothing is changed, and it says what to do."""
    node = make_node("k3s")
    assert "/run/nri/nri.sock does not exist, and k3s writes containerd's configuration" in node.refuses(nri=True)
    node = make_node("plain")
    node.write(paths.CONTAINERD_CONFIG, "[plugins.cri]\n")
    told = node.refuses(nri=True)
    assert f"{paths.CONTAINERD_CONFIG}: it is of version 1, which has no NRI: begin it with 'version = 2'" in told
    (node.programs / "containerd").write_text("#!/bin/sh\necho containerd containerd.io v1.6.33 d2d58213\n")
    assert "this containerd takes no NRI plugins: containerd 1.7 and newer do" in node.refuses(nri=True)
    assert node.log == []


HEADER = f'[plugins."{NRI_PLUGIN}"]\n'
ON = 'disable = false\nplugin_request_timeout = "10s"\n'
IMPORTS = 'imports = ["conf.d/*.toml"]\n'
DROPPED = "/etc/containerd/conf.d/50-nri.toml"


def test_a_socket_elsewhere(make: MakeNode) -> None:
    """Criproxy connects where the runtime takes plugins; also when that changes later, and where a drop-in says so."""
    node = make("plain")
    node.write(paths.CONTAINERD_CONFIG, f'version = 2\n{HEADER}socket_path = "/var/run/other.sock"\n')
    before = node.snapshot()
    node.installs(nri=True)
    assert "--nri=unix:///run/other.sock" in node.read(paths.DEFAULTS)

    moved = f'version = 2\n{IMPORTS}{HEADER}{ON}socket_path = "/var/run/other.sock"\n'
    node.write(paths.CONTAINERD_CONFIG, moved)
    node.write(DROPPED, f'version = 2\n{HEADER}{ON}socket_path = "/run/third.sock"\n')
    assert "systemctl restart criproxy.service" in node.installs(nri=True)
    assert "--nri=unix:///run/third.sock" in node.read(paths.DEFAULTS)
    assert "Nothing to do" in node.installs(nri=True)
    node.at(DROPPED).unlink()
    node.at(DROPPED).parent.rmdir()
    node.uninstalls(force=True)
    assert node.snapshot() == before


def test_a_file_of_another_name(make: MakeNode) -> None:
    """The one that containerd's unit names is changed, also if it is a link, and of containerd 2."""
    node, name = make("plain"), "/opt/containerd/config.toml"
    node.write("/etc/systemd/system/containerd.service", f"[Service]\nExecStart=/usr/bin/containerd --config {name}\n")
    node.write("/srv/real.toml", f"version = 3\n[plugins.'{NRI_PLUGIN}']\n  disable = true\n")
    node.at("/opt/containerd").mkdir()
    node.at(name).symlink_to("/srv/real.toml")
    before, default = node.snapshot(), node.read(paths.CONTAINERD_CONFIG)

    node.installs(nri=True)
    assert tomllib.loads(node.read("/srv/real.toml"))["plugins"][NRI_PLUGIN]["disable"] is False
    assert node.read(paths.CONTAINERD_CONFIG) == default
    node.uninstalls()
    assert node.snapshot() == before


@pytest.mark.parametrize(
    ("main", "dropped", "said"),
    [
        pytest.param(IMPORTS, f"{HEADER}disable = true\n", "without disable = false, plugin_r", id="off"),
        pytest.param(IMPORTS, f'{HEADER}socket_path = "/x"\n', 'request_timeout = "10s": write that', id="not on"),
        pytest.param(IMPORTS, f'disabled_plugins = ["{NRI_PLUGIN}"]\n', "disabled_plugins has", id="disabled"),
        pytest.param(f"{HEADER}disable_connections = true\n", "", "takes only plugins that it starts", id="closed"),
        pytest.param(IMPORTS, "[", f"{DROPPED}: it is not valid TOML", id="broken"),
    ],
)
def test_files_that_say_otherwise(make: MakeNode, main: str, dropped: str, said: str) -> None:
    """What the change of the main file would not achieve is refused before anything is changed."""
    node = make("plain")
    node.write(paths.CONTAINERD_CONFIG, f"version = 2\n{main}")
    node.write(DROPPED, dropped)
    before = node.snapshot()

    assert said in node.refuses(nri=True)
    assert (node.snapshot(), node.log) == (before, [])


@pytest.mark.parametrize("folder", ["/etc/containerd", "/etc/criproxy", "/etc/default", "/var/lib"])
def test_a_read_only_file_system(make: MakeNode, folder: str) -> None:
    """Where something cannot be written, there is nothing to take back: all else is, and no journal stays."""
    node = make("plain")
    node.at(folder).mkdir(exist_ok=True)
    before = node.snapshot()
    with read_only(node.at(folder)):
        told = node.refuses(nri=True)
    assert "Read-only file system" in told
    assert "could not be undone" not in told
    assert node.snapshot() == before


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a directory a mount point of its own that nobody may write to."""
    mounted = subprocess.run(["mount", "--bind", folder, folder], check=False).returncode == 0
    if not mounted:
        pytest.skip("needs the right to mount")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_drop_in_that_switches_it_on(make: MakeNode) -> None:
    """Nothing of the runtime has to change."""
    node = make("plain")
    node.write(paths.CONTAINERD_CONFIG, f"version = 2\n{IMPORTS}")
    node.write(DROPPED, f"{HEADER}{ON}")

    node.installs(nri=True)
    assert node.read(paths.CONTAINERD_CONFIG) == f"version = 2\n{IMPORTS}"
    assert "systemctl restart containerd.service" not in node.log


def test_other_files_of_crio(make: MakeNode, runtime_socket: Path) -> None:
    """They may name the socket; one that is read later and switches NRI off stands against it."""
    node, last = make("kubeadm"), "/etc/crio/crio.conf.d/99-last.conf"
    node.at(paths.CRIO).parent.mkdir()
    node.at(paths.CRIO).hardlink_to(runtime_socket)
    node.write("/etc/crio/crio.conf", '[crio.nri]\nnri_listen = "/run/crio/nri.sock"\n')
    node.write(last, "[crio.nri]\nenable_nri = false\n")

    said = f"{last} has enable_nri = false, and is read after {paths.CRIO_NRI}: write true there"
    assert said in node.refuses(nri=True, runtime=paths.CRIO)
    node.at(last).unlink()
    node.installs(nri=True, runtime=paths.CRIO)
    assert "--nri=unix:///run/crio/nri.sock" in node.read(paths.DEFAULTS)


@pytest.mark.parametrize(
    ("earlier", "own", "later", "written"),
    [
        ("30s", None, None, "30s"),
        ("1s", None, None, "10s"),
        ("30s", "12s", None, "12s"),
        (None, "5s", None, "10s"),
        ("1s", None, "1m", "10s"),
        (None, None, "5s", ""),
    ],
)
def test_the_time_that_files_of_crio_give_plugins(
    make: MakeNode, runtime_socket: Path, earlier: str | None, own: str | None, later: str | None, written: str
) -> None:
    """The file that is read last counts: 10 s or more stays, and less is raised, or refused in a later file."""
    node, last = make("kubeadm"), "/etc/crio/crio.conf.d/99-last.conf"
    node.at(paths.CRIO).parent.mkdir()
    node.at(paths.CRIO).hardlink_to(runtime_socket)
    for file, timeout in (("/etc/crio/crio.conf", earlier), (paths.CRIO_NRI, own), (last, later)):
        if timeout is not None:
            node.write(file, f'[crio.nri]\nnri_plugin_request_timeout = "{timeout}"\n')

    if not written:
        said = f'{last} has nri_plugin_request_timeout = "5s", and is read after {paths.CRIO_NRI}: write "10s" there'
        assert said in node.refuses(nri=True, runtime=paths.CRIO)
        return
    for _ in range(2):
        node.installs(nri=True, runtime=paths.CRIO)
        assert tomllib.loads(node.read(paths.CRIO_NRI))["crio"]["nri"]["nri_plugin_request_timeout"] == written


def test_what_nri_cannot_do_is_noted(make: MakeNode) -> None:
    """Before anything is done."""
    policy = "policy: static\ndevices: {privileged: deny}\n"
    node, text = make("plain"), "note: devices.privileged: deny has no effect with NRI"
    write_sysfs(node.root, machine(nodes=1, cores=2, threads=1))

    assert text in node.installs(policy=policy, nri=True, dry_run=True)
    assert text not in node.installs(policy=policy, dry_run=True)
