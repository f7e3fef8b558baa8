"""The Helm chart: Helm takes it, and Kubernetes takes what it makes; its values decide what runs on the nodes."""

import base64
import json
import re
import tarfile
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from criproxy import __version__
from criproxy.agent import COMPONENT, PORT_NAME, TOKEN_KEY, TOKEN_SECRET
from criproxy.agent.objects.crds import custom_resources as crds
from criproxy.agent.objects.node_policy import Spec
from criproxy.agent.options import DEFAULT_CONTROL_SOCKET as DEFAULT_AGENT_SOCKET
from criproxy.cli.client import DEFAULT_CONTROL_SOCKET
from criproxy.cli.operate.agent import command as agent
from criproxy.daemon.options import read_only
from packager import chart
from packager.source import ROOT
from tests.asking import criproxy
from tests.packaging import helm

OF_OTHERS = ("criproxy.io", "monitoring.coreos.com")
"""Groups of resources that are not in the schemas of Kubernetes."""
VERSIONS = ("1.25", "1.30", "1.37")
"""Of Kubernetes: the oldest and the newest whose schemas there are, and one between."""
GPU_FILE = {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}
GPU: dict[str, Any] = {
    "devicePlugin": {
        "enabled": True,
        "options": ["--http=127.0.0.1:9821", "--pass-device-specs"],
        "env": {"MIG_STRATEGY": "mixed", "PASS_DEVICE_SPECS": True},
        "nvidiaConfig": GPU_FILE,
    }
}
NODE_POLICY: dict[str, Any] = {
    "name": "latency",
    "nodeSelector": {"matchLabels": {"pool": "latency"}},
    "priority": 10,
    "policy": {"policy": "topology-aware", "reservedCpus": "0"},
    "rollout": {"try": "10m", "atOnce": "10%", "stopAfterFailures": 2},
}
PEERS = [{"ipBlock": {"cidr": "10.0.0.0/28"}}, {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
MONITORED = {"podMonitor": True, "prometheusRule": True, "dashboard": True, "labels": {"release": "prometheus"}}
EVERYTHING: dict[str, Any] = {
    **GPU,
    "nodePolicies": [NODE_POLICY, {"name": "rest", "nodeSelector": {}, "policy": {"policy": "none"}}],
    "controls": {"enabled": True},
    "nri": True,
    "daemon": {"logLevel": "debug", "traceCalls": ["CreateContainer", "StartContainer"]},
    "agent": {"logLevel": "warning", "taint": False, "labels": True, "admissionPolicy": "always", "allowFrom": PEERS},
    "monitoring": MONITORED,
    "firstInstallsAtOnce": 4,
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
    pytest.param({"agent": {"enabled": False}}, id="without agent"),
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


def objects_of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the objects of one kind."""
    return [each for each in objects if each["kind"] == kind]


def test_helm_finds_nothing_wrong(archive: Path) -> None:
    """Neither errors nor warnings."""
    assert helm.lint(archive, EVERYTHING) == []


@pytest.mark.parametrize("values", VALUES)
def test_kubernetes_takes_what_the_chart_makes(archive: Path, values: dict[str, Any]) -> None:
    """All that is no resource of others is of the API's own schema, in which nothing else may stand."""
    objects, _ = helm.objects(archive, {"allNodes": True, **values})
    known = [each for each in objects if each["apiVersion"].partition("/")[0] not in OF_OTHERS]
    assert {"ConfigMap", "DaemonSet", "ServiceAccount"} <= {each["kind"] for each in known}
    for resource, version in product(known, VERSIONS):
        if not (resource["kind"].startswith("ValidatingAdmission") and version == "1.25"):
            kubernetes_validate.validate(resource, version, strict=True)


def test_the_agent_takes_the_node_policies(archive: Path) -> None:
    """Each of the values becomes an object that the agent reads, and the schema of its definition accepts."""
    objects, _ = helm.objects(archive, EVERYTHING)
    policies = [each for each in objects if each["kind"] == "NodePolicy"]
    (definition,) = (each for each in crds() if each["spec"]["names"]["kind"] == "NodePolicy")
    (version,) = definition["spec"]["versions"]
    assert [each["metadata"]["name"] for each in policies] == ["latency", "rest"]
    for each, given in zip(policies, EVERYTHING["nodePolicies"], strict=True):
        assert each["spec"] == {key: value for key, value in given.items() if key != "name"}
        assert each["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
        Spec.model_validate(each["spec"])
        jsonschema.validate(each, version["schema"]["openAPIV3Schema"])


def test_the_chart_installs_criproxy_on_the_node(archive: Path) -> None:
    """By the command that people use; the pod's own container has no rights on the node."""
    found = containers(render(archive, {})[0])
    assert list(found) == ["wait", "install", "device-plugin", "agent"]
    install = "install --host-root=/host --node-kind=auto --timeout=2m --http=off --serve-option=none"
    assert found["install"]["args"] == install.split()
    assert found["device-plugin"]["command"] == ["criproxy-device-plugin-unit", "off", "/host", "/files"]
    control = "--control-socket=/run/criproxy/control.sock --log-level=info"
    assert found["wait"]["args"] == f"agent --wait-to-install=1 {control}".split()
    shown = "--labels --taint --topology --topology-policy=single-numa-node --topology-scope=container"
    serving = "--http=0.0.0.0:9822 --http-token-file=/token/token"
    assert found["agent"]["args"] == f"agent {control} {shown} {serving}".split()
    assert found["agent"]["readinessProbe"]["exec"]["command"] == ["criproxy", "status", "--check"]
    assert {each["image"] for each in found.values()} == {f"localhost/criproxy:{__version__}"}


@pytest.mark.parametrize("values", VALUES)
def test_only_containers_without_privileges_have_the_token(archive: Path, values: dict[str, Any]) -> None:
    """Those that have the node's root directory need no API server; those that speak with it are no root."""
    pod = pod_of(archive, values)
    assert pod["automountServiceAccountToken"] is False
    for each in pod["initContainers"] + pod["containers"]:
        mounted, rights = {mount["name"] for mount in each.get("volumeMounts", ())}, each["securityContext"]
        assert not {"api", "agent-token"} & mounted or (rights["runAsUser"], "host" in mounted) == (62820, False)
        assert rights.get("privileged", False) == ("host" in mounted)


@pytest.mark.parametrize("values", VALUES)
def test_between_rollouts_the_pod_can_only_ask(archive: Path, values: dict[str, Any]) -> None:
    """Its container sees the socket made for it where commands look for it, and may do nothing to the node's processes.

    Those are in sight, because systemctl needs that in the init containers.
    """
    pod = pod_of(archive, values)
    assert [name for name in ("hostNetwork", "hostIPC") if pod.get(name)] == []
    (status,) = pod["containers"]
    is_agent = status["name"] == "agent"
    places = {each["name"]: each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each}
    seen = {
        places[each["name"]]: each["mountPath"] for each in status.get("volumeMounts", ()) if each["name"] in places
    }
    folder = str(Path(DEFAULT_AGENT_SOCKET if is_agent else read_only(DEFAULT_CONTROL_SOCKET)).parent)
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
        "--serve-option=log-level=debug",
        "--serve-option=trace-calls=CreateContainer,StartContainer",
        "--controls",
        "--nri",
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
    assert having == {"wait": [], "install": ["/token/word"], "device-plugin": [], "agent": []}
    assert "0.0.0.0:9820" in notes
    for values in ({}, {**EVERYTHING, "action": "uninstall"}):
        assert "token" not in {each["name"] for each in pod_of(archive, values)["volumes"]}


def test_what_the_chart_gives_to_criproxy_is_understood(archive: Path, tmp_path: Path) -> None:
    """Each option exists: the command goes on to look for a kubelet."""
    local = {**EVERYTHING, "http": {"address": "[::1]:9820"}, "monitoring": {}}
    for values in ({}, EVERYTHING, local, {"http": {"address": "unix:///run/a.sock"}}):
        arguments = containers(render(archive, values)[0])["install"]["args"]
        files = ("--host-root", "--policy", "--http-token-file")
        taken = [each for each in arguments if not each.startswith(files)]
        result = criproxy(*taken, "--dry-run", f"--host-root={tmp_path}")
        assert (result.exit_code, "there is no kubelet on this node" in result.stderr) == (1, True), result.output
    for values in (
        {},
        EVERYTHING,
        {"devicePlugin": {**GPU["devicePlugin"], "configurations": {"a": GPU_FILE}, "defaultConfiguration": "a"}},
    ):
        found = containers(render(archive, values)[0])
        for name in ("wait", "agent"):
            program, *options = found[name]["args"]
            agent.make_context(program, options)  # raises what is wrong with them


def test_the_pods_have_an_account_of_their_own(archive: Path) -> None:
    """By its name an administrator can allow privileged pods; without the agent, it has no rights."""
    account = render(archive, {})[0]["ServiceAccount"]
    assert (account["metadata"]["name"], account["automountServiceAccountToken"]) == ("criproxy-node", False)
    alone: dict[str, Any] = {"agent": {"enabled": False}, "serviceAccount": {"create": False}}
    others: list[dict[str, Any]] = [alone, {"serviceAccount": {"create": False, "name": "mine"}}]
    of_pods = [pod_of(archive, each)["serviceAccountName"] for each in ({}, EVERYTHING, *others)]
    assert of_pods == ["criproxy-node", "installer", "default", "mine"]
    assert {"ServiceAccount", "ClusterRole", "Role", "Secret"} & render(archive, alone)[0].keys() == set()
    with pytest.raises(helm.HelmError, match="all pods of the namespace could use the rights of the account `default`"):
        render(archive, {"serviceAccount": {"create": False}})


def test_the_account_has_the_rights_of_the_agent_and_no_others(archive: Path) -> None:
    """That of its pods, in its own namespace where that is enough; no secret, and no pod but by name."""
    objects, _ = helm.objects(archive, {"allNodes": True})
    bindings = [each for each in objects if each["kind"].endswith("RoleBinding")]
    assert {tuple(each["subjects"][0].values()) for each in bindings} == {
        ("ServiceAccount", "criproxy-node", "kube-system")
    }
    bound = {each["roleRef"]["name"] for each in bindings}
    granted = {
        (each["kind"], resource): set(rule["verbs"])
        for each in objects
        if each["kind"].endswith("Role") and each["metadata"]["name"] in bound
        for rule in each["rules"]
        for resource in rule["resources"]
    }
    assert granted["ClusterRole", "nodes"] == {"get", "list", "watch", "patch"}
    assert granted["Role", "pods"] == {"get"}
    assert not {"secrets", "pods/proxy", "pods/exec", "customresourcedefinitions"} & {name for _, name in granted}
    assert not [key for key, verbs in granted.items() if key[0] == "ClusterRole" and verbs & {"delete", "*", "update"}
                and key[1] != "nodepolicies/status"]  # fmt: skip


def test_the_admission_policy_is_for_the_account_of_the_agent(archive: Path) -> None:
    """Nobody else's requests are looked at, so that a fault in it holds up no other component."""
    (policy,) = (each for each in helm.objects(archive, EVERYTHING)[0] if each["kind"] == "ValidatingAdmissionPolicy")
    conditions = [each["expression"] for each in policy["spec"]["matchConditions"]]
    assert conditions == ['request.userInfo.username == "system:serviceaccount:kube-system:installer"']
    never = helm.objects(archive, {**EVERYTHING, "agent": {"admissionPolicy": "never"}})[0]
    assert not [each for each in never if each["kind"].startswith("ValidatingAdmission")]


def test_new_nodes_with_the_startup_taint_get_their_pod(archive: Path) -> None:
    """Otherwise they would wait for criproxy, and criproxy for them."""
    many: tuple[dict[str, Any], ...] = ({}, {"tolerations": []})
    for values in many:
        assert {"key": "criproxy.io/not-ready", "operator": "Exists"} in pod_of(archive, values)["tolerations"]


def _snake_case(name: str) -> str:
    """Return the name of an option of Prometheus for one of its operator."""
    return re.sub("([A-Z])", r"_\1", name).lower()


def test_what_monitors_the_nodes(archive: Path) -> None:
    """Prometheus' operator finds daemons by the pods' nodes, and agents by their port; rules and dashboard are ours."""
    objects, _ = helm.objects(archive, EVERYTHING)
    monitor, rule = ({each["kind"]: each for each in objects}[kind] for kind in ("PodMonitor", "PrometheusRule"))
    daemon, agent = monitor["spec"]["podMetricsEndpoints"]
    (job,) = yaml.safe_load((ROOT / "deploy/scaling/prometheus.yaml").read_text())["scrape_configs"]
    changes = [each for each in daemon["relabelings"] if "action" not in each]
    renamed = [{_snake_case(key): value for key, value in each.items()} for each in changes]
    assert renamed == [*job["relabel_configs"], {"target_label": "job", "replacement": job["job_name"]}]
    assert daemon["honorLabels"] is job["honor_labels"] is True
    ports = {each["name"] for each in containers(render(archive, EVERYTHING)[0])["agent"]["ports"]}
    assert {agent["port"]} == ports == {PORT_NAME}
    assert rule["spec"] == yaml.safe_load((ROOT / "docs/monitoring/alerts.yaml").read_text())
    (dashboard,) = (each for each in objects if each["metadata"]["name"] == "criproxy-node-dashboard")
    assert json.loads(dashboard["data"]["criproxy.json"]) == json.loads(
        (ROOT / "docs/monitoring/dashboard.json").read_text()
    )
    assert {each["metadata"]["labels"].get("release") for each in (monitor, rule)} == {"prometheus"}
    for address in ("", "127.0.0.1:9820", ":9820", "[::1]:9820", "localhost:9820", "unix:///run/a.sock"):
        with pytest.raises(helm.HelmError, match=r"monitoring\.podMonitor needs http\.address"):
            render(archive, {"monitoring": MONITORED, "http": {"address": address}})


def test_configurations_of_the_device_plugin_by_name(archive: Path) -> None:
    """They are in a ConfigMap of which the agent is told, and so can change while it runs."""
    values = {"devicePlugin": {"enabled": True, "configurations": {"default": {"version": "v1"}, "a": GPU_FILE}}}
    objects, _ = helm.objects(archive, {"allNodes": True, **values})
    (named,) = (each for each in objects if each["metadata"]["name"] == "criproxy-node-devices")
    assert {name: yaml.safe_load(text) for name, text in named["data"].items()} == values["devicePlugin"][
        "configurations"
    ]
    assert "--device-configurations=criproxy-node-devices" in containers(render(archive, values)[0])["agent"]["args"]


def test_the_token_of_queries(archive: Path) -> None:
    """The agent gets a token by chance, in a Secret that a role may read; or yours; or it answers no queries."""
    objects, _ = helm.objects(archive, {"allNodes": True})
    (secret,) = (each for each in objects if each["kind"] == "Secret")
    assert (secret["metadata"]["name"], list(secret["data"])) == (TOKEN_SECRET, [TOKEN_KEY])
    assert len(base64.b64decode(secret["data"]["token"])) == 40
    key, _, value = COMPONENT.partition("=")
    assert objects_of_kind(objects, "DaemonSet")[0]["spec"]["template"]["metadata"]["labels"][key] == value
    (viewer,) = (each for each in objects if each["kind"] == "Role" and each["metadata"]["name"].endswith("-viewer"))
    assert {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["criproxy-agent"],
        "verbs": ["get"],
    } in viewer["rules"]
    own, _ = render(archive, {"agent": {"tokenSecret": {"create": False, "name": "mine"}}})
    assert "Secret" not in own
    volumes = {each["name"]: each for each in own["DaemonSet"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["agent-token"]["secret"]["secretName"] == "mine"
    (mount,) = (each for each in containers(own)["agent"]["volumeMounts"] if each["name"] == "agent-token")
    assert mount == {"name": "agent-token", "mountPath": "/token", "readOnly": True}  # whole: the kubelet renews it
    closed, _ = render(archive, {"agent": {"http": ""}})
    assert "Secret" not in closed
    assert "ports" not in containers(closed)["agent"]


def test_who_reaches_the_agent(archive: Path) -> None:
    """Everybody, or those of the values, at its port, and nobody at others of its pod."""
    assert "NetworkPolicy" not in render(archive, {})[0]
    assert "NetworkPolicy" not in render(archive, {"agent": {"http": "", "allowFrom": PEERS}})[0]
    made, _ = render(archive, {"agent": {"allowFrom": PEERS}})
    spec = made["NetworkPolicy"]["spec"]
    assert spec["podSelector"] == made["DaemonSet"]["spec"]["selector"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [{"from": PEERS, "ports": [{"port": "agent-http", "protocol": "TCP"}]}]


def test_how_nodes_change(archive: Path) -> None:
    """One after the other by themselves, or when an administrator deletes their pods; the notes say which."""
    resources, _ = render(archive, {})
    assert resources["DaemonSet"]["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
    _, notes = helm.render(archive, {}, before=resources["DaemonSet"])
    assert "on its nodes, 1 at a time." in notes
    resources, notes = helm.render(archive, {"updateStrategy": "OnDelete"}, before=resources["DaemonSet"])
    assert resources["DaemonSet"]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "on the nodes whose pods you delete." in notes


ALL_AT_ONCE: dict[str, Any] = {"firstInstallsAtOnce": 0}
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
    """Nodes wait for each other. Without that, a first installation on all is refused; `allNodes` insists."""
    _, notes = helm.render(archive, values)
    assert "is being installed on its nodes, 1 at a time." in notes
    for without in ({"firstInstallsAtOnce": 0}, {"agent": {"enabled": False}}):
        with pytest.raises(helm.HelmError, match=r"every kubelet of the cluster at once.*nodeSelector.*allNodes=true"):
            helm.render(archive, values | without)
        assert "DaemonSet" in helm.render(archive, {**values, **without, "allNodes": True})[0]


@pytest.mark.parametrize(
    "values", [{"nodePolicies": [NODE_POLICY]}, {"devicePlugin": {"configurations": {"default": GPU_FILE}}}]
)
def test_what_only_the_agent_does_is_refused_without_it(archive: Path, values: dict[str, Any]) -> None:
    """Objects that nobody follows would look as if they were in force; a removal needs no agent."""
    without = {**values, "agent": {"enabled": False}}
    with pytest.raises(helm.HelmError, match=r"needs agent\.enabled"):
        render(archive, without)
    assert "DaemonSet" in render(archive, {**without, "action": "uninstall"})[0]


CONTRADICTING = {
    "nobody-uses-them": (
        {"devicePlugin": {"configurations": {"a": GPU_FILE}}},
        r"devicePlugin\.configurations needs devicePlugin\.enabled",
    ),
    "unknown-default": (
        {"devicePlugin": {"enabled": True, "configurations": {"a": GPU_FILE}, "defaultConfiguration": "b"}},
        r"""is "b", which is not in devicePlugin\.configurations \(a\)""",
    ),
    "no-default": ({"devicePlugin": {"enabled": True, "defaultConfiguration": "b"}}, r"configurations \(empty\)"),
    "two": ({"nodePolicies": [NODE_POLICY, NODE_POLICY]}, "nodePolicies has two of the name"),
}


@pytest.mark.parametrize(("values", "said"), CONTRADICTING.values(), ids=CONTRADICTING)
def test_values_that_contradict_each_other_are_refused(archive: Path, values: dict[str, Any], said: str) -> None:
    """What would be ignored in silence, or overwritten, is said; a removal does not care."""
    with pytest.raises(helm.HelmError, match=said):
        render(archive, values)
    assert "DaemonSet" in render(archive, {**values, "action": "uninstall"})[0]


@pytest.mark.parametrize("values", ON_SOME)
def test_a_first_installation_on_some_nodes_is_made(archive: Path, values: dict[str, Any]) -> None:
    """Whether a selector or a required affinity names them; its notes say that these nodes do not wait."""
    _, notes = helm.render(archive, {**values, **ALL_AT_ONCE})
    assert "on all its nodes at the same time" in notes
    assert "at a time." not in notes


@pytest.mark.parametrize("values", ON_ALL)
def test_a_release_on_all_nodes_stays_there(archive: Path, values: dict[str, Any]) -> None:
    """An upgrade of a release that was on all nodes goes on, as does the removal from any node."""
    before, _ = render(archive, ALL_AT_ONCE)
    assert "DaemonSet" in helm.render(archive, {**values, **ALL_AT_ONCE}, before=before["DaemonSet"])[0]
    assert "DaemonSet" in helm.render(archive, {**values, "action": "uninstall"})[0]


@pytest.mark.parametrize("former", ON_SOME)
def test_an_upgrade_does_not_spread_to_all_nodes_by_accident(archive: Path, former: dict[str, Any]) -> None:
    """A release on some nodes whose selector is gone would reach all others at the same time."""
    before, _ = helm.render(archive, {**former, **ALL_AT_ONCE})
    with pytest.raises(helm.HelmError, match="every kubelet of the cluster at once"):
        helm.render(archive, ALL_AT_ONCE, before=before["DaemonSet"])
    assert "DaemonSet" in helm.render(archive, {}, before=before["DaemonSet"])[0]
    assert "DaemonSet" in helm.render(archive, {"allNodes": True}, before=before["DaemonSet"])[0]
    assert "DaemonSet" in helm.render(archive, {"nodeSelector": {"a": "b"}}, before=before["DaemonSet"])[0]


def test_control_planes_are_left_out(archive: Path) -> None:
    """The pods tolerate no taint but those of nodes with GPUs; the notes say so, unless all taints are tolerated."""
    tolerated = [each["key"] for each in pod_of(archive, {})["tolerations"]]
    assert tolerated == ["criproxy.io/not-ready", "nvidia.com/gpu"]
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
    for each in crds():
        assert each["metadata"]["name"] in notes, "what stays in the cluster is named"


WRONG = {
    "a name that does not exist": ({"nodekind": "k3s"}, "nodekind"),
    "a kind of node that does not exist": ({"nodeKind": "k8s"}, "/nodeKind"),
    "an action that does not exist": ({"action": "remove"}, "/action"),
    "a policy that does not exist": ({"policy": {"policy": "statik"}}, "/policy"),
    "an option that does not exist": ({"policy": {"policy": "static", "reserved": "0"}}, "/policy"),
    "an endpoint without scheme": ({"runtimeEndpoint": "/run/crio/crio.sock"}, "/runtimeEndpoint"),
    "an address without a port": ({"http": {"address": "9820"}}, "/http"),
    "an option in an address": ({"http": {"address": ":1 --a"}}, "/http"),
    "a port that does not exist": ({"http": {"address": "0.0.0.0:99999"}}, "/http"),
    "an IPv6 address without brackets": ({"http": {"address": "::1:9820"}}, "/http"),
    "a repository with a blank": ({"image": {"repository": "UPPER/x y"}}, "/image"),
    "a repository in capitals": ({"image": {"repository": "example.com/Criproxy"}}, "/image"),
    "a tag in the repository": ({"image": {"repository": "example.com/criproxy:1"}}, "/image"),
    "a token without a page": ({"http": {"tokenSecret": {"name": "a"}}}, "/http"),
    "an agent without an address": ({"agent": {"http": "9822"}}, "/agent/http"),
    "a switch that is a word": ({"agent": {"admissionPolicy": True}}, "/agent/admissionPolicy"),
    "a level that does not exist": ({"daemon": {"logLevel": "loud"}}, "/daemon/logLevel"),
    "two calls in one": ({"daemon": {"traceCalls": ["a b"]}}, "/daemon/traceCalls"),
    "fewer than no nodes": ({"firstInstallsAtOnce": -1}, "/firstInstallsAtOnce"),
    "no nodes": ({"nodePolicies": [{"name": "a", "policy": {"policy": "none"}}]}, "/nodePolicies"),
    "no policy": ({"nodePolicies": [{**NODE_POLICY, "policy": {"policy": "statik"}}]}, "/nodePolicies/0/policy"),
    "no node": ({"nodePolicies": [{**NODE_POLICY, "rollout": {"atOnce": "0%"}}]}, "/nodePolicies/0/rollout"),
    "a strategy that does not exist": ({"updateStrategy": "Recreate"}, "/updateStrategy"),
    "a time without a unit": ({"checkTimeout": "2"}, "/checkTimeout"),
    "a rollout that never moves": ({"maxUnavailable": 0}, "/maxUnavailable"),
    "two options in one": ({"devicePlugin": {"options": ["--a; rm"]}}, "/devicePlugin"),
    "two variables in one": ({"devicePlugin": {"env": {"A": 'x"\nB=y'}}}, "/devicePlugin"),
    "no version": ({"devicePlugin": {"nvidiaConfig": {"sharing": {}}}}, "/devicePlugin"),
}


@pytest.mark.parametrize(("values", "complaint"), WRONG.values(), ids=WRONG)
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
