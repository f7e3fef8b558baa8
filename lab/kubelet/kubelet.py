"""A small kubelet: pods as CRI messages exactly as the kubelet builds them, and their calls in its order.

For the demo, tests and benchmarks. It keeps no state of its own and repeats nothing: what the runtime
answers is what the caller gets.
"""

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import METHODS
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.model import resources as units
from lab.containerd.cgroups import CgroupDriver, PodCgroups
from lab.kubelet.device_endpoint import Given, add

SANDBOX_TIMEOUT_S = 240.0
CREATE_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a pod's specification; 0 means that nothing was written."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_request_bytes: int = 0
    memory_limit_bytes: int = 0
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def cpu_milli(self) -> int:
        """The request, which the API server fills in from the limit where it is missing."""
        return self.cpu_request_milli or self.cpu_limit_milli

    @property
    def memory_bytes(self) -> int:
        """The request, filled in like `cpu_milli`."""
        return self.memory_request_bytes or self.memory_limit_bytes

    @property
    def guaranteed(self) -> bool:
        """Whether this container alone would make its pod Guaranteed."""
        limited = self.cpu_limit_milli > 0 and self.memory_limit_bytes > 0
        return limited and self.cpu_milli == self.cpu_limit_milli and self.memory_bytes == self.memory_limit_bytes


@dataclass(frozen=True, slots=True)
class PodSpec:
    """A pod; its UID follows from namespace and name unless given.

    With pod-level resources, `cpu_limit_milli` and so on are those of the whole pod; 0 means that nothing was written.
    """

    name: str
    containers: tuple[ContainerSpec, ...] = ()
    namespace: str = "default"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    given_uid: str = ""
    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_limit_bytes: int = 0

    @property
    def uid(self) -> str:
        """The UID, stable for one namespace and name."""
        return self.given_uid or str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.namespace}/{self.name}"))

    @property
    def qos(self) -> str:
        """``Guaranteed``, ``Burstable`` or ``BestEffort``."""
        if whole := self.cpu_request_milli or self.cpu_limit_milli:
            return "Guaranteed" if whole == self.cpu_limit_milli and self.memory_limit_bytes else "Burstable"
        if self.containers and all(c.guaranteed for c in self.containers):
            return "Guaranteed"
        asked = any(c.cpu_milli or c.memory_bytes or c.cpu_limit_milli for c in self.containers)
        return "Burstable" if asked else "BestEffort"

    def cgroup_parent(self, root: str = "/", driver: CgroupDriver = "cgroupfs") -> str:
        """Path of the pod's cgroup below *root*, as *driver* names it."""
        middle = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}[self.qos]
        if driver == "cgroupfs":
            return str(PurePosixPath(root) / "kubepods" / middle / f"pod{self.uid}")
        # A dash in a slice's name is a step down, so that those of the UID are written otherwise.
        words = ["kubepods", *filter(None, [middle]), f"pod{self.uid.replace('-', '_')}"]
        slices = ["-".join(words[: count + 1]) + ".slice" for count in range(len(words))]
        return str(PurePosixPath(root, *slices))


def oom_score_adj(qos: str, memory_request_bytes: int, memory_capacity_bytes: int) -> int:
    """How early the kernel kills the container, from the class and its part of the node's memory."""
    if qos != "Burstable":
        return units.GUARANTEED_OOM_SCORE_ADJ if qos == "Guaranteed" else units.BEST_EFFORT_OOM_SCORE_ADJ
    return units.request_to_oom_score_adj(memory_request_bytes, memory_capacity_bytes)


def sandbox_config(
    pod: PodSpec, cgroup_root: str = "/", attempt: int = 0, driver: CgroupDriver = "cgroupfs"
) -> api.PodSandboxConfig:
    """The sandbox of *pod* in the host's network, which needs no CNI."""
    return api.PodSandboxConfig(
        metadata=api.PodSandboxMetadata(name=pod.name, namespace=pod.namespace, uid=pod.uid, attempt=attempt),
        labels={**pod.labels, **_pod_labels(pod)},
        annotations=pod.annotations,
        linux=api.LinuxPodSandboxConfig(
            cgroup_parent=pod.cgroup_parent(cgroup_root, driver),
            security_context=api.LinuxSandboxSecurityContext(
                namespace_options=api.NamespaceOption(network=api.NODE, pid=api.CONTAINER)
            ),
            overhead=api.LinuxContainerResources(),
            resources=pod_resources(pod),
        ),
    )


def pod_resources(pod: PodSpec) -> api.LinuxContainerResources:
    """linux.resources of the sandbox of *pod*: those of the whole pod."""
    limits = [c.cpu_limit_milli for c in pod.containers]
    memory = [c.memory_limit_bytes for c in pod.containers]
    limit_milli = pod.cpu_limit_milli
    if not pod.cpu_request_milli and not limit_milli:
        limit_milli = sum(limits) if all(limits) else 0
    request_milli = pod.cpu_request_milli or pod.cpu_limit_milli or sum(c.cpu_milli for c in pod.containers)
    return api.LinuxContainerResources(
        cpu_period=units.DEFAULT_PERIOD_US,
        cpu_quota=units.milli_to_quota(limit_milli),
        cpu_shares=units.milli_to_shares(request_milli),
        memory_limit_in_bytes=pod.memory_limit_bytes or (sum(memory) if all(memory) else 0),
    )


def container_resources(pod: PodSpec, spec: ContainerSpec, memory_capacity_bytes: int) -> api.LinuxContainerResources:
    """linux.resources of a container as the kubelet with its managers switched off fills them.

    A container without a size of its own has the limits of its pod, and the shares of the pod's CPU limit.
    """
    return api.LinuxContainerResources(
        cpu_period=units.DEFAULT_PERIOD_US,
        cpu_quota=units.milli_to_quota(spec.cpu_limit_milli or pod.cpu_limit_milli),
        cpu_shares=units.milli_to_shares(spec.cpu_milli or pod.cpu_limit_milli),
        memory_limit_in_bytes=spec.memory_limit_bytes or pod.memory_limit_bytes,
        oom_score_adj=oom_score_adj(pod.qos, spec.memory_bytes, memory_capacity_bytes),
    )


def resized_resources(pod: PodSpec, spec: ContainerSpec, memory_capacity_bytes: int) -> api.LinuxContainerResources:
    """linux.resources of an in-place resize: the same, but without a request where the container has none."""
    found = container_resources(pod, spec, memory_capacity_bytes)
    if not spec.cpu_milli:
        found.cpu_shares = units.MIN_SHARES
    return found


def container_config(
    pod: PodSpec, spec: ContainerSpec, memory_capacity_bytes: int, attempt: int = 0
) -> api.ContainerConfig:
    """The container *spec* of *pod*; *attempt* is its restart count."""
    annotations = {
        "io.kubernetes.container.hash": f"{uuid.uuid5(uuid.NAMESPACE_URL, repr(spec)).fields[0]:x}",
        "io.kubernetes.container.restartCount": str(attempt),
        "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy": "File",
        "io.kubernetes.pod.terminationGracePeriod": "30",
    }
    return api.ContainerConfig(
        metadata=api.ContainerMetadata(name=spec.name, attempt=attempt),
        image=api.ImageSpec(image=spec.image),
        command=spec.command,
        labels={**_pod_labels(pod), "io.kubernetes.container.name": spec.name},
        annotations={**spec.annotations, **annotations},
        linux=api.LinuxContainerConfig(
            resources=container_resources(pod, spec, memory_capacity_bytes),
            security_context=api.LinuxContainerSecurityContext(
                namespace_options=api.NamespaceOption(network=api.NODE, pid=api.CONTAINER)
            ),
        ),
    )


def _pod_labels(pod: PodSpec) -> dict[str, str]:
    names = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {f"io.kubernetes.pod.{key}": value for key, value in names.items()}


class MiniKubelet:
    """Runs pods through *client*, each call once and in the kubelet's order.

    Args:
        client: the runtime, or criproxy in front of it.
        cgroups: makes the pods' parent cgroups; None where the runtime has no real ones.
        memory_capacity_bytes: the node's memory as oom_score_adj counts it.
        cgroup_driver: names the cgroups; systemd makes the pods' parents by itself, so that *cgroups* is None then.
    """

    def __init__(
        self,
        client: RuntimeClient,
        cgroups: PodCgroups | None = None,
        memory_capacity_bytes: int = 8 << 30,
        cgroup_driver: CgroupDriver = "cgroupfs",
    ) -> None:
        self._client = client
        self._cgroup_driver = cgroup_driver
        self._cgroups = cgroups
        self._memory_capacity_bytes = memory_capacity_bytes

    @property
    def cgroup_root(self) -> str:
        """What stands in front of ``kubepods`` in every cgroup path."""
        return self._cgroups.root if self._cgroups else "/"

    async def call(self, name: str, timeout_s: float = CREATE_TIMEOUT_S, **fields: Any) -> Any:  # noqa: ANN401 (its reply)
        """Call a method with a request of these fields."""
        method = METHODS[name]
        return await self._client.call(name, method.request(**fields), method.reply, timeout_s)

    async def run_sandbox(self, pod: PodSpec, attempt: int = 0) -> str:
        """Make the pod's cgroup and its sandbox; returns the sandbox's id."""
        config = sandbox_config(pod, self.cgroup_root, attempt, self._cgroup_driver)
        if self._cgroups:
            self._cgroups.make(config.linux.cgroup_parent)
        return str((await self.call("RunPodSandbox", SANDBOX_TIMEOUT_S, config=config)).pod_sandbox_id)

    async def create(
        self,
        pod: PodSpec,
        sandbox_id: str,
        spec: ContainerSpec,
        attempt: int = 0,
        given: Iterable[Given] = (),
        timeout_s: float = CREATE_TIMEOUT_S,
    ) -> str:
        """Create a container, with the devices that it was *given*, without starting it; returns its id."""
        config = container_config(pod, spec, self._memory_capacity_bytes, attempt)
        add(config, given)
        sandbox = sandbox_config(pod, self.cgroup_root, driver=self._cgroup_driver)
        fields = {"pod_sandbox_id": sandbox_id, "config": config, "sandbox_config": sandbox}
        return str((await self.call("CreateContainer", timeout_s, **fields)).container_id)

    async def start(self, container_id: str) -> None:
        """Start a created container."""
        await self.call("StartContainer", container_id=container_id)

    async def run_pod(self, pod: PodSpec) -> tuple[str, dict[str, str]]:
        """Run the sandbox, then create and start each container; returns (sandbox id, name → container id)."""
        sandbox_id = await self.run_sandbox(pod)
        ids: dict[str, str] = {}
        for spec in pod.containers:
            ids[spec.name] = await self.create(pod, sandbox_id, spec)
            await self.start(ids[spec.name])
        return sandbox_id, ids

    async def stop(self, container_id: str, grace_s: int = 0) -> None:
        """Stop a container: SIGTERM, and SIGKILL after *grace_s*."""
        await self.call("StopContainer", CREATE_TIMEOUT_S + grace_s, container_id=container_id, timeout=grace_s)

    async def remove(self, container_id: str) -> None:
        """Remove a stopped container."""
        await self.call("RemoveContainer", container_id=container_id)

    async def update(self, container_id: str, linux: api.LinuxContainerResources) -> None:
        """UpdateContainerResources, as for an in-place resize or by the kubelet's CPU manager."""
        await self._client.update_container_resources(container_id, linux)

    async def resize_pod(self, before: PodSpec, after: PodSpec, sandbox_id: str, ids: Mapping[str, str]) -> None:
        """Resize a whole pod in place: the sandbox first if it grows, and last if it shrinks.

        As the kubelet does until 1.35, it goes on where the runtime does not know the sandbox's call.
        """
        resources = pod_resources(after)
        grows = pod_resources(before).cpu_shares <= resources.cpu_shares
        for is_pod in (grows, not grows):
            if is_pod:
                with suppress(RuntimeCallError):
                    await self.call("UpdatePodSandboxResources", pod_sandbox_id=sandbox_id, resources=resources)
                continue
            for spec in after.containers:
                if spec.name in ids:
                    await self.update(ids[spec.name], resized_resources(after, spec, self._memory_capacity_bytes))

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop the sandbox with all its containers."""
        await self.call("StopPodSandbox", pod_sandbox_id=sandbox_id)

    async def remove_pod(self, sandbox_id: str) -> None:
        """Stop and remove the sandbox with all its containers; the second of two calls is no error."""
        await self.stop_sandbox(sandbox_id)
        await self.call("RemovePodSandbox", pod_sandbox_id=sandbox_id)
