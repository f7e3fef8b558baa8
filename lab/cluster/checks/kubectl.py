"""``kubectl criproxy`` through a real API server: the tables of the node, and whom RBAC lets ask."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.cluster import chart, manifests
from lab.cluster.control_plane import kubeconfig
from lab.cluster.process import ClusterError
from lab.cluster.worker import NAME
from lab.provenance import ROOT

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster

POD, VIEWER, NOBODY = "shown", "viewer", "nobody"
_WITHIN_S = 60.0


async def criproxy(cluster: "Cluster", config: Path, *words: str) -> tuple[int, str, str]:
    """Exit status, output and errors of ``kubectl criproxy``."""
    programs = Path(cluster.control_plane.kubectl_program).parent
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    options = ("--kubeconfig", str(config), "--criproxy-namespace", chart.NAMESPACE)
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-B", "-P", "-m", "criproxy.cli.kubectl.plugin", *words, *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environ)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def account(cluster: "Cluster", name: str, *bindings: manifests.Object) -> Path:
    """The kubeconfig of a new ServiceAccount with these bindings."""
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    await cluster.control_plane.apply(made, *bindings)
    config = cluster.control_plane.folder / f"{name}.kubeconfig"
    token = await cluster.control_plane.token("default", name)
    config.write_text(kubeconfig(token, cluster.control_plane.authority))
    return config


def binding(kind: str, role: str, namespace: str = "") -> manifests.Object:
    """The viewer has a Role (in its namespace) or a ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": f"{role}-{VIEWER}", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": VIEWER, "namespace": "default"}],
    }


async def viewer(cluster: "Cluster") -> Path:
    """The kubeconfig of who has the chart's Role, and what `view` has."""
    role = binding("Role", "criproxy-viewer", chart.NAMESPACE)
    return await account(cluster, VIEWER, role, binding("ClusterRole", "view"))


async def node_is_shown(cluster: "Cluster") -> str:
    """Who has the chart's Role sees with kubectl criproxy what criproxy shows on the node."""
    await cluster.run_pods(manifests.guaranteed(POD, "1", node=NAME))
    config = await viewer(cluster)

    said = [""]

    async def answers() -> bool:
        status, _, said[0] = await criproxy(cluster, config, "who", "0", "--node", NAME)
        return status == 0

    try:
        await cluster.until(answers, "the agent of the chart answered", _WITHIN_S)
    except ClusterError as error:
        raise ClusterError(f"{error}: {said[0]}") from None
    found = []
    for words in (["status", "--node", NAME], ["explain", f"default/{POD}"], ["explain", POD], ["nodes"]):
        status, out, err = await criproxy(cluster, config, *words)
        assert status == 0, f"{words}: {err}"
        assert (NAME if words == ["nodes"] else f"default/{POD}") in out, f"{words}: {out}"
        found.append(out)
    status, out, err = await criproxy(cluster, config, "status", "--node", NAME, "-o", "json")
    (row,) = (each for each in json.loads(out)["containers"] if each["pod"] == POD)
    assert row["exclusive_cpus"], f"{row}: {err}"
    fits = (await criproxy(cluster, config, "fit", "--cpu", "500", "--node", NAME))[0]
    assert fits == 1, "500 CPUs would fit"
    await cluster.delete_pods(POD)
    return f"{POD} on CPU {row['exclusive_cpus']}: {found[1].splitlines()[2]}"


async def strangers_are_refused(cluster: "Cluster") -> str:
    """Others are refused, and hear which rule they lack; a node without the chart's agent is said."""
    config = await account(cluster, NOBODY)
    status, _, err = await criproxy(cluster, config, "status", "--node", NAME)
    assert status == 1, "whoever asks is answered"
    assert "forbidden" in err, err
    assert "resources: [pods], verbs: [list]} in a Role in namespace kube-system" in err, err
    _, _, no_agent = await criproxy(cluster, await viewer(cluster), "status", "--node", "worker-2")
    assert "no agent of criproxy runs on node worker-2" in no_agent, no_agent
    _, _, no_node = await criproxy(cluster, cluster.control_plane.kubeconfig("admin"), "who", "0", "--node", "none")
    assert "there is no node none" in no_node, no_node
    return err.splitlines()[0][:200]


async def nothing_changes(cluster: "Cluster") -> str:
    """The API server's proxy leads to no command that changes a node, also with the token."""
    pods = await cluster.control_plane.get(
        f"/api/v1/namespaces/{chart.NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=agent"
    )
    (pod,) = (each["metadata"]["name"] for each in pods["items"])
    path = f"/api/v1/namespaces/{chart.NAMESPACE}/pods/http:{pod}:9822/proxy/v1/query"
    status, answer = await cluster.control_plane.request("POST", path, {"command": "reload", "arguments": {}})
    assert status == 401, (status, answer)
    metrics, text = await cluster.control_plane.request("GET", path.replace("v1/query", "metrics"))
    assert metrics == 200, (metrics, text)
    assert "criproxy_agent_daemon_connected 1.0" in str(text), str(text)[:2000]
    return f"without the token: {status} {answer}"


CHECKS = (node_is_shown, strangers_are_refused, nothing_changes)
