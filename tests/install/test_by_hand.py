"""`criproxy install` and `uninstall` on nodes whose kubelet was pointed at criproxy by hand."""

import pytest

from criproxy.install import paths
from tests.install.conftest import MakeNode
from tests.install.nodes import KINDS, KUBELET, RUNTIME, MadeUpNode

PROXY = f"unix://{paths.SOCKET}"
CONFIGURATION = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
OURS = f"{CONFIGURATION}containerRuntimeEndpoint: {PROXY}\n"
OTHER = f"{CONFIGURATION}containerRuntimeEndpoint: unix://{paths.K3S_CONTAINERD}\n"
KILLED, CHANGES_MAX = -9, 400
BY_HAND = {
    "kubeadm": ("/etc/default/kubelet", f"KUBELET_EXTRA_ARGS=--container-runtime-endpoint={PROXY}\n"),
    "kubeadm-rpm": ("/etc/sysconfig/kubelet", f'KUBELET_EXTRA_ARGS="--v=4 --container-runtime-endpoint={PROXY}"\n'),
    "k3s": (
        "/etc/rancher/k3s/config.yaml",
        f"token: secret\nkubelet-arg:\n  - max-pods=200\n  - container-runtime-endpoint={PROXY}\n",
    ),
    "k3s-agent": ("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-criproxy.conf", OURS),
    "rke2": ("/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/99-criproxy.conf", OURS),
    "plain": ("/var/lib/kubelet/kubelet-config.yaml", OURS),
}
"""A file in which docs/install.md offers to set the endpoint, and its text."""


def set_up(node: MadeUpNode, file: str, text: str) -> None:
    """Let criproxy run, and the kubelet call it, by what docs/install.md says."""
    runtime = RUNTIME.get(node.kind, paths.CONTAINERD)
    node.write(paths.DEFAULTS, f'CRIPROXY_OPTIONS="--runtime-endpoint unix://{runtime}"\n')
    node.start_criproxy()
    node.write(file, text)
    node.restart_kubelet()


def check_removed(node: MadeUpNode) -> None:
    """Check that the kubelet calls the runtime, that criproxy does not run, and in which order that came about."""
    assert paths.SOCKET not in (node.state / "kubelet").read_text()
    assert not [*(node.state / "is-active").glob("criproxy*")]
    stop = f"systemctl disable --now {' '.join(paths.ACTIVE)}"
    restart = f"systemctl restart {KUBELET[node.kind]}.service"
    released = next(line for line in node.log if line.startswith("criproxy release"))
    assert node.log.index(released) < len(node.log) - node.log[::-1].index(restart) <= node.log.index(stop)


CONF_D = [
    pytest.param("k3s", "/var/lib/rancher/k3s", "00-k3s-defaults.conf", id="k3s"),
    pytest.param("rke2", "/var/lib/rancher/rke2", "00-rke2-defaults.conf", id="rke2"),
    pytest.param("k3s", "/data", "00-k3s-defaults.conf", id="data-dir"),
]


@pytest.mark.parametrize(("kind", "data", "defaults"), CONF_D)
def test_a_file_of_the_kubelet_in_k3s(make_node: MakeNode, kind: str, data: str, defaults: str) -> None:
    """It is the endpoint: there is nothing to install, and an uninstallation removes it before criproxy stops."""
    node = make_node(kind, has_package=True)
    folder = f"{data}/agent/etc/kubelet.conf.d"
    if data == "/data":
        node.write("/etc/rancher/k3s/config.yaml", "data-dir: /data\n")
    node.write(f"{folder}/{defaults}", OTHER)
    set_up(node, f"{folder}/99-criproxy.conf", OURS)

    status, told = node.install()
    assert (status, f"kubelet's endpoint: {PROXY}" in told, "Nothing to do" in told) == (0, True, True), told
    told = node.uninstalls()
    check_removed(node)
    assert not node.at(f"{folder}/99-criproxy.conf").exists()
    assert node.read(f"{folder}/{defaults}") == OTHER
    assert "Nothing to do" in node.uninstalls()


@pytest.mark.parametrize(
    ("settings", "file", "more"),
    [
        ("", "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-criproxy.conf", "maxPods: 200\n"),
        ("kubelet-arg: [config-dir=/etc/kubelet.d]\n", "/etc/kubelet.d/99-criproxy.conf", ""),
        ("kubelet-arg: [config=/etc/kubelet.yaml]\n", "/etc/kubelet.yaml", ""),
    ],
)
def test_what_else_a_file_of_the_kubelet_in_k3s_says(make_node: MakeNode, settings: str, file: str, more: str) -> None:
    """It stays, and so does a file or directory that the kubelet would miss."""
    node = make_node("k3s", has_package=True)
    node.write("/etc/rancher/k3s/config.yaml", settings)
    set_up(node, file, f"{OURS}{more}")

    node.uninstalls()
    assert node.read(file) == f"{CONFIGURATION}{more}"
    check_removed(node)


def test_a_file_of_k3s_that_names_another_socket(make_node: MakeNode) -> None:
    """It changes nothing: k3s itself writes one."""
    node = make_node("k3s")
    node.write("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", OTHER)
    before = node.snapshot()

    assert "Nothing to do" in node.uninstalls()
    status, told = node.install()
    assert (status, "kubelet's endpoint: its default" in told) == (0, True), told
    assert PROXY in node.read("/etc/rancher/k3s/config.yaml.d/99-criproxy.yaml")
    node.uninstall()
    assert {**node.snapshot(), "kubelet": ""} == {**before, "kubelet": ""}


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_an_endpoint_from_before_the_installation(make_node: MakeNode, kind: str, is_running: bool) -> None:
    """The journal does not have it; uninstalling removes it before criproxy stops, as a dry run says."""
    node = make_node(kind, has_package=True)
    file, text = BY_HAND[kind]
    if is_running:
        set_up(node, file, text)
    else:
        node.write(file, text)
        node.restart_kubelet()
    runtime = RUNTIME.get(kind, paths.CONTAINERD)
    status, told = node.install(policy="policy: balloons\n", runtime=runtime)
    assert (status, node.at(paths.JOURNAL).exists()) == (0, True), told
    assert node.read(file) == text
    installed = node.snapshot()

    _, told = node.uninstall(dry_run=True)
    assert node.snapshot() == installed
    assert f"write {file}: the kubelet calls the runtime" in told
    assert told.index(f"systemctl restart {KUBELET[kind]}.service") < told.index("systemctl disable --now")
    assert f"write {file}: the kubelet calls the runtime" in node.uninstalls()
    check_removed(node)
    assert node.read(paths.POLICY) == "policy: static\n"
    assert not node.at(paths.JOURNAL).exists()
    assert "Nothing to do" in node.uninstalls()


def test_an_endpoint_from_after_the_installation(make_node: MakeNode) -> None:
    """What an administrator has set in a second place is removed as well, and the kubelet restarts once."""
    node = make_node("kubeadm")
    before = node.read("/var/lib/kubelet/config.yaml")
    node.install()
    node.write("/var/lib/kubelet/config.yaml", before.replace('""', PROXY))
    flags = node.read("/var/lib/kubelet/kubeadm-flags.env")
    node.write("/var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS=""\n')
    count = node.log.count("systemctl restart kubelet.service")

    node.uninstalls()
    check_removed(node)
    assert node.log.count("systemctl restart kubelet.service") == count + 1
    assert flags != node.read("/var/lib/kubelet/kubeadm-flags.env")


@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize(
    ("kind", "file", "text"),
    [
        (
            "plain",
            "/etc/systemd/system/kubelet.service",
            f"[Service]\nExecStart=/bin/kubelet --container-runtime-endpoint={PROXY}\n",
        ),
        (
            "k3s",
            "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-criproxy.conf",
            f'{{"containerRuntimeEndpoint": "{PROXY}"}}\n',
        ),
    ],
    ids=["command-line", "json"],
)
def test_an_endpoint_that_has_to_be_removed_by_hand(
    make_node: MakeNode, kind: str, file: str, text: str, has_journal: bool
) -> None:
    """The uninstallation changes nothing and says which file it is, also with --force."""
    node = make_node(kind, has_package=True)
    set_up(node, file, text)
    if has_journal:
        status, told = node.install(policy="policy: balloons\n")
        assert (status, node.at(paths.JOURNAL).exists()) == (0, True), told
    before, log = node.snapshot(), node.log

    for is_dry, force in ((True, False), (False, False), (False, True)):
        assert file in node.refuses(action="uninstall", dry_run=is_dry, force=force)
        assert (node.snapshot(), node.log) == (before, log)


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", ["kubeadm", "k3s-agent"])
def test_a_kill_while_the_endpoint_is_removed(make_node: MakeNode, kind: str, stride: int) -> None:
    """At no change is the kubelet cut off; the next uninstallation does the rest."""
    for number in range(1, CHANGES_MAX, stride):
        node = make_node(kind, has_package=True)
        set_up(node, *BY_HAND[kind])
        node.install(policy="policy: balloons\n")
        status, told = node.uninstall(fault="kill", at=number)
        assert status in (0, KILLED), told
        assert not node.is_cut_off, (number, told)
        again, told_again = node.uninstall()
        assert again == 0, (number, told, told_again)
        check_removed(node)
        if status == 0:
            return
    raise AssertionError("no end")
