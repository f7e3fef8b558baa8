"""Agents of all nodes: unprivileged processes, with a ServiceAccount's token and the rights that the chart gives."""

from pathlib import Path
from typing import Any

import yaml

from criproxy.process.tether import python
from lab.cluster.control_plane import ControlPlane, kubeconfig
from lab.cluster.manifests import NAMESPACE
from lab.cluster.process import Program
from lab.provenance import ROOT

ACCOUNT = "criproxy-agent"
USER = 62820
"""The user id of the chart's agent."""
RIGHTS = (
    ("", "nodes", "get list watch patch"),
    ("", "nodes/status", "patch"),
    ("", "pods", "get"),
    ("", "events", "create patch"),
    ("criproxy.io", "nodepolicies", "get list watch"),
    ("criproxy.io", "nodepolicies/status", "get patch update"),
    ("criproxy.io", "nodeplacements", "get list watch create patch update delete"),
    ("criproxy.io", "nodeplacements/status", "get patch update"),
    ("topology.node.k8s.io", "noderesourcetopologies", "get list watch create patch update delete"),
)
"""API group, resource, verbs: in the whole cluster."""
OWN_RIGHTS = (
    ("coordination.k8s.io", "leases", "get list watch create update patch delete"),
    ("", "configmaps", "get list watch"),
)
"""In the agents' namespace."""


def rights() -> list[dict[str, Any]]:
    """The objects that let an agent do its work."""
    group = "rbac.authorization.k8s.io"

    def role(kind: str, rules: tuple[tuple[str, str, str], ...], **metadata: str) -> list[dict[str, Any]]:
        words = [{"apiGroups": [each], "resources": [what], "verbs": verbs.split()} for each, what, verbs in rules]
        named = {"name": ACCOUNT, **metadata}
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        refers = {"apiGroup": group, "kind": kind, "name": ACCOUNT}
        head = {"apiVersion": f"{group}/v1", "metadata": named}
        return [
            {**head, "kind": kind, "rules": words},
            {**head, "kind": f"{kind}Binding", "roleRef": refers, "subjects": [subject]},
        ]

    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}
    roles = [*role("ClusterRole", RIGHTS), *role("Role", OWN_RIGHTS, namespace=NAMESPACE)]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, account, *roles]


class Agent:
    """The agent of one node.

    Args:
        node: its name.
        control_socket: of the node's daemon, for agents.
        folder: for its kubeconfig and token.
        logs: for its log.
        options: further ones.
    """

    def __init__(
        self, control_plane: ControlPlane, node: str, control_socket: Path, folder: Path, logs: Path, *options: str
    ) -> None:
        self.node = node
        self._control_plane = control_plane
        self._config = folder / "agent.kubeconfig"
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
        command += python("criproxy", "agent", "--node-name", node, "--control-socket", str(control_socket))
        command += ["--kubeconfig", str(self._config), "--namespace", NAMESPACE, *options]
        self.program = Program(command, logs / f"{node}.agent.log", {"PYTHONPATH": str(ROOT)})

    async def renew(self) -> None:
        """Give it a new token, and its kubeconfig."""
        token = await self._control_plane.token(NAMESPACE, ACCOUNT)
        text = kubeconfig(token, self._control_plane.authority)
        new = self._config.with_suffix(".new")
        new.write_text(text)
        new.replace(self._config)

    async def start(self) -> None:
        """Start it."""
        await self.renew()
        await self.program.start()


def crds(chart: Path) -> list[dict[str, Any]]:
    """The definitions of our objects in the chart."""
    return [each for file in sorted((chart / "crds").glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]
