"""The Helm chart: Helm takes it, and Kubernetes takes what it makes; its values decide what runs on the nodes."""

import tarfile
from itertools import product
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from criproxy import __version__
from criproxy.cli import main
from criproxy.cli.client import DEFAULT_CONTROL_SOCKET
from criproxy.daemon.options import read_only
from packager import chart
from packager.source import ROOT
from tests.packaging import helm

VERSIONS = ("1.25", "1.30", "1.37")
"""Of Kubernetes: the oldest and the newest whose schemas there are, and one between."""
GPU: dict[str, Any] = {
    "devicePlugin": {
        "enabled": True,
        "options": ["--http=127.0.0.1:9821", "--pass-device-specs"],
        "env": {"MIG_STRATEGY": "mixed", "PASS_DEVICE_SPECS": True},
        "nvidiaConfig": {
            "version": "v1",
            "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}},
        },
    }
}
EVERYTHING: dict[str, Any] = {
    **GPU,
    "image": {"repository": "registry.example.com/criproxy", "tag": "1.2.3", "pullPolicy": "Always"},
    "pullSecrets": [{"name": "registry"}],
    "nodeKind": "k3s",
    "runtimeEndpoint": "unix:///run/k3s/containerd/containerd.sock",
    "policy": {"policy": "static", "reservedCpus": "0-1"},
    "maxUnavailable": "10%",
    "http": {"address": "0.0.0.0:9820", "tokenSecret": {"name": "page", "key": "word"}},
    "checkTimeout": "10m",
    "serviceAccount": {"name": "installer", "annotations": {"owner": "node"}},
    "priorityClassName": "",
    "resources": {},
    "initResources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"pool": "latency"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [],
    "podAnnotations": {"team": "node"},
    "podLabels": {"tier": "node"},
}
VALUES = [
    pytest.param({}, id="defaults"),
    pytest.param(GPU, id="device plugin"),
    pytest.param(EVERYTHING, id="everything"),
    pytest.param({"action": "uninstall"}, id="uninstall"),
    pytest.param({**EVERYTHING, "action": "uninstall", "updateStrategy": "OnDelete"}, id="uninstall everything"),
]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the chart as `make package` writes it; skip if there is no Helm to read it."""
    if not helm.available():
        pytest.skip("no Helm: python -m tests.packaging.helm fetches it")
    return chart.build(tmp_path_factory.mktemp("chart"))


def render(archive: Path, values: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], str]:
    """Return what a first `helm install` on all nodes would make and print."""
    return helm.render(archive, {"allNodes": True, **values})


def pod_of(archive: Path, values: dict[str, Any]) -> Any:  # noqa: ANN401 (of the manifest)
    """Return the pod of the DaemonSet."""
    return render(archive, values)[0]["DaemonSet"]["spec"]["template"]["spec"]


def containers(resources: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return all containers of the DaemonSet by their names, in the order in which they run."""
    pod = resources["DaemonSet"]["spec"]["template"]["spec"]
    return {each["name"]: each for each in pod["initContainers"] + pod["containers"]}


def test_helm_finds_nothing_wrong(archive: Path) -> None:
    """Neither errors nor warnings."""
    assert helm.lint(archive, EVERYTHING) == []


@pytest.mark.parametrize("values", VALUES)
def test_kubernetes_takes_what_the_chart_makes(archive: Path, values: dict[str, Any]) -> None:
    """A ConfigMap, a ServiceAccount and a DaemonSet of the API's own schema, in which nothing else may stand."""
    resources, _ = render(archive, values)
    assert set(resources) == {"ConfigMap", "DaemonSet", "ServiceAccount"}
    for resource, version in product(resources.values(), VERSIONS):
        kubernetes_validate.validate(resource, version, strict=True)


def test_the_chart_installs_criproxy_on_the_node(archive: Path) -> None:
    """By the command that people use; the pod's own container only shows the state, and has no rights."""
    found = containers(render(archive, {})[0])
    assert list(found) == ["install", "device-plugin", "status"]
    assert found["install"]["args"] == "install --host-root=/host --node-kind=auto --timeout=2m --http=off".split()
    assert found["device-plugin"]["command"] == ["criproxy-device-plugin-unit", "off", "/host", "/files"]
    assert found["status"]["args"] == ["status", "--watch", "--interval=60"]
    assert found["status"]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {each["image"] for each in found.values()} == {f"localhost/criproxy:{__version__}"}


@pytest.mark.parametrize("values", VALUES)
def test_between_rollouts_the_pod_can_only_ask(archive: Path, values: dict[str, Any]) -> None:
    """Its container sees the socket for queries where commands look for it, and may do nothing to the node's processes.

    Those are in sight, because systemctl needs that in the init containers.
    """
    pod = pod_of(archive, values)
    assert [name for name in ("hostNetwork", "hostIPC") if pod.get(name)] == []
    (status,) = pod["containers"]
    places = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    seen = {places[each["name"]]: each["mountPath"] for each in status.get("volumeMounts", ())}
    folder = str(Path(read_only(DEFAULT_CONTROL_SOCKET)).parent)
    asks = values.get("action") != "uninstall"
    assert seen == ({folder: str(Path(DEFAULT_CONTROL_SOCKET).parent)} if asks else {})
    rights = status["securityContext"]
    assert (rights["capabilities"], rights["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)
    assert (rights["runAsNonRoot"], rights["runAsUser"], rights["runAsGroup"]) == (True, 62820, 62820)


def test_the_values_reach_the_node(archive: Path) -> None:
    """The policy, the kind of node, the runtime, and all that the device plugin is given."""
    resources, _ = render(archive, EVERYTHING)
    found, files = containers(resources), resources["ConfigMap"]["data"]
    assert found["install"]["args"][2:] == [
        "--node-kind=k3s",
        "--timeout=10m",
        "--http=0.0.0.0:9820",
        "--http-token-file=/token/word",
        "--policy=/policy/policy.yaml",
        "--runtime-endpoint=unix:///run/k3s/containerd/containerd.sock",
    ]
    alone = {mount["mountPath"]: mount["subPath"] for mount in found["install"]["volumeMounts"] if "subPath" in mount}
    assert alone == {"/policy/policy.yaml": "policy.yaml", "/token/word": "word"}  # whole volumes are writable for all
    assert yaml.safe_load(files["policy.yaml"]) == EVERYTHING["policy"]
    assert yaml.safe_load(files["nvidia.yaml"]) == GPU["devicePlugin"]["nvidiaConfig"]
    assert files["defaults"].splitlines()[1:] == [
        'CRIPROXY_DEVICE_PLUGIN_OPTIONS="--http=127.0.0.1:9821 --pass-device-specs"',
        'CONFIG_FILE="/etc/criproxy/nvidia.yaml"',
        'MIG_STRATEGY="mixed"',
        'PASS_DEVICE_SPECS="true"',
    ]
    assert found["device-plugin"]["command"][1] == "on"
    assert {each["image"] for each in found.values()} == {"registry.example.com/criproxy:1.2.3"}


def test_the_token_of_the_page_is_a_secret(archive: Path) -> None:
    """Only the container that installs gets it; without a name there is none, and an uninstallation needs none."""
    resources, notes = render(archive, EVERYTHING)
    volumes = {each["name"]: each for each in resources["DaemonSet"]["spec"]["template"]["spec"]["volumes"]}
    items = [{"key": "word", "path": "word"}]
    assert volumes["token"]["secret"] == {"secretName": "page", "defaultMode": 0o400, "items": items}
    having = {
        name: [mount["mountPath"] for mount in each["volumeMounts"] if mount["name"] == "token"]
        for name, each in containers(resources).items()
    }
    assert having == {"install": ["/token/word"], "device-plugin": [], "status": []}
    assert "0.0.0.0:9820" in notes
    for values in ({}, {**EVERYTHING, "action": "uninstall"}):
        assert "token" not in {each["name"] for each in pod_of(archive, values)["volumes"]}


def test_what_the_chart_gives_to_criproxy_is_understood(archive: Path, tmp_path: Path) -> None:
    """Each option exists: the command goes on to look for a kubelet."""
    for values in ({}, {**EVERYTHING, "http": {"address": "[::1]:9820"}}, {"http": {"address": "unix:///run/a.sock"}}):
        arguments = containers(render(archive, values)[0])["install"]["args"]
        taken = [each for each in arguments if not each.startswith(("--host-root", "--policy"))]
        result = CliRunner().invoke(main, [*taken, "--dry-run", f"--host-root={tmp_path}"])
        assert (result.exit_code, "there is no kubelet on this node" in result.stderr) == (1, True), result.output


def test_the_pods_have_an_account_without_rights(archive: Path) -> None:
    """Of their own, by whose name an administrator can allow privileged pods; or one that exists."""
    account = render(archive, {})[0]["ServiceAccount"]
    assert (account["metadata"]["name"], account["automountServiceAccountToken"]) == ("criproxy-node", False)
    others: list[dict[str, Any]] = [{"create": False}, {"create": False, "name": "mine"}]
    values = ({}, EVERYTHING, *({"serviceAccount": other} for other in others))
    of_pods = [pod_of(archive, each)["serviceAccountName"] for each in values]
    assert of_pods == ["criproxy-node", "installer", "default", "mine"]
    assert "ServiceAccount" not in render(archive, {"serviceAccount": {"create": False}})[0]


def test_how_nodes_change(archive: Path) -> None:
    """One after the other by themselves, or when an administrator deletes their pods; the notes say which."""
    resources, _ = render(archive, {})
    assert resources["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
    _, notes = helm.render(archive, {}, before=resources["DaemonSet"])
    assert "on its nodes, 1 at a time." in notes
    resources, notes = helm.render(archive, {"updateStrategy": "OnDelete"}, before=resources["DaemonSet"])
    assert resources["DaemonSet"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "on the nodes whose pods you delete." in notes


LINUX: dict[str, Any] = {"nodeSelector": {"kubernetes.io/os": "linux"}}
TERMS = [{"matchExpressions": [{"key": "node-group", "operator": "Exists"}]}]
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}
LABELLED: dict[str, Any] = {"affinity": {"nodeAffinity": REQUIRED}}
ON_SOME = [
    pytest.param({"nodeSelector": {"node-group": "latency"}}, id="selector"),
    pytest.param(LABELLED, id="affinity"),
]
ON_ALL = [
    pytest.param({}, id="defaults"),
    pytest.param(LINUX, id="every node has this label"),
    pytest.param({"affinity": {"nodeAffinity": {}}}, id="empty affinity"),
]


@pytest.mark.parametrize("values", ON_ALL)
def test_nobody_restarts_every_kubelet_by_accident(archive: Path, values: dict[str, Any]) -> None:
    """A first installation that is limited to no nodes is refused, with what to set; `allNodes` insists."""
    with pytest.raises(helm.HelmError, match=r"every kubelet of the cluster at once.*nodeSelector.*allNodes=true"):
        helm.render(archive, values)
    assert "DaemonSet" in helm.render(archive, {**values, "allNodes": True})[0]


@pytest.mark.parametrize("values", ON_SOME)
def test_a_first_installation_on_some_nodes_is_made(archive: Path, values: dict[str, Any]) -> None:
    """Whether a selector or a required affinity names them; its notes say that these nodes do not wait."""
    _, notes = helm.render(archive, values)
    assert "on all its nodes at the same time" in notes
    assert "at a time." not in notes


@pytest.mark.parametrize("values", ON_ALL)
def test_a_release_on_all_nodes_stays_there(archive: Path, values: dict[str, Any]) -> None:
    """An upgrade of a release that was on all nodes goes on, as does the removal from any node."""
    before, _ = render(archive, {})
    assert "DaemonSet" in helm.render(archive, values, before=before["DaemonSet"])[0]
    assert "DaemonSet" in helm.render(archive, {**values, "action": "uninstall"})[0]


@pytest.mark.parametrize("former", ON_SOME)
def test_an_upgrade_does_not_spread_to_all_nodes_by_accident(archive: Path, former: dict[str, Any]) -> None:
    """A release on some nodes whose selector is gone would reach all others at the same time."""
    before, _ = helm.render(archive, former)
    with pytest.raises(helm.HelmError, match="every kubelet of the cluster at once"):
        helm.render(archive, {}, before=before["DaemonSet"])
    assert "DaemonSet" in helm.render(archive, {"allNodes": True}, before=before["DaemonSet"])[0]
    assert "DaemonSet" in helm.render(archive, {"nodeSelector": {"a": "b"}}, before=before["DaemonSet"])[0]


def test_control_planes_are_left_out(archive: Path) -> None:
    """The pods tolerate no taint but those of nodes with GPUs; the notes say so, unless all taints are tolerated."""
    assert [each["key"] for each in pod_of(archive, {})["tolerations"]] == ["nvidia.com/gpu"]
    _, notes = render(archive, {})
    assert "such as control planes, are left out" in notes
    _, notes = render(archive, {"tolerations": [{"operator": "Exists"}]})
    assert "control planes" not in notes


def test_all_containers_say_what_they_need(archive: Path) -> None:
    """A quota of the namespace may want it."""
    found = containers(render(archive, {})[0])
    assert [name for name, each in found.items() if not each["resources"]["requests"]] == []
    found = containers(render(archive, EVERYTHING)[0])
    assert found["install"]["resources"]["limits"] == {"memory": "1Gi"}


def test_an_image_can_be_named_by_its_digest(archive: Path) -> None:
    """A tag can lead to another image tomorrow."""
    digest = f"sha256:{'a' * 64}"
    found = containers(render(archive, {"image": {"tag": "1.2.3", "digest": digest}})[0])
    assert {each["image"] for each in found.values()} == {f"localhost/criproxy@{digest}"}


def test_another_policy_rolls_out(archive: Path) -> None:
    """The pods are made anew when a file for the node changes, one node at a time, and only then."""
    static, other = ({"policy": {"policy": name}} for name in ("static", "topology-aware"))
    one, second, same = (
        render(archive, values)[0]["DaemonSet"]["spec"]["template"]
        for values in (static, other, {**static, "maxUnavailable": 2})
    )
    assert one == same != second


def test_the_chart_removes_criproxy_on_request(archive: Path) -> None:
    """Cards first, since pods get them through a plugin that would be gone; then all that is on the node."""
    resources, notes = render(archive, {"action": "uninstall"})
    found = containers(resources)
    assert list(found) == ["device-plugin", "uninstall", "status"]
    assert found["device-plugin"]["command"][1] == "off"
    assert found["uninstall"]["args"] == ["uninstall", "--host-root=/host"]
    assert "readinessProbe" not in found["status"]
    assert "helm uninstall criproxy" in notes


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        pytest.param({"nodekind": "k3s"}, "nodekind", id="a name that does not exist"),
        pytest.param({"nodeKind": "k8s"}, "/nodeKind", id="a kind of node that does not exist"),
        pytest.param({"action": "remove"}, "/action", id="an action that does not exist"),
        pytest.param({"policy": {"policy": "statik"}}, "/policy", id="a policy that does not exist"),
        pytest.param({"policy": {"policy": "static", "reserved": "0"}}, "/policy", id="an option that does not exist"),
        pytest.param({"runtimeEndpoint": "/run/crio/crio.sock"}, "/runtimeEndpoint", id="an endpoint without scheme"),
        pytest.param({"http": {"address": "9820"}}, "/http", id="an address without a port"),
        pytest.param({"http": {"address": ":1 --a"}}, "/http", id="an option in an address"),
        pytest.param({"http": {"address": "0.0.0.0:99999"}}, "/http", id="a port that does not exist"),
        pytest.param({"http": {"address": "::1:9820"}}, "/http", id="an IPv6 address without brackets"),
        pytest.param({"image": {"repository": "UPPER/x y"}}, "/image", id="a repository with a blank"),
        pytest.param({"image": {"repository": "example.com/Criproxy"}}, "/image", id="a repository in capitals"),
        pytest.param({"image": {"repository": "example.com/criproxy:1"}}, "/image", id="a tag in the repository"),
        pytest.param({"http": {"tokenSecret": {"name": "a"}}}, "/http", id="a token without a page"),
        pytest.param({"updateStrategy": "Recreate"}, "/updateStrategy", id="a strategy that does not exist"),
        pytest.param({"checkTimeout": "2"}, "/checkTimeout", id="a time without a unit"),
        pytest.param({"maxUnavailable": 0}, "/maxUnavailable", id="a rollout that never moves"),
        pytest.param({"devicePlugin": {"options": ["--a; rm"]}}, "/devicePlugin", id="two options in one"),
        pytest.param({"devicePlugin": {"env": {"A": 'x"\nB=y'}}}, "/devicePlugin", id="two variables in one"),
        pytest.param({"devicePlugin": {"nvidiaConfig": {"sharing": {}}}}, "/devicePlugin", id="no version"),
    ],
)
def test_wrong_values_are_refused(archive: Path, values: dict[str, Any], complaint: str) -> None:
    """Helm says what is wrong before anything reaches the cluster."""
    with pytest.raises(helm.HelmError, match=complaint):
        render(archive, values)


def test_all_policies_of_the_repository_are_valid_values(archive: Path) -> None:
    """The schema takes what criproxy takes."""
    policies = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "policies").glob("*.yaml"))]
    assert helm.validate(archive, [{"policy": policy} for policy in policies]) == len(policies) > 5


def test_right_addresses_and_repositories_are_taken(archive: Path) -> None:
    """All forms that criproxy and container runtimes know."""
    addresses = (":9820", "127.0.0.1:1", "localhost:65535", "[::1]:9820", "node-1.example.com:80", "unix:///run/x.sock")
    repositories = ("criproxy", "localhost/criproxy", "localhost:5000/a/b", "Example.com:443/a-b/c_d.e__f", "[::1]:5/x")
    values: list[dict[str, Any]] = [{"http": {"address": address}} for address in addresses]
    values += [{"image": {"repository": repository}} for repository in repositories]

    assert helm.validate(archive, values) == len(values)


def test_the_chart_has_our_version(archive: Path) -> None:
    """Its own, and that of the image."""
    assert archive.name == f"criproxy-{__version__}.tgz"
    with tarfile.open(archive) as files:
        assert files.getnames()[0] == "criproxy/Chart.yaml"
        described = files.extractfile("criproxy/Chart.yaml")
        assert described is not None
        about = yaml.safe_load(described.read())
    assert (about["version"], about["appVersion"]) == (__version__, __version__)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param("1.2.3", "1.2.3", id="release"),
        pytest.param("1.2.3rc1", "1.2.3-rc.1", id="candidate"),
        pytest.param("1.3.0.dev4", "1.3.0-dev.4", id="development"),
    ],
)
def test_versions_are_semantic(number: str, expected: str) -> None:
    """Helm knows no other versions; what is released before 1.2.3 is older than 1.2.3."""
    assert chart.semantic_version(number) == expected
