"""What the calls are about: pods and containers as a kubelet sends them, made and removed through a way."""

import itertools
from collections.abc import Sequence

from criproxy.cri import api_pb2 as api
from lab.bench.ways import Way
from lab.containerd.cgroups import PodCgroups
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config

CONTAINERS_PER_POD = 50
_CPU_MILLI = 100
_MEMORY_BYTES = 8 << 30
_LISTED_ANNOTATIONS = {"io.kubernetes.container.hash", "io.kubernetes.container.restartCount"}
"""What the bars were measured with: 69 kB in a list of 100 containers, where all of the kubelet's make 93 kB."""
_ENVS = 40
"""A pod in a cluster with a few services gets seven variables for each."""


class Pods:
    """Makes pods of one *image*; every name is used once.

    *cgroups* makes the parent cgroups of pods, where the runtime has real ones.
    """

    def __init__(self, image: str, cgroups: PodCgroups | None = None) -> None:
        self._image = image
        self._cgroups = cgroups
        self._numbers = itertools.count()

    def fill(self, way: Way, count: int) -> "list[Sandbox]":
        """Create *count* containers that are never started, in as few sandboxes as `CONTAINERS_PER_POD` allows."""
        made = []
        for begun in range(0, count, CONTAINERS_PER_POD):
            made.append(Sandbox(self, way))
            made[-1].create(way, made[-1].requests(min(CONTAINERS_PER_POD, count - begun)))
        return made

    def next_container(self) -> ContainerSpec:
        """A container that nobody had before, which wants a part of a CPU."""
        name = f"container-{next(self._numbers)}"
        return ContainerSpec(name, self._image, ("/bin/sleep", "3600"), _CPU_MILLI)

    def sandbox_config(self, pod: PodSpec) -> api.PodSandboxConfig:
        """The message for the sandbox of *pod*, whose parent cgroup exists afterwards."""
        if self._cgroups is None:
            return sandbox_config(pod)
        config = sandbox_config(pod, self._cgroups.root)
        self._cgroups.make(config.linux.cgroup_parent)
        return config


class Sandbox:
    """A sandbox that was made through *way*."""

    def __init__(self, pods: Pods, way: Way) -> None:
        self._pods = pods
        spec = pods.next_container()
        self._pod = PodSpec(f"bench-{spec.name}", (spec,))
        self._config = pods.sandbox_config(self._pod)
        reply = way.call("RunPodSandbox", api.RunPodSandboxRequest(config=self._config))
        assert isinstance(reply, api.RunPodSandboxResponse)
        self.id = reply.pod_sandbox_id
        self.size = 0
        """Containers that were created in it."""

    def requests(self, count: int) -> list[bytes]:
        """*count* serialised CreateContainerRequests, each of a container of its own."""
        return [self._request().SerializeToString() for _ in range(count)]

    def _request(self) -> api.CreateContainerRequest:
        config = container_config(self._pod, self._pods.next_container(), _MEMORY_BYTES)
        for key in config.annotations.keys() - _LISTED_ANNOTATIONS:
            del config.annotations[key]
        for number in range(_ENVS):
            config.envs.add(key=f"BENCH_{number}_SERVICE_PORT_8080_TCP", value=b"tcp://10.96.%d.17:8080" % number)
        return api.CreateContainerRequest(pod_sandbox_id=self.id, config=config, sandbox_config=self._config)

    def create(self, way: Way, requests: Sequence[bytes]) -> list[str]:
        """Create containers; returns their ids."""
        call = way.bytes_call("CreateContainer")
        self.size += len(requests)
        return [container_id(call(request)) for request in requests]

    def remove(self, way: Way) -> None:
        """Remove the sandbox and what is left in it."""
        way.call("StopPodSandbox", api.StopPodSandboxRequest(pod_sandbox_id=self.id))
        way.call("RemovePodSandbox", api.RemovePodSandboxRequest(pod_sandbox_id=self.id))


def container_id(reply: bytes) -> str:
    """The id in a serialised CreateContainerResponse."""
    return api.CreateContainerResponse.FromString(reply).container_id


def remove_containers(way: Way, ids: Sequence[str]) -> None:
    """Remove containers that do not run."""
    for one in ids:
        way.call("RemoveContainer", api.RemoveContainerRequest(container_id=one))
