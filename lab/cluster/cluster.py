"""The whole cluster, and its checks in order."""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from lab.cluster import check_placement, manifests
from lab.cluster.control_plane import ControlPlane
from lab.cluster.report import Check, Report
from lab.cluster.worker import Worker

GROUPS: dict[str, Sequence[Check]] = {"placement": check_placement.CHECKS}
"""The checks by the word that chooses them, in their order."""


class Cluster:
    """All parts."""

    def __init__(self, programs: Path, folder: Path, logs: Path) -> None:
        self.control_plane = ControlPlane(programs, folder / "control-plane", logs)
        self.worker = Worker(self.control_plane, folder / "worker-1", logs)

    async def start(self, stack: AsyncExitStack) -> None:
        """Start all parts."""
        await self.control_plane.start()
        await self.worker.start(stack)

    async def run_pods(self, *pods: manifests.Object, timeout_s: int = 120) -> None:
        """Create pods; returns when all of them are ready. ClusterError if that takes too long."""
        await self.control_plane.apply(*pods)
        names = [f"pod/{each['metadata']['name']}" for each in pods]
        await self.control_plane.kubectl("wait", "--for=condition=Ready", f"--timeout={timeout_s}s", *names)

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
        report.line(True, "control plane, criproxy and kubelet run", f"{time.monotonic() - begun:.0f} s")
        for name in groups or GROUPS:
            for each in GROUPS[name]:
                await report.check(each, cluster)
        return report.end()
