"""Criproxy as a process between a small kubelet and a real containerd, and what the cgroups say."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.translate import pid_in
from criproxy.host.machine import discover
from criproxy.model.attributes import QUOTA
from criproxy.model.cpuset import CpuSet
from criproxy.node.cgroups import Cgroups
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests.daemons import LIMIT_S, Serve, until

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


def guaranteed(name: str, cpu_milli: int) -> PodSpec:
    """A Guaranteed pod of one container."""
    return PodSpec(name, (ContainerSpec("c0", IMAGE, cpu_limit_milli=cpu_milli, memory_limit_bytes=64 * MIB),))


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
        kubelets = containerd.endpoint if containerd.is_front else f"unix://{serve.socket}"
        self.client = RuntimeClient(kubelets, timeout_s=LIMIT_S)
        self.is_plugin = containerd.is_front
        self.nri_socket = containerd.nri_socket
        self.direct = RuntimeClient(containerd.endpoint, timeout_s=LIMIT_S)
        self.kubelet = MiniKubelet(self.client, containerd.cgroups)
        self._kernel = Cgroups(self.direct, Path("/"))

    async def run(self, pod: PodSpec) -> Ran:
        """Run a pod of one container."""
        sandbox_id, ids = await self.kubelet.run_pod(pod)
        return Ran(sandbox_id, ids["c0"])

    async def create(
        self,
        pod: PodSpec,
        change: Callable[[api.ContainerConfig], object] = lambda _: None,
        *,
        sandbox_id: str = "",
        attempt: int = 0,
    ) -> Ran:
        """Create the only container of a pod, in a sandbox of its own, as *change* leaves its configuration."""
        sandbox_id = sandbox_id or await self.kubelet.run_sandbox(pod)
        config = container_config(pod, pod.containers[0], 8 << 30, attempt)
        change(config)
        sandbox = sandbox_config(pod, self.kubelet.cgroup_root)
        request = api.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox)
        reply = await self.client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        return Ran(sandbox_id, reply.container_id)

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

        async def is_there() -> bool:
            return await self.cpus(container_id) == cpus

        await until(is_there, 0.01)

    async def has_exited(self, container_id: str) -> None:
        """Wait until the runtime says that a container has ended by itself."""
        await exited(self.direct, container_id)

    async def pid(self, container_id: str) -> int:
        """The first process of a running container."""
        pid = pid_in((await self.direct.container_status(container_id, verbose=True)).info)
        assert pid is not None
        return pid

    async def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End criproxy."""
        self.serve.signal(how)
        await self.serve.exit_status()

    async def begin(self) -> list[str]:
        """Start criproxy again; what it tells systemd when it is ready."""
        await self.serve.spawn()
        said = await self.serve.message("READY=1")
        await self.asked()
        return said

    async def asked(self) -> None:
        """Wait until the runtime asks criproxy, if that is its plugin."""

        async def is_asked() -> bool:
            notices = (await self.serve.ask("status", check=True))["notices"]
            return not any(each["kind"] == "nri" and each["wrong"] for each in notices)

        if self.is_plugin:
            await until(is_asked, 0.01)

    async def restart(self, how: signal.Signals) -> None:
        """End criproxy and start it again on the same state."""
        await self.end(how)
        await self.begin()

    async def release(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """What ``criproxy release`` answers, with that exit status."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", "release", "--format", "json"),
            *("--control-socket", str(self.serve.control), "--state-dir", str(self.serve.directory / "state")),
            *("--runtime-endpoint", self.direct.endpoint, *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == status, output
        answer: dict[str, Any] = json.loads(output)
        return answer


def _quota_us(file: Path) -> int:
    word = file.read_text().split()[0]
    return -1 if word == "max" else int(word)


@asynccontextmanager
async def proxied(
    directory: Path,
    containerd: PrivateContainerd,
    policy: str,
    program: tuple[str, ...] = ("-m", "criproxy"),
    path: str = "",
) -> AsyncIterator[Scene]:
    """Criproxy in front of *containerd*, with *path* before Python's; for *policy* and *program* see `Serve`."""
    pythonpath = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))
    nri = ("--nri", f"unix://{containerd.nri_socket}") if containerd.is_front else ()
    serve = Serve(directory, *nri, policy=policy, program=program, PYTHONPATH=pythonpath)
    serve.runtime.symlink_to(containerd.socket)
    async with serve:
        scene = Scene(serve, containerd)
        try:
            await scene.asked()
            yield scene
        finally:
            await scene.client.close()
            await scene.direct.close()


async def exited(client: RuntimeClient, container_id: str) -> None:
    """Wait for the end of a container."""

    async def is_over() -> bool:
        return (await client.container_status(container_id)).status.state == api.CONTAINER_EXITED

    await until(is_over, 0.01)  # containerd 1.6 has no events
