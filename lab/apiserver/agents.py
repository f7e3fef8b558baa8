"""Many agents in one process, for `scale`: each has a client, what it follows, its rollouts and its objects."""

import asyncio
import random
import sys
from collections.abc import Mapping
from typing import Any

import structlog

from criproxy.agent.changes import Changes
from criproxy.agent.kubernetes import client as api
from criproxy.agent.kubernetes.client import ApiClient
from criproxy.agent.kubernetes.credentials import plain
from criproxy.agent.kubernetes.watch import Watched
from criproxy.agent.publish import placement_publisher, topology_publisher
from criproxy.agent.rollout.trial import Followed, Rollout
from criproxy.agent.signs.node import NodeSigns
from criproxy.agent.troubles import Troubles
from tests.agent.rollout.daemon_model import DaemonModel
from tests.agent.views import WEB, planned, view_of

DAEMON_S = 0.01
"""How long a daemon takes to answer."""


class DaemonView(Changes):
    """A `NodeView` of a model of the daemon, on a node on which pods come and go."""

    def __init__(self, name: str, places: tuple[dict[str, Any], ...]) -> None:
        super().__init__()
        self.node_name, self.problem, self.silent_s = name, "", 0.0
        self._daemon, self._places = DaemonModel(name), places
        self.last: Mapping[str, Any] | None = {**places[0], **self._daemon.view()}

    async def run(self) -> None:
        """Follow the daemon, for ever."""
        while True:
            await self._daemon.changed(self._daemon.version)
            self._show()

    def pod_comes_or_goes(self) -> None:
        """Change what is free."""
        self._places = (*self._places[1:], self._places[0])
        self._show()

    def _show(self) -> None:
        self.last = {**self._places[0], **self._daemon.view()}
        self.notify()

    async def ask(self, command: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = 60.0) -> Any:  # noqa: ANN401
        """Ask the daemon."""
        del timeout_s
        await asyncio.sleep(DAEMON_S)
        return self._daemon.answer(command, arguments or {})


async def agent(url: str, view: DaemonView, first_contact_s: float) -> None:
    """Run one agent, for ever, as `criproxy.agent.serve` does."""
    log, name = structlog.get_logger(), view.node_name
    async with ApiClient(plain(url), node=name, first_contact_s=first_contact_s) as client:
        node = Watched(client, api.NODES, name=name, metadata_only=True)
        placement = Watched(client, api.NODE_PLACEMENTS, name=name)
        topology = Watched(client, api.NODE_RESOURCE_TOPOLOGIES, name=name, metadata_only=True)
        followed, troubles = Followed(Watched(client, api.NODE_POLICIES), node, placement), Troubles(log)
        rollout = Rollout(client, view, followed, namespace="criproxy", troubles=troubles, log=log)  # type: ignore[arg-type]
        parts = (
            view,
            followed.policies,
            node,
            placement,
            topology,
            rollout,
            placement_publisher(client, view, node, placement, rollout, troubles),  # type: ignore[arg-type]
            topology_publisher(client, view, node, topology, troubles),  # type: ignore[arg-type]
            NodeSigns(client, view, node, troubles, log),  # type: ignore[arg-type]
        )
        await asyncio.gather(*(part.run() for part in parts))


async def main(url: str, names: list[str], first_contact_s: float) -> None:
    """Run agents until standard input ends; for each line of it, a pod comes or goes on each node within so many s."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    places = (view_of(planned()), view_of(planned(containers=(WEB,))))
    views = [DaemonView(name, places) for name in names]
    tasks = [asyncio.create_task(agent(url, view, first_contact_s)) for view in views]
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        for view in views:
            loop.call_later(random.uniform(0, float(line)), view.pod_comes_or_goes)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], [f"node-{number}" for number in range(int(sys.argv[2]))], float(sys.argv[3])))
