"""The kubelet's part after a reboot: every pod is still to run, and all of them are brought up at once.

As kubelet 1.35 does it: what was there is read from the runtime; a sandbox that is not ready is stopped, the next
attempt of the same UID is run, and each container gets the attempt after its last one; what failed is tried again; what
is dead is collected meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.containerd.cgroups import PodCgroups
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, PodSpec, container_config, sandbox_config

UID, NAME = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
MEMORY_BYTES = 64 << 30
RETRY_PAUSE_S = 0.1
"""The kubelet waits ten seconds and more."""


@dataclass(slots=True)
class BootingKubelet:
    """Brings *pods* up through *client*, and keeps at it.

    *envs* are those of all containers of a pod, by its UID, as device plugins give them; *cgroups* makes the pods'
    parents where the runtime has real ones.
    """

    client: RuntimeClient
    pods: Sequence[PodSpec]
    envs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cgroups: PodCgroups | None = None
    created: int = 0
    """Replies to creates so far."""
    refused: Counter[str] = field(default_factory=Counter)
    """Sentences of failed calls."""
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each create, to be cleared by who waits."""

    async def bring_up(self) -> dict[str, list[str]]:
        """Run every pod, all at once; returns the ids of its containers by the pod's name."""
        found = await asyncio.gather(*(self._insist(pod, number) for number, pod in enumerate(self.pods)))
        return {pod.name: ids for pod, ids in zip(self.pods, found, strict=True)}

    async def _insist(self, pod: PodSpec, number: int) -> list[str]:
        while True:
            try:
                return await self._sync(pod, early=number % 3 == 0)
            except RuntimeCallError as error:
                self.refused[f"{error.code.name} {error.details}"] += 1
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _sync(self, pod: PodSpec, *, early: bool) -> list[str]:
        """Bring one pod up; *early*: its dead sandboxes are collected before it runs, else while it is created."""
        sandboxes = await self._sandboxes(pod)
        dead = [one for one in sandboxes if one.state == api.SANDBOX_NOTREADY]
        ready = [one.id for one in sandboxes if one.state == api.SANDBOX_READY]
        for one in dead:
            await self._stop(one.id)
        containers = await self._containers(pod)
        collecting = self._collect([one.id for one in dead])
        if early:
            await collecting
        attempt = 1 + max((one.metadata.attempt for one in sandboxes), default=-1)
        config = sandbox_config(pod, self.cgroups.root if self.cgroups else "/", attempt)
        sandbox_id = ready[0] if ready else await self._run(config)
        ids = self._start(pod, sandbox_id, config, containers)
        return await ids if early else (await asyncio.gather(ids, collecting))[0]

    async def _run(self, config: api.PodSandboxConfig) -> str:
        if self.cgroups:
            await asyncio.to_thread(self.cgroups.make, config.linux.cgroup_parent)
        request = api.RunPodSandboxRequest(config=config)
        reply = await self.client.call("RunPodSandbox", request, api.RunPodSandboxResponse, CREATE_TIMEOUT_S)
        return reply.pod_sandbox_id

    async def _start(
        self, pod: PodSpec, sandbox_id: str, config: api.PodSandboxConfig, known: Sequence[api.Container]
    ) -> list[str]:
        return [await self._start_one(pod, spec, sandbox_id, config, known) for spec in pod.containers]

    async def _start_one(
        self,
        pod: PodSpec,
        spec: ContainerSpec,
        sandbox_id: str,
        config: api.PodSandboxConfig,
        known: Sequence[api.Container],
    ) -> str:
        mine = [one for one in known if one.labels[NAME] == spec.name]
        for one in mine:
            if one.pod_sandbox_id == sandbox_id and one.state == api.CONTAINER_RUNNING:
                return one.id
        attempt = 1 + max((one.metadata.attempt for one in mine), default=-1)
        request = api.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=container_config(pod, spec, MEMORY_BYTES, attempt),
            sandbox_config=config,
        )
        for key, value in self.envs.get(pod.uid, {}).items():
            request.config.envs.add(key=key, value=value.encode())
        created = await self.client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        self.created += 1
        self.progress.set()
        start = api.StartContainerRequest(container_id=created.container_id)
        await self.client.call("StartContainer", start, api.StartContainerResponse, CREATE_TIMEOUT_S)
        for one in mine:  # former attempts: not all of them, if their sandbox has been collected
            remove = api.RemoveContainerRequest(container_id=one.id)
            await self.client.call("RemoveContainer", remove, api.RemoveContainerResponse, CREATE_TIMEOUT_S)
        return created.container_id

    async def _collect(self, sandbox_ids: Sequence[str]) -> None:
        """As the collection of garbage does, which stops once more what it removes."""
        for sandbox_id in sandbox_ids:
            await self._stop(sandbox_id)
            remove = api.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
            await self.client.call("RemovePodSandbox", remove, api.RemovePodSandboxResponse, CREATE_TIMEOUT_S)

    async def _stop(self, sandbox_id: str) -> None:
        stop = api.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self.client.call("StopPodSandbox", stop, api.StopPodSandboxResponse, CREATE_TIMEOUT_S)

    async def take_down(self) -> None:
        """Stop and remove every pod, all at once."""
        for pod in self.pods:
            await self._collect([one.id for one in await self._sandboxes(pod)])

    async def _sandboxes(self, pod: PodSpec) -> list[api.PodSandbox]:
        wanted = api.ListPodSandboxRequest(filter=api.PodSandboxFilter(label_selector={UID: pod.uid}))
        return list((await self.client.call("ListPodSandbox", wanted, api.ListPodSandboxResponse)).items)

    async def _containers(self, pod: PodSpec) -> list[api.Container]:
        wanted = api.ListContainersRequest(filter=api.ContainerFilter(label_selector={UID: pod.uid}))
        return list((await self.client.call("ListContainers", wanted, api.ListContainersResponse)).containers)
