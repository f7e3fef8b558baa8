"""`criproxy install` and `criproxy uninstall` on made-up nodes."""

import asyncio
import base64
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from criproxy.agent.kubernetes.client import NODES
from criproxy.config.load import load
from criproxy.errors import ConfigError
from criproxy.install import paths
from criproxy.install.texts import environment_of
from criproxy.simulate.hosts import machine
from lab.apiserver.server import ApiServer
from tests.asking import criproxy
from tests.conftest import ROOT
from tests.install.conftest import MakeNode
from tests.install.nodes import KINDS, KUBELET, MadeUpNode
from tests.sysfs import write_sysfs

CHANGED = {
    "kubeadm": "/etc/default/kubelet",
    "kubeadm-rpm": "/etc/sysconfig/kubelet",
    "k3s": "/etc/rancher/k3s/config.yaml.d/99-criproxy.yaml",
    "k3s-agent": "/etc/rancher/k3s/config.yaml.d/99-criproxy.yaml",
    "rke2": "/etc/rancher/rke2/config.yaml.d/99-criproxy.yaml",
    "plain": "/var/lib/kubelet/kubelet-config.yaml",
}
"""The file that names the kubelet's endpoint."""
PROXY = "unix:///run/criproxy/criproxy.sock"
MACHINE = machine(nodes=1, cores=2, threads=1)
TOKEN = "a-secret-of-22-letters\n"  # noqa: S105 (of these tests)


@pytest.mark.parametrize("has_package", [True, False], ids=["package", "container"])
@pytest.mark.parametrize("kind", KINDS)
def test_install_and_uninstall(make_node: MakeNode, kind: str, has_package: bool) -> None:
    """The kubelet restarts with criproxy's socket; a second run does nothing; uninstalled, the node is as before."""
    node = make_node(kind, has_package=has_package)
    before = node.snapshot()

    told = node.installs()
    assert PROXY in node.read(CHANGED[kind])
    assert PROXY in (node.state / "kubelet").read_text()
    assert node.log[-2:] == [f"systemctl restart {KUBELET[kind]}.service", "criproxy status --format json"]
    installed = node.snapshot()

    assert "Nothing to do: criproxy is installed" in node.installs()
    assert node.snapshot() == installed

    told = node.uninstalls()
    assert node.snapshot() == before
    told = node.uninstalls()
    assert told.strip() == "Nothing to do: the kubelet does not call criproxy, and criproxy does not run."


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run(make_node: MakeNode, kind: str) -> None:
    """It tells every step that the installation then takes, in the same words, and changes nothing."""
    node = make_node(kind)
    before = node.snapshot()

    _, told = node.install(dry_run=True)
    assert (node.snapshot(), node.log) == (before, [])
    steps = [line.partition(". ")[2] for line in told.splitlines() if line.lstrip()[:1].isdigit()]
    assert f"write {CHANGED[kind]}: the kubelet calls criproxy" in steps
    _, told = node.install()
    assert [line for line in told.splitlines() if line in steps] == steps

    installed = node.snapshot()
    _, told = node.uninstall(dry_run=True)
    assert node.snapshot() == installed
    assert "release all containers" in told
    assert CHANGED[kind] in told


def test_kubeadm_keeps_the_arguments_of_administrators(make_node: MakeNode) -> None:
    """The endpoint is added to KUBELET_EXTRA_ARGS, and comments and other arguments stay."""
    node = make_node("kubeadm")
    node.install()

    expected = f'# For administrators.\nKUBELET_EXTRA_ARGS="--node-ip=10.0.0.5 --container-runtime-endpoint={PROXY}"\n'
    assert node.read("/etc/default/kubelet") == expected
    assert (
        node.read("/etc/systemd/system/kubelet.service.d/20-criproxy.conf")
        == (ROOT / "systemd/kubelet.service.d/20-criproxy.conf").read_text()
    )


def test_k3s_gets_the_runtime_of_its_own(make_node: MakeNode) -> None:
    """Criproxy calls k3s's containerd, and the arguments of the kubelet in the main file stay in effect."""
    node = make_node("k3s")
    node.install()

    assert node.read(paths.DEFAULTS) == f'CRIPROXY_OPTIONS="--runtime-endpoint=unix://{paths.K3S_CONTAINERD}"\n'
    assert yaml.safe_load(node.read(CHANGED["k3s"])) == {"kubelet-arg+": [f"container-runtime-endpoint={PROXY}"]}


def test_changes_by_others_stay(make_node: MakeNode) -> None:
    """Uninstalling removes only criproxy's setting from a file that an administrator has changed since."""
    node = make_node("kubeadm")
    node.install()
    text = node.read("/etc/default/kubelet")
    node.write("/etc/default/kubelet", text.replace("--node-ip=10.0.0.5", "--node-ip=10.0.0.6 -v=4"))
    node.write(paths.POLICY, "policy: none\n")

    told = node.uninstalls()
    assert node.read("/etc/default/kubelet") == '# For administrators.\nKUBELET_EXTRA_ARGS="--node-ip=10.0.0.6 -v=4"\n'
    assert f"{paths.POLICY} was changed since and stays" in told
    assert node.read(paths.POLICY) == "policy: none\n"


def test_a_new_policy(make_node: MakeNode) -> None:
    """A second installation with another policy only writes the file; uninstalling removes it all the same."""
    node = make_node("plain")
    before = node.snapshot()
    node.install()
    count = len(node.log)

    node.installs(policy="policy: balloons\n")
    assert (node.read(paths.POLICY), node.log[count:]) == ("policy: balloons\n", [])
    node.uninstall()
    assert node.snapshot() == before


CLASSES = "policy: static\nclasses: {gold: {scheduling: {nice: -5}}}\n"
CONTROLS = ["systemctl disable --now criproxy-controls.service", "criproxy controls --put-back"]
"""How what classes have set is taken back."""


@pytest.mark.parametrize("has_package", [True, False], ids=["package", "container"])
def test_classes_get_what_applies_them(make_node: MakeNode, *, has_package: bool) -> None:
    """Its unit is started for a policy file with classes only; uninstalled, what it has changed is put back first."""
    node = make_node("plain", has_package=has_package)
    before = node.snapshot()
    node.installs()
    assert not any("controls" in line for line in node.log)
    count = len(node.log)

    node.installs(policy=CLASSES)
    assert node.log[count:] == ["systemctl enable --now criproxy-controls.service"]
    count, installed = len(node.log), node.snapshot()
    node.installs(policy=CLASSES)
    assert (node.log[count:], node.snapshot()) == ([], installed)

    node.uninstalls()
    assert [line for line in node.log[count:] if "controls" in line] == CONTROLS
    assert node.snapshot() == before


def test_controls_run_for_classes_of_the_cluster(make_node: MakeNode) -> None:
    """Whoever asks for it gets it without classes in the policy file."""
    node = make_node("plain")

    node.installs(controls=True)
    assert "systemctl enable --now criproxy-controls.service" in node.log
    node.uninstalls()
    assert [line for line in node.log if "controls" in line][-2:] == CONTROLS


def test_an_installation_with_classes_that_fails_is_taken_back(make_node: MakeNode) -> None:
    """Also what it had started for them."""
    node = make_node("plain")
    before = node.snapshot()
    node.fail_on("restart kubelet")

    node.refuses(policy=CLASSES)
    node.fail_on("")
    node.uninstalls()
    assert [line for line in node.log if "controls" in line][-2:] == CONTROLS
    assert node.snapshot() == before


def test_what_administrators_started_for_classes_is_put_back(make_node: MakeNode) -> None:
    """Also where no installation has started it."""
    node = make_node("plain", has_package=True)
    node.installs()
    subprocess.run([node.programs / "systemctl", "enable", "--now", paths.CONTROLS], check=True)
    count = len(node.log)

    node.uninstalls()
    assert [line for line in node.log[count:] if "controls" in line] == CONTROLS


def test_a_new_version(make_node: MakeNode) -> None:
    """A container with another version replaces the program and restarts criproxy, and not the kubelet."""
    node = make_node("k3s")
    before = node.snapshot()
    node.install()
    version = node.folder / "image/lib/python3.11/site-packages/criproxy/__init__.py"
    installed = node.at("/opt/criproxy/lib/python3.11/site-packages/criproxy/__init__.py")
    installed.write_text('__version__ = "0.0.1"\n')
    count = len(node.log)

    node.installs()
    assert installed.read_text() == version.read_text()
    assert node.log[count:] == ["systemctl restart criproxy.service"]
    assert [path.name for path in node.at("/opt").iterdir()] == ["criproxy"]
    node.uninstall()
    assert node.snapshot() == before


def options(node: MadeUpNode) -> str:
    """Return the options of the unit."""
    return environment_of(node.read(paths.DEFAULTS))[paths.OPTIONS]


def test_the_page(make_node: MakeNode) -> None:
    """The address and the token get to the node, can be changed and taken back, and go with an uninstallation."""
    node = make_node("k3s")
    before = node.snapshot()
    node.install(http="0.0.0.0:9820", page_token=TOKEN)
    runtime = f"--runtime-endpoint=unix://{paths.K3S_CONTAINERD}"
    assert options(node) == f"{runtime} --http=0.0.0.0:9820 --http-token-file={paths.PAGE_TOKEN}"
    assert (node.read(paths.PAGE_TOKEN), node.at(paths.PAGE_TOKEN).stat().st_mode & 0o777) == (TOKEN, 0o600)
    count = len(node.log)

    assert "Nothing to do" in node.installs()
    node.install(http="0.0.0.0:9820", page_token=f"2{TOKEN}")
    assert node.log[count:] == [], "criproxy reads another token by itself"
    node.install(http=":9820")
    assert options(node) == f"{runtime} --http=:9820"
    assert not node.at(paths.PAGE_TOKEN).exists()
    assert node.log[count:] == ["systemctl restart criproxy.service"]
    node.install(http="")
    assert options(node) == runtime
    assert "Nothing to do" in node.installs(http="")
    status, told = node.uninstall()
    assert (status, node.snapshot() == before) == (0, True), told


def test_the_page_of_administrators(make_node: MakeNode) -> None:
    """What they have set stays when the page is off for us, and comes back after another address."""
    node = make_node("kubeadm")
    node.write(paths.DEFAULTS, "# Ours.\nCRIPROXY_OPTIONS=--http=:9999\n")
    before = node.snapshot()

    node.install(http="")
    assert options(node) == "--http=:9999"
    node.install(http=":9820")
    assert options(node) == "--http=:9820"
    node.uninstall()
    assert node.snapshot() == before


def test_options_of_the_daemon(make_node: MakeNode) -> None:
    """They get to the node, are changed and taken back, and stay where nothing is said about them."""
    node = make_node("k3s")
    runtime = f"--runtime-endpoint=unix://{paths.K3S_CONTAINERD}"
    node.install(serve={"log-level": "debug", "trace-calls": "CreateContainer"})
    assert options(node) == f"{runtime} --log-level=debug --trace-calls=CreateContainer"
    assert "Nothing to do" in node.installs()
    count = len(node.log)

    node.install(serve={"log-level": "warning"})
    assert options(node) == f"{runtime} --log-level=warning"
    assert node.log[count:] == ["systemctl restart criproxy.service"]
    node.install(serve={})
    assert options(node) == runtime


def test_options_of_the_daemon_that_administrators_set(make_node: MakeNode) -> None:
    """They stay when none is set here."""
    node = make_node("kubeadm")
    node.write(paths.DEFAULTS, "# Ours.\nCRIPROXY_OPTIONS=--log-level=debug\n")
    node.install(serve={})
    assert options(node) == "--log-level=debug"


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        pytest.param("log-level", "is not NAME=VALUE with one of log-level, log-format, trace-calls", id="no value"),
        pytest.param("config=/a", "is not NAME=VALUE", id="one that is set otherwise"),
        pytest.param("trace-calls=$(a)", "is not NAME=VALUE", id="a character for the shell"),
        pytest.param("log-level=loud", "log-level must be one of debug, info, warning, error, not 'loud'", id="value"),
    ],
)
def test_wrong_options_of_the_daemon(tmp_path: Path, option: str, complaint: str) -> None:
    """They are refused before anything is looked at."""
    arguments = ["install", "--dry-run", f"--host-root={tmp_path}", f"--serve-option={option}"]
    result = criproxy(*arguments)
    assert (result.exit_code, complaint in result.stderr) == (2, True), result.output


def test_a_secret_of_the_page_is_not_told(make_node: MakeNode) -> None:
    """Neither by a dry run nor by an installation, nor does the journal show it to others."""
    node = make_node("plain")
    for is_dry in (True, False):
        _, told = node.install(http=":9820", page_token=TOKEN, dry_run=is_dry)
        assert f"write {paths.PAGE_TOKEN}: the token of the page" in told
        assert "secret" not in told
    assert node.at(paths.JOURNAL).stat().st_mode & 0o777 == 0o600


def test_no_release_no_uninstallation(make_node: MakeNode) -> None:
    """While containers may be pinned, nothing is changed; with --force, it is."""
    node = make_node("kubeadm")
    before = node.snapshot()
    node.install()
    installed = node.snapshot()
    node.fail_on("release")

    status, told = node.uninstall()
    assert (status, "containers may still be pinned" in told, node.snapshot()) == (1, True, installed)
    status, _ = node.uninstall(force=True)
    assert (status, node.snapshot() == before) == (0, True)


@pytest.mark.parametrize("kind", KINDS)
def test_uninstall_what_was_installed_by_hand(make_node: MakeNode, kind: str) -> None:
    """Without a journal, the kubelet is pointed back at the runtime, and criproxy is stopped."""
    node = make_node(kind, has_package=True)
    before = node.snapshot()
    node.install()
    node.at(paths.JOURNAL).unlink()

    node.uninstalls()
    assert "criproxy.sock" not in (node.state / "kubelet").read_text()
    after = {name: value for name, value in node.snapshot().items() if name in before and name != "kubelet"}
    changed = {name for name in after if after[name] != before[name]}
    assert changed <= {f"root{CHANGED[kind]}", "root/etc/default/criproxy"}
    assert "root/etc/systemd/system/kubelet.service.d/20-criproxy.conf" not in node.snapshot()
    assert "Nothing to do" in node.uninstalls()


def test_the_kubelet_does_not_call(make_node: MakeNode) -> None:
    """If no call arrives after the restart of the kubelet, the installation is taken back, with a second restart."""
    node = make_node("kubeadm")
    before = node.snapshot()
    (node.state / "last_call_s").write_text("900.5")

    status, told = node.install(timeout_s=0.5)
    assert (status, "has not called criproxy" in told, node.snapshot()) == (1, True, before)
    assert node.log.count("systemctl restart kubelet.service") == 2


@pytest.mark.parametrize("crashes", ["SubState=auto-restart", "ActiveState=failed"])
def test_a_kubelet_that_crashes_is_not_waited_for(make_node: MakeNode, crashes: str) -> None:
    """Long before the time is over, the installation is taken back, and says where the reason is."""
    node = make_node("kubeadm")
    before = node.snapshot()
    (node.state / "last_call_s").write_text("900.5")
    (node.state / "crashes").write_text(f"{crashes}\nResult=exit-code\nExecMainStatus=1\n")

    begun_s = time.monotonic()
    status, told = node.install(timeout_s=100.0)
    assert (status, time.monotonic() - begun_s < 60.0) == (1, True), told
    assert "kubelet.service ends again and again (exit-code, status 1): 'journalctl -u kubelet.service' shows" in told
    assert node.snapshot() == before


@asynccontextmanager
async def api_server(folder: Path, status: str, heartbeat: datetime, token: str) -> AsyncIterator[str]:
    """An API server whose node has a condition; the path of a kubeconfig file for it."""
    condition = {"type": "Ready", "status": status, "message": "as made up"}
    condition["lastHeartbeatTime"] = heartbeat.strftime("%Y-%m-%dT%H:%M:%SZ")
    async with ApiServer() as server:
        server.faults.tokens = {"secret"}
        server.objects.create(NODES, {"metadata": {"name": "node-1"}, "status": {"conditions": [condition]}})
        kubeconfig = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        file = folder / "kubelet.conf"
        file.write_text(yaml.safe_dump(kubeconfig))
        yield str(file)


@pytest.mark.parametrize(
    ("status", "age_s", "token", "said"),
    [
        pytest.param("True", -60, "secret", "", id="ready"),
        pytest.param("False", -60, "secret", "node node-1 is not Ready: as made up", id="not-ready"),
        pytest.param("True", 3600, "secret", "has not reported since its restart", id="stale"),
        pytest.param("True", -60, "wrong", "get /api/v1/nodes/node-1: 401 Unauthorized", id="not-allowed"),
    ],
)
async def test_the_node_is_ready(make_node: MakeNode, status: str, age_s: int, token: str, said: str) -> None:
    """Only a report from after the restart counts; without one, the installation is taken back."""
    node = make_node("kubeadm")
    before = node.snapshot()
    heartbeat = datetime.now(UTC) - timedelta(seconds=age_s)
    async with api_server(node.folder, status, heartbeat, token) as kubeconfig:
        code, told = await asyncio.to_thread(node.install, kubeconfig=kubeconfig, timeout_s=0.5 if said else 60.0)

    assert code == (1 if said else 0), told
    assert said in told
    assert (node.snapshot() == before) == bool(said)


def test_cri_o_gets_a_socket_that_the_kubelet_recognises(make_node: MakeNode, runtime_socket: Path) -> None:
    """The path ends in run/crio/crio.sock."""
    node = make_node("kubeadm")
    node.at(paths.CRIO).parent.mkdir()
    node.at(paths.CRIO).hardlink_to(runtime_socket)
    flags = node.read("/var/lib/kubelet/kubeadm-flags.env").replace("/run/containerd/containerd.sock", paths.CRIO)
    node.write("/var/lib/kubelet/kubeadm-flags.env", flags.replace("/var/run", "/run"))

    node.installs()
    assert f"unix://{paths.CRIO_SOCKET}" in node.read("/etc/default/kubelet")
    assert f"--runtime-endpoint=unix://{paths.CRIO}" in node.read(paths.DEFAULTS)


def test_a_runtime_that_does_not_answer(make_node: MakeNode) -> None:
    """If no call comes back through criproxy, the kubelet is not touched."""
    node = make_node("plain")
    runtime = node.at(paths.CONTAINERD)
    runtime.unlink()
    with socket.socket(socket.AF_UNIX) as nobody, chdir(runtime.parent):  # the whole path may be too long
        nobody.bind(runtime.name)
    before = node.snapshot()

    assert "going back" in node.refuses(timeout_s=0.5)
    assert node.snapshot() == before
    assert "systemctl restart kubelet.service" not in node.log


@pytest.mark.parametrize("kind", ["kubeadm", "kubeadm-rpm", "plain"])
def test_a_file_with_several_names(make_node: MakeNode, kind: str) -> None:
    """The names would lead to two files afterwards, so that the installation does not begin; what it says helps."""
    node = make_node(kind)
    file = node.at(CHANGED[kind])
    told = ""
    node.at("/etc/of-another").hardlink_to(file)
    before = node.snapshot()

    for is_dry in (True, False):
        told = node.refuses(dry_run=is_dry)
        assert f"{CHANGED[kind]} has several hard links" in told
        assert (node.snapshot(), node.log) == (before, [])
    assert file.stat().st_nlink == 2
    commands = re.findall("'((?:cp|mv) [^']*)'", told)
    subprocess.run(["sh", "-ec", "; ".join(commands).replace(" /", f" {node.root}/")], check=True)
    before = node.snapshot()
    node.installs()
    told = node.uninstalls()
    assert node.snapshot() == before, told
    assert node.read("/etc/of-another") == node.read(CHANGED[kind])


@pytest.mark.parametrize(
    ("kubelet", "policy", "noted"),
    [
        ("", "policy: static\n", ""),
        ('reservedSystemCPUs: "0"\n', 'policy: static\nreservedCpus: "0"\n', ""),
        ('reservedSystemCPUs: "0"\n', "policy: static\n", "but this policy reserves no CPU: pods also run on CPU 0"),
        (
            "",
            'policy: static\nreservedCpus: "0"\n',
            "note: the kubelet reserves no CPU (reservedSystemCPUs is not set), but this policy reserves CPU 0: the",
        ),
        ('reservedSystemCPUs: "0"\n', "policy: none\n", ""),
    ],
)
@pytest.mark.parametrize("way", ["of the node", "named"])
def test_the_reserved_cpus_are_compared(make_node: MakeNode, kubelet: str, policy: str, noted: str, way: str) -> None:
    """Those of the kubelet and of the policy with which criproxy is to start; a difference is no obstacle."""
    node = make_node("kubeadm", has_package=True)
    write_sysfs(node.root, MACHINE)
    node.write("/var/lib/kubelet/config.yaml", kubelet)
    node.write(paths.POLICY, policy if way == "of the node" else "policy: none\n")

    told = node.installs(policy=policy if way == "named" else None)
    assert (noted in told, "this policy reserves" in told) == (True, bool(noted)), told


def test_a_page_that_nobody_could_open(make_node: MakeNode) -> None:
    """Beside loopback it needs a token: without one, that is said before anything is done."""
    node = make_node("kubeadm", has_package=True)
    text = "note: nobody will be able to open the page at 0.0.0.0:9820: it is not on loopback, and there is no token"
    for http, token, noted in (("0.0.0.0:9820", "", True), ("0.0.0.0:9820", TOKEN, False), (":9820", "", False)):
        status, told = node.install(http=http, page_token=token, dry_run=True)
        assert (status, text in told) == (0, noted), told
    node.write(paths.DEFAULTS, "CRIPROXY_OPTIONS=--http-token-file=/etc/own-token\n")
    _, told = node.install(http="0.0.0.0:9820", dry_run=True)
    assert text not in told, told


KUBEADM, PLAIN = ("kubeadm", "/var/lib/kubelet/config.yaml"), ("plain", "/var/lib/kubelet/kubelet-config.yaml")
K3S, ARGS = ("k3s", "/etc/rancher/k3s/config.yaml"), ("kubeadm", "/etc/default/kubelet")
STATIC, DROPPED = "cpuManagerPolicy is static", "agent/etc/kubelet.conf.d/10-ours.conf"
CALLS = "KUBELET_EXTRA_ARGS=--container-runtime-endpoint=unix://"
OBSTACLES = {
    "cpu-manager": (KUBEADM, "cpuManagerPolicy: static\n", STATIC),
    "memory-manager": (K3S, "kubelet-arg: [memory-manager-policy=Static]\n", "memoryManagerPolicy is Static"),
    "nri-plugin": (
        ("plain", "/proc/77/cmdline"),
        "/bin/nri-resource-policy-balloons\x00-v\x00",
        "nri-resource-policy-balloons runs",
    ),
    "koordinator": (
        ARGS,
        f"{CALLS}/var/run/koord-runtimeproxy/runtimeproxy.sock\n",
        "Koordinator's runtime proxy has the socket /run/koord-runtimeproxy/runtimeproxy.sock",
    ),
    "nri-plugin-file": (("plain", "/opt/nri/plugins/90-topology-aware"), "", "starts the NRI plugin"),
    "cri-rm": (ARGS, f"{CALLS}/run/cri-resmgr/cri-resmgr.sock\n", "CRI Resource Manager"),
    "no-runtime": (
        ("rke2", "/etc/rancher/rke2/config.yaml"),
        "container-runtime-endpoint: /run/other.sock\n",
        "no runtime listens on /run/other.sock",
    ),
    "kubelet-arg": (
        ("k3s", "/etc/systemd/system/k3s.service"),
        "[Service]\nExecStart=/bin/k3s server --kubelet-arg v=4\n",
        "--kubelet-arg on its command line",
    ),
    "an-empty-second-document": (KUBEADM, "cpuManagerPolicy: static\n---\n", STATIC),
    "json-with-tabs": (KUBEADM, '{\n\t"cpuManagerPolicy": "static"\n}\n', STATIC),
    "k3s-an-empty-second-document": (K3S, "kubelet-arg:\n- cpu-manager-policy=static\n---\n", STATIC),
    "k3s-an-unclosed-quote": (
        K3S,
        'token: "secret\nkubelet-arg: [cpu-manager-policy=static]\n',
        f"cannot read {K3S[1]}: it is not valid YAML",
    ),
    "two-documents": (
        PLAIN,
        "a: 1\n---\ncpuManagerPolicy: static\n",
        f"cannot read {PLAIN[1]}: it has several documents",
    ),
    "no-such-day": (PLAIN, "a: 2026-13-45\n", f"cannot read {PLAIN[1]}: it is not valid YAML"),
    "no-config-dir": (
        ARGS,
        "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d\n",
        "cannot read /etc/kubernetes/kubelet.conf.d: there is no such directory",
    ),
    "no-config": (
        ARGS,
        "KUBELET_EXTRA_ARGS=--config=/etc/none.yaml\n",
        "cannot read /etc/none.yaml: there is no such file",
    ),
    "k3s-with-dashes": (K3S, "kubelet-arg:\n- --cpu-manager-policy=static\n", STATIC),
    "k3s-drop-in": (("k3s", f"/var/lib/rancher/k3s/{DROPPED}"), "cpuManagerPolicy: static\n", STATIC),
    "rke2-drop-in": (
        ("rke2", f"/var/lib/rancher/rke2/{DROPPED}"),
        "memoryManagerPolicy: [\n",
        f"cannot read /var/lib/rancher/rke2/{DROPPED}: it is not valid YAML",
    ),
    "several-lines": (ARGS, "KUBELET_EXTRA_ARGS=-v=4 \\\n  --node-ip=::1\n", "over several lines"),
    **{
        name: (("kubeadm", "/proc/77/cmdline"), f"/{name}\0-v=4\0", f"{name} runs on this node")
        for name in ("koordlet", "koord-runtime-proxy", "katalyst-agent", "dracpu", "cpusetter", "cpu-pooler")
    },
}
"""Kind of node and file, its content, and what the message says."""


@pytest.mark.parametrize(("place", "text", "said"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_stands_against_it(make_node: MakeNode, place: tuple[str, str], text: str, said: str) -> None:
    """Nothing is changed, and the message says what is wrong."""
    node = make_node(place[0])
    node.write(place[1], text)
    before = node.snapshot()

    assert said in node.refuses()
    assert (node.snapshot(), node.log) == (before, [])


@pytest.mark.parametrize(
    ("settings", "file"),
    [
        ("data-dir: /data\n", "/data/agent/etc/kubelet.conf.d/10-ours.conf"),
        ("kubelet-arg: [config=/etc/kubelet.yaml]\n", "/etc/kubelet.yaml"),
        ("kubelet-arg: [--config-dir=/etc/kubelet.d]\n", "/etc/kubelet.d/1.conf"),
    ],
)
def test_files_of_the_kubelet_in_k3s(make_node: MakeNode, settings: str, file: str) -> None:
    """They are found where k3s and the kubelet are told to have them; an argument of the kubelet overrides them."""
    node = make_node("k3s")
    node.write("/etc/rancher/k3s/config.yaml", settings)
    node.write(file, "cpuManagerPolicy: static\n")

    assert "cpuManagerPolicy is static" in node.refuses(dry_run=True)
    node.write("/etc/rancher/k3s/config.yaml.d/1.yaml", "kubelet-arg+: [cpu-manager-policy=none]\n")
    node.installs(dry_run=True)


def test_a_drop_in_until_the_next_boot(make_node: MakeNode) -> None:
    """`systemctl edit --runtime` puts it into /run: what it says is in effect."""
    node = make_node("plain")
    node.write(
        "/run/systemd/system/kubelet.service.d/override.conf",
        "[Service]\nExecStart=\nExecStart=/bin/kubelet --container-runtime-endpoint=unix:///run/other.sock\n",
    )
    assert "no runtime listens on /run/other.sock" in node.refuses()


def test_nothing_to_install(make_node: MakeNode) -> None:
    """Without a package, the node's own program and a container's, the message says what to install."""
    node = make_node("plain")
    status, told = node.install(brings=False)

    assert status == 1
    assert "there is no program /opt/criproxy/bin/criproxy: install the deb" in told


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        pytest.param("", 1, "none of the units k3s.service, k3s-agent.service, rke2-server.service", id="no-kubelet"),
        pytest.param("--host-root {}/none", 2, "Invalid value for '--host-root': Directory", id="no-root"),
        pytest.param("--policy {}", 2, "Error: --policy: {} is a directory", id="a-directory-as-policy"),
        pytest.param("--policy {}/no", 1, "Error: {}/no: there is no such file or directory\n", id="no-policy-file"),
        pytest.param("--kubeconfig {}/no", 1, "Error: --kubeconfig {}/no", id="no-kubeconfig"),
        pytest.param("--kubeconfig {}/empty", 1, "Error: --kubeconfig {}/empty: is empty", id="empty-kubeconfig"),
    ],
)
def test_what_is_wrong_with_the_command(tmp_path: Path, options: str, status: int, said: str) -> None:
    """It is refused before anything is looked at, and the message names the option."""
    (tmp_path / "var/lib").mkdir(parents=True)
    (tmp_path / "empty").touch()
    arguments = ["install", "--dry-run", "--host-root", str(tmp_path), *options.format(tmp_path).split()]
    result = criproxy(*arguments)

    assert (result.exit_code, result.stdout) == (status, "")
    assert said.format(tmp_path) in result.stderr


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """The command says that it needs root, before it looks at anything; a dry run goes on."""
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    options = [command, "--host-root", str(tmp_path), *(["--policy", "none.yaml"] if command == "install" else [])]
    result = criproxy(*options)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: this command needs root, except with --dry-run\n"
    result = criproxy(command, "--host-root", tmp_path, "--dry-run")
    assert "there is no kubelet on this node" in result.stderr


@pytest.mark.parametrize("text", ["policy: balloon\n", ""], ids=["unknown-policy", "empty"])
@pytest.mark.parametrize("has_machine", [True, False])
def test_a_policy_file_of_the_node_with_mistakes(make_node: MakeNode, text: str, has_machine: bool) -> None:
    """It is refused before any step, in the words in which --policy refuses it."""
    node = make_node("kubeadm", has_package=True)
    if has_machine:
        write_sysfs(node.root, MACHINE)
    node.write(paths.POLICY, text)
    before = node.snapshot()
    with pytest.raises(ConfigError) as refused:
        load(node.at(paths.POLICY), "")

    for is_dry in (True, False):
        assert str(refused.value) in node.refuses(dry_run=is_dry)
        assert (node.snapshot(), node.log) == (before, [])
    status, told = node.install(dry_run=True, policy="policy: static\n")
    assert (status, f"write {paths.POLICY}: the policy" in told) == (0, True), told


def test_a_policy_file_that_does_not_fit_the_machine(make_node: MakeNode) -> None:
    """It is refused before any step; what criproxy runs with already is not, since its daemon keeps the last one."""
    node = make_node("kubeadm")
    write_sysfs(node.root, MACHINE)
    node.write(paths.POLICY, 'policy: static\nreservedCpus: "4000"\n')

    status, told = node.install()
    assert (status, node.log, f"- {node.at(paths.POLICY)}:2:" in told) == (1, [], True), told
    node.write(paths.POLICY, "policy: static\n")
    told = node.installs()
    node.write(paths.POLICY, "policy: balloon\n")
    status, told = node.install()
    assert (status, "Nothing to do" in told) == (0, True), told


def test_what_version_0_1_installed(make_node: MakeNode) -> None:
    """Its journal is read: an uninstallation leaves the node as it was, and systemd reads the kubelet's unit first."""
    node = make_node("plain", has_package=True)
    before = node.snapshot()
    config, drop_in = CHANGED["plain"], "/etc/systemd/system/kubelet.service.d/20-criproxy.conf"
    status = node.at(config).stat()
    file = {"mode": 0o644, "uid": status.st_uid, "gid": status.st_gid, "mtime_ns": status.st_mtime_ns}
    nothing: dict[str, object] = {"content": None, "node": {**file, "mtime_ns": None}, "existed": False, "folders": []}
    content = base64.b64encode(node.at(config).read_bytes()).decode()
    node.install()
    write = {"kind": "Write", "setting": "", "keep": False, "mode": 0o644}
    run = {"kind": "Run", "do": [], "undo_if": "", "may_fail": False}
    release = [paths.PROGRAM, "release", "--runtime-endpoint", f"unix://{paths.CONTAINERD}"]
    why = "the kubelet starts after criproxy"
    endpoint = {"why": "the kubelet calls criproxy", "setting": "containerRuntimeEndpoint"}
    entries = [
        ({"kind": "Made", "path": paths.STATE_DIR}, nothing),
        ({"kind": "Made", "path": paths.RUN_DIR}, nothing),
        ({**run, "what": "stop criproxy", "undo": [["systemctl", "disable", "--now", *paths.ACTIVE]]}, nothing),
        ({**run, "what": "start criproxy", "may_fail": True, "undo": [release]}, nothing),
        ({**run, "what": "restart", "undo": [["systemctl", "restart", "kubelet.service"]]}, nothing),
        ({**run, "what": "reload", "undo": [["systemctl", "daemon-reload"]]}, nothing),
        (
            {**write, "path": drop_in, "text": node.read(drop_in), "why": why},
            {**nothing, "folders": [drop_in.rpartition("/")[0]]},
        ),
        (
            {**write, "path": config, "text": node.read(config), **endpoint},
            {"content": content, "node": file, "existed": True, "folders": []},
        ),
    ]
    values: dict[str, object] = {"version": 1, "completed": len(entries), "undone": 0, "removing": False}
    values["entries"] = [{"step": step, "before": former} for step, former in entries]
    node.write(paths.JOURNAL, json.dumps(values))
    count = len(node.log)

    code, told = node.uninstall()
    assert (code, node.snapshot() == before) == (0, True), told
    assert node.log[count + 1 : count + 3] == ["systemctl daemon-reload", "systemctl restart kubelet.service"]
