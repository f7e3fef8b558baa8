"""Criproxy as a process between a small kubelet and a real containerd, and what the cgroups say."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.host.machine import discover
from criproxy.model.attributes import QUOTA
from criproxy.model.cpuset import CpuSet
from criproxy.model.workload import ContainerState
from criproxy.node.cgroups import Cgroups
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import LIMIT_S, Serve

MIB = 1 << 20
ALL = discover().cpus
OWNED = frozenset([min(ALL - {min(ALL)})])
"""The CPU that the first owner of one CPU gets: the lowest that is not reserved."""


def owner(name: str, *commands: tuple[str, ...]) -> PodSpec:
    """A Guaranteed pod whose containers ask for one whole CPU each; without *commands*, one that sleeps."""
    specs = [
        ContainerSpec(f"c{number}", IMAGE, command, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB)
        for number, command in enumerate(commands or [()])
    ]
    return PodSpec(name, tuple(specs))


def sharer(name: str) -> PodSpec:
    """A BestEffort pod of one container."""
    return PodSpec(name, (ContainerSpec("c0", IMAGE),))


class Ran(NamedTuple):
    """The ids of a pod of one container."""

    sandbox_id: str
    container_id: str


class Scene:
    """Criproxy as a process between a small kubelet and containerd."""

    def __init__(self, serve: Serve, containerd: PrivateContainerd) -> None:
        self.serve = serve
        self.client = RuntimeClient(f"unix://{serve.socket}", timeout_s=LIMIT_S)
        self.direct = RuntimeClient(containerd.endpoint, timeout_s=LIMIT_S)
        self.kubelet = MiniKubelet(self.client, containerd.cgroups)
        self._kernel = Cgroups(self.direct, Path("/"))

    async def run(self, pod: PodSpec) -> Ran:
        """Run a pod of one container."""
        sandbox_id, ids = await self.kubelet.run_pod(pod)
        return Ran(sandbox_id, ids["c0"])

    async def remove(self, one: Ran) -> None:
        """Remove a pod as the kubelet does."""
        await self.kubelet.remove_pod(one.sandbox_id)

    async def kernel_sets(self, one: Ran) -> tuple[CpuSet, CpuSet]:
        """What its cgroup says."""
        return await self.sets(one.container_id)

    async def cpus(self, container_id: str) -> CpuSet:
        """What the container's cgroup says."""
        return (await self.sets(container_id))[0]

    async def sets(self, container_id: str) -> tuple[CpuSet, CpuSet]:
        """CPUs and memory nodes that the container's cgroup says."""
        seen = await self._kernel.read(container_id)
        assert seen.applied is not None, f"{container_id} does not run: {seen.state}"
        return seen.applied.cpus, seen.applied.mems

    async def quota_us(self, container_id: str) -> int:
        """The CFS quota that the container's cgroup says; -1 where there is none."""
        await self.sets(container_id)
        return _quota_us(Path(self._kernel.groups[container_id].file(QUOTA)))

    async def moves_to(self, container_id: str, cpus: CpuSet) -> None:
        """Wait until the container's cgroup says *cpus*: what follows a removal is done after its reply."""
        async with asyncio.timeout(60):
            while await self.cpus(container_id) != cpus:  # noqa: ASYNC110 (the kernel tells nobody)
                await asyncio.sleep(0.01)

    async def has_exited(self, container_id: str) -> None:
        """Wait until the runtime says that a container has ended by itself."""
        async with asyncio.timeout(60):
            while (await self._kernel.read(container_id)).state is not ContainerState.EXITED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def restart(self, how: signal.Signals) -> None:
        """End criproxy and start it again on the same state."""
        self.serve.signal(how)
        await self.serve.exit_status()
        await self.serve.spawn()
        await self.serve.message("READY=1")


def _quota_us(file: Path) -> int:
    word = file.read_text().split()[0]
    return -1 if word == "max" else int(word)


@asynccontextmanager
async def proxied(
    directory: Path, containerd: PrivateContainerd, policy: str, program: tuple[str, ...] = ("-m", "criproxy")
) -> AsyncIterator[Scene]:
    """Criproxy in front of *containerd*, with *policy* as the text of its policy file; for *program* see `Serve`."""
    (directory / "runtime.sock").symlink_to(containerd.socket)
    serve = Serve(directory, "--config", str(directory / "policy.yaml"), program=program)
    serve.policy.write_text(policy)
    async with serve:
        scene = Scene(serve, containerd)
        try:
            yield scene
        finally:
            await scene.client.close()
            await scene.direct.close()


async def exited(client: RuntimeClient, container_id: str) -> None:
    """Wait for the end of a container."""
    async with asyncio.timeout(60):
        while (await client.container_status(container_id)).status.state != api.CONTAINER_EXITED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # containerd 1.6 has no events
