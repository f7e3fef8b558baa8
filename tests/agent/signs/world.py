"""A Node in a small API server, and what the agent knows of its daemon, without one."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from criproxy.agent.kubernetes.client import NODES, ApiClient
from criproxy.agent.kubernetes.credentials import plain
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.node_view import NodeView
from criproxy.agent.signs.node import NodeSigns, SignOptions
from criproxy.agent.signs.wanted import CONDITION
from criproxy.agent.troubles import Troubles
from lab.apiserver.server import ApiServer
from tests.agent.conftest import SHORT
from tests.agent.parts import running
from tests.agent.views import view_of
from tests.node.world import RecordingLog

NAME = "worker-1"
TAINT = {"key": "criproxy.io/not-ready", "effect": "NoSchedule"}
QUICK = SignOptions(
    heartbeat_s=60.0, grace_s=0.05, message_s=60.0, repair_s=0.05, conflict_s=0.1, gap_s=0.001, retries_s=(0.01, 0.05)
)


def view(known: Mapping[str, Any] | None = None) -> NodeView:
    """Return a view that knows this answer of a daemon, of a node that is well by default; no daemon is asked."""
    found = NodeView("/nonexistent", NAME, Troubles(RecordingLog()))
    found.last, found.problem = view_of() if known is None else known, ""
    return found


def says(of: NodeView, problem: str = "", **others: Any) -> None:  # noqa: ANN401 - JSON
    """Let the daemon say something else, or nothing any more because of a *problem*."""
    if not problem:
        of.last = view_of(**others)
    of.problem = problem
    of.notify()


class NodeWorld:
    """An API server with the Node of a machine.

    Args:
        server: the API server.
    """

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.view = view()
        self.log = RecordingLog()
        self.troubles = Troubles(self.log)

    def create(self, **spec: Any) -> None:  # noqa: ANN401 - JSON
        """Make the Node, as a kubelet does."""
        conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
        obj = {"metadata": {"name": NAME, "labels": {"a": "b"}}, "spec": spec, "status": {"conditions": conditions}}
        self.server.objects.create(NODES, obj, "kubelet")

    @property
    def node(self) -> dict[str, Any]:
        """The Node object."""
        return self.server.objects.get(NODES, NAME)

    @property
    def taints(self) -> list[Any]:
        """Its taints."""
        return list(self.node["spec"].get("taints", ()))

    @property
    def condition(self) -> dict[str, Any] | None:
        """Our condition."""
        found = (each for each in self.node["status"]["conditions"] if each["type"] == CONDITION)
        return next(found, None)

    def status(self) -> str:
        """Of our condition; empty without one."""
        return self.condition["status"] if self.condition else ""

    def signs(self, client: ApiClient, node: Watched, options: SignOptions = QUICK) -> NodeSigns:
        """Return what writes to the Node."""
        return NodeSigns(client, self.view, node, self.troubles, self.log, options)

    @asynccontextmanager
    async def agent(self, options: SignOptions = QUICK) -> AsyncIterator[NodeSigns]:
        """Run the part of an agent that writes to the Node."""
        async with ApiClient(plain(self.server.url), limits=SHORT) as client:
            node = Watched(client, NODES, name=NAME, metadata_only=True)
            signs = self.signs(client, node, options)
            async with running(node.run(), signs.run()):
                yield signs
