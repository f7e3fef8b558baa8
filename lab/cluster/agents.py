"""Agents of the small nodes: unprivileged processes, with tokens of the chart's ServiceAccount in kubeconfigs."""

from pathlib import Path

from criproxy.process.tether import python
from lab.cluster import chart
from lab.cluster.control_plane import ControlPlane, kubeconfig
from lab.cluster.process import Program
from lab.provenance import ROOT

USER = 62820
"""The user id of the chart's agent."""


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
        command += ["--kubeconfig", str(self._config), "--namespace", chart.NAMESPACE, *options]
        self.program = Program(command, logs / f"{node}.agent.log", {"PYTHONPATH": str(ROOT)})

    async def renew(self) -> None:
        """Give it a new token, and its kubeconfig."""
        token = await self._control_plane.token(chart.NAMESPACE, chart.ACCOUNT)
        text = kubeconfig(token, self._control_plane.authority)
        new = self._config.with_suffix(".new")
        new.write_text(text)
        new.replace(self._config)

    async def start(self) -> None:
        """Start it."""
        await self.renew()
        await self.program.start()
