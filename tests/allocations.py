"""The part of a made-up kubelet that knows allocations: podresources on a socket, and the checkpoint file."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import grpc

from criproxy.cri import podresources_pb2 as api
from lab.kubelet.device_endpoint import replace_checkpoint
from lab.kubelet.device_kubelet import PODRESOURCES, serve, unary

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Ids of one resource that one container was given; without a resource, it is only known."""

    namespace: str = "default"
    pod: str
    pod_uid: str
    container: str = "main"
    resource: str = ""
    ids: tuple[str, ...] = ()
    numa: int = -1
    """NUMA node of these devices; -1: the plugin does not tell."""


class Allocations:
    """What was allocated, and who tells of it.

    Args:
        socket: of podresources, while `start` has been called and `stop` has not.
        checkpoint: the file, which `write` writes.
    """

    def __init__(self, socket: Path, checkpoint: Path) -> None:
        self.socket = socket
        self.checkpoint = checkpoint
        self.entries: list[Allocated] = []
        self.former: list[Allocated] = []
        """Of pods that have ended, of which podresources still tells, and first, as older kubelets do."""
        self.get: Literal["known", "unknown", "disabled"] = "known"
        """Whether the kubelet has the method Get: it came late, and behind a feature gate."""
        self.answers = asyncio.Event()
        """Cleared: it takes calls and is silent until this is set."""
        self.answers.set()
        self.asked: Counter[str] = Counter()
        """Calls so far, by method."""
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve podresources, as a kubelet does that starts: the socket is made anew."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        methods = {
            "Get": unary(self._get, api.GetPodResourcesRequest),
            "List": unary(self._list, api.ListPodResourcesRequest),
        }
        self._server = await serve(self.socket, PODRESOURCES, methods)

    async def stop(self) -> None:
        """End at once, whoever waits for an answer."""
        if self._server:
            await self._server.stop(grace=None)
            self._server = None

    def write(self, *, lists: bool = False) -> None:
        """Write the checkpoint as the kubelet does, with a rename.

        Args:
            lists: in the format up to Kubernetes 1.19.
        """
        entries = [
            {
                "PodUID": each.pod_uid,
                "ContainerName": each.container,
                "ResourceName": each.resource,
                "DeviceIDs": list(each.ids) if lists else {str(each.numa): list(each.ids)},
                "AllocResp": "",
            }
            for each in self.entries
            if each.resource
        ]
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        replace_checkpoint(self.checkpoint, entries, {})

    async def _list(self, _: api.ListPodResourcesRequest, context: "Context") -> api.ListPodResourcesResponse:
        self.asked["List"] += 1
        await self.answers.wait()
        return api.ListPodResourcesResponse(pod_resources=self._pods())

    async def _get(self, request: api.GetPodResourcesRequest, context: "Context") -> api.GetPodResourcesResponse:
        self.asked["Get"] += 1
        await self.answers.wait()
        if self.get == "unknown":
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method Get for service v1.PodResourcesLister")
        if self.get == "disabled":
            await context.abort(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")
        wanted = (request.pod_namespace, request.pod_name)
        found = next((pod for pod in self._pods() if (pod.namespace, pod.name) == wanted), None)
        if found is None:
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
        return api.GetPodResourcesResponse(pod_resources=found)

    def _pods(self) -> Iterator[api.PodResources]:
        """One for each UID, in the order in which they came."""
        told = [*self.former, *self.entries]
        for pod_uid in dict.fromkeys(each.pod_uid for each in told):
            entries = [each for each in told if each.pod_uid == pod_uid]
            pod = api.PodResources(name=entries[0].pod, namespace=entries[0].namespace)
            for container in dict.fromkeys(each.container for each in entries):
                given = pod.containers.add(name=container)
                given.devices.extend(
                    _devices(each) for each in entries if each.container == container and each.resource
                )
            yield pod


def _devices(each: Allocated) -> api.ContainerDevices:
    nodes = [api.NUMANode(ID=each.numa)] if each.numa >= 0 else []
    topology = api.TopologyInfo(nodes=nodes) if nodes else None
    return api.ContainerDevices(resource_name=each.resource, device_ids=each.ids, topology=topology)
