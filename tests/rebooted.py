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
from criproxy.cri import deviceplugin_pb2 as device_api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from lab.containerd.cgroups import PodCgroups
from lab.kubelet.device_endpoint import Given
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec

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
    refused: Counter[str] = field(default_factory=Counter)
    """Sentences of failed calls."""
    _mini: MiniKubelet = field(init=False)

    def __post_init__(self) -> None:
        self._mini = MiniKubelet(self.client, self.cgroups, MEMORY_BYTES)

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
        dead = [one.id for one in sandboxes if one.state == api.SANDBOX_NOTREADY]
        ready = [one.id for one in sandboxes if one.state == api.SANDBOX_READY]
        for each in dead:
            await self._mini.stop_sandbox(each)
        wanted = api.ContainerFilter(label_selector={UID: pod.uid})
        containers = (await self._mini.call("ListContainers", filter=wanted)).containers
        collecting = self._collect(dead)
        if early:
            await collecting
        attempt = 1 + max((one.metadata.attempt for one in sandboxes), default=-1)
        sandbox_id = ready[0] if ready else await self._mini.run_sandbox(pod, attempt)
        ids = self._start(pod, sandbox_id, containers)
        return await ids if early else (await asyncio.gather(ids, collecting))[0]

    async def _start(self, pod: PodSpec, sandbox_id: str, known: Sequence[api.Container]) -> list[str]:
        return [await self._start_one(pod, spec, sandbox_id, known) for spec in pod.containers]

    async def _start_one(
        self, pod: PodSpec, spec: ContainerSpec, sandbox_id: str, known: Sequence[api.Container]
    ) -> str:
        mine = [one for one in known if one.labels[NAME] == spec.name]
        for one in mine:
            if one.pod_sandbox_id == sandbox_id and one.state == api.CONTAINER_RUNNING:
                return one.id
        attempt = 1 + max((one.metadata.attempt for one in mine), default=-1)
        answer = device_api.ContainerAllocateResponse(envs=self.envs.get(pod.uid, {}))
        given = [Given((), answer.SerializeToString())]
        container_id = await self._mini.create(pod, sandbox_id, spec, attempt, given)
        await self._mini.start(container_id)
        for one in mine:  # former attempts: not all of them, if their sandbox has been collected
            await self._mini.remove(one.id)
        return container_id

    async def _collect(self, sandbox_ids: Sequence[str]) -> None:
        """As the collection of garbage does, which stops once more what it removes."""
        for sandbox_id in sandbox_ids:
            await self._mini.remove_pod(sandbox_id)

    async def take_down(self) -> None:
        """Stop and remove every pod, all at once."""
        for pod in self.pods:
            await self._collect([one.id for one in await self._sandboxes(pod)])

    async def _sandboxes(self, pod: PodSpec) -> Sequence[api.PodSandbox]:
        wanted = api.PodSandboxFilter(label_selector={UID: pod.uid})
        found: Sequence[api.PodSandbox] = (await self._mini.call("ListPodSandbox", filter=wanted)).items
        return found
