"""The whole cluster, and its checks in order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from lab.cluster import chart, manifests
from lab.cluster.checks import agent, devices, kubectl, outage, placement, policies, scaling, signs
from lab.cluster.checks.report import Check, Report
from lab.cluster.control_plane import ControlPlane
from lab.cluster.process import ClusterError, until
from lab.cluster.small_node import Agent, SmallNode
from lab.cluster.worker import NAME, Worker
from tests.daemons import Serve

GROUPS: dict[str, Sequence[Check]] = {
    "agent": agent.CHECKS,
    "kubectl": kubectl.CHECKS,
    "placement": placement.CHECKS,
    "devices": devices.CHECKS,
    "scaling": scaling.CHECKS,
    "signs": signs.CHECKS,
    "policies": policies.CHECKS,
    "outage": outage.CHECKS,
}
"""The checks by the word that chooses them, in their order."""


SMALL = ("worker-2", "worker-3")
VALUES = {
    "nodeSelector": {"kubernetes.io/hostname": NAME},
    "agent": {"labels": True, "logLevel": "debug"},
    "devicePlugin": {"enabled": True, "configurations": {"default": {"version": "v1"}}},
    # Two pods that ask for one CPU each fit in the scheduler's eyes on a machine with two.
    "resources": {"requests": {"cpu": "0", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
    "initResources": {"requests": {"cpu": "0", "memory": "64Mi"}},
}
"""Those of the chart that a user would set."""
Value = TypeVar("Value")


class Cluster:
    """All parts."""

    def __init__(self, programs: Path, folder: Path, logs: Path) -> None:
        self.control_plane = ControlPlane(programs, folder / "control-plane", logs)
        self.worker = Worker(self.control_plane, folder / "worker-1", logs)
        self.small = [SmallNode(name, self.control_plane, folder / name, logs) for name in SMALL]
        self.agents = [
            Agent(self.control_plane, node.name, node.agent_socket, node.folder, logs, "--first-contact=1s")
            for node in self.small
        ]
        self.programs = folder / "programs"

    @property
    def names(self) -> tuple[str, ...]:
        """Of all nodes."""
        return (NAME, *SMALL)

    def serve_of(self, name: str) -> Serve:
        """The daemon of a node."""
        return self.worker.serve if name == NAME else self.small[SMALL.index(name)].serve

    async def start(self, stack: AsyncExitStack) -> None:
        """Start all parts."""
        await self.control_plane.start()
        await self.worker.start(stack)
        await self.control_plane.patch(f"/api/v1/nodes/{NAME}", {"metadata": {"labels": manifests.GROUP}})
        for node in self.small:
            await node.start(stack)

    async def start_agents(self) -> None:
        """Bring what the chart brings, and an agent to each node: to the worker as the chart's DaemonSet."""
        self.programs.mkdir(exist_ok=True)
        program = self.programs / "criproxy"
        program.write_text(chart.wrapper())
        program.chmod(0o755)
        await self.install()
        for each in self.agents:
            await each.start()
        for name in self.names:
            await self._until_reported(name)

    async def _until_reported(self, name: str) -> None:
        """Return when the agent of a node has written what it reports."""

        async def reported() -> bool:
            return bool(await agent.placement_of(self, name))

        await self.until(reported, f"the agent of {name} had written its NodePlacement", 120.0)

    async def install(self) -> None:
        """Create the objects of the chart, and the definition of NodeResourceTopology."""
        definitions = [*chart.definitions(), manifests.topology_definition()]
        await self.control_plane.apply(*definitions)
        names = [f"crd/{each['metadata']['name']}" for each in definitions]
        await self.control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        objects = await asyncio.to_thread(chart.objects, VALUES)
        control = self.worker.folder / "run/agent/pod"
        await self.control_plane.apply(
            *(
                chart.on_this_machine(each, control, self.programs, ["--first-contact=1s"])
                if each["kind"] == "DaemonSet"
                else each
                for each in objects
            )
        )

    async def until(self, condition: Callable[[], Awaitable[Value]], what: str, timeout_s: float = 60.0) -> Value:
        """What *condition* returns as soon as that is true; ClusterError if it takes too long."""
        return await until(condition, what, timeout_s)

    async def run_pods(self, *pods: manifests.Object, timeout_s: float = 120.0) -> None:
        """Create pods; returns when all of them are ready.

        Raises:
            ClusterError: that takes too long; with what the cluster says of the first that is not ready.
        """
        await self.control_plane.apply(*pods)
        for each in pods:
            await self.until_ready(each["metadata"]["name"], timeout_s)

    async def until_ready(self, name: str, timeout_s: float = 120.0) -> None:
        """Return when a pod is ready; ClusterError, with what is said of it, if that takes too long."""

        async def is_ready() -> bool:
            return manifests.is_ready(await self.pod(name))

        try:
            await self.until(is_ready, f"pod {name} was ready", timeout_s)
        except ClusterError:
            _, said, _ = await self.control_plane.try_kubectl("describe", "pod", name)
            raise ClusterError(f"pod {name} is not ready after {timeout_s:.0f} s; {said[-1500:]}") from None

    async def pod(self, name: str) -> Any:  # noqa: ANN401 (JSON)
        """A pod; None if there is none."""
        return await self.control_plane.get(f"/api/v1/namespaces/default/pods/{name}")

    async def delete_pods(self, *names: str) -> None:
        """Delete pods; returns when they have gone."""
        await self.control_plane.kubectl("delete", "pod", "--wait", *names)


async def run(programs: Path, folder: Path, logs: Path, groups: Sequence[str]) -> int:
    """Start the cluster and check it; the exit status."""
    report = Report()
    async with AsyncExitStack() as stack:
        cluster = Cluster(programs, folder, logs)
        begun = time.monotonic()
        await cluster.start(stack)
        await cluster.start_agents()
        report.line(True, "the control plane, three nodes and their agents run", f"{time.monotonic() - begun:.0f} s")
        for each in chosen(groups):
            await report.check(each, cluster)
        return report.end()


def chosen(names: Sequence[str]) -> list[Check]:
    """The checks of groups, or single ones by the names of their functions, in their order; all if none is named.

    Raises:
        ValueError: there is no such group or check.
    """
    everything = [(group, each) for group, checks in GROUPS.items() for each in checks]
    if unknown := set(names) - {word for group, each in everything for word in (group, each.__name__)}:
        raise ValueError(f"no checks {', '.join(sorted(unknown))}: there are {', '.join(GROUPS)}")
    return [each for group, each in everything if not names or {group, each.__name__} & set(names)]
