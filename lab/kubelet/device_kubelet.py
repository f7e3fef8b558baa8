"""The part of a small kubelet that gives devices to pods: registration of plugins, admission, podresources.

Everything lies below one folder, as in /var/lib/kubelet. `MiniKubelet` then runs the pods. What a container was given
is written into its create by `device_endpoint.add`.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import grpc
from google.protobuf.message import Message

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.cri import podresources_pb2 as podresources
from lab.kubelet.device_endpoint import Given
from lab.kubelet.device_manager import DeviceManager
from lab.kubelet.kubelet import PodSpec

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
REGISTRATION_SOCKET = "device-plugins/kubelet.sock"
PODRESOURCES_SOCKET = "pod-resources/kubelet.sock"
"""Below the kubelet's folder."""
VERSION = "v1beta1"
REGISTRATION, PODRESOURCES = f"{VERSION}.Registration", "v1.PodResourcesLister"
"""The names of the services."""


class DeviceKubelet:
    """Serves device plugins and podresources between `start` and `stop`, or as an async context manager.

    Args:
        root: in place of /var/lib/kubelet; its path has to leave room for those of sockets.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._manager: DeviceManager | None = None
        self._pods: dict[str, PodSpec] = {}
        """Those that were admitted, by UID."""
        self._servers: list[grpc.aio.Server] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Listen; raises OSError if the folders cannot be made."""
        for path in (REGISTRATION_SOCKET, PODRESOURCES_SOCKET):
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        self._manager = DeviceManager(self.root / CHECKPOINT, self._news.set, lambda _: self._news.set())
        plugins, manager = self.root / REGISTRATION_SOCKET, self._manager

        async def take(request: api.RegisterRequest, context: "Context") -> api.Empty:
            return await register(manager, plugins.parent, request, context)

        lists = unary(self._list, podresources.ListPodResourcesRequest)
        self._servers = [
            await serve(plugins, REGISTRATION, {"Register": unary(take, api.RegisterRequest)}),
            await serve(self.root / PODRESOURCES_SOCKET, PODRESOURCES, {"List": lists}),
        ]

    async def stop(self) -> None:
        """Stop listening, and end the connections to plugins."""
        for server in self._servers:
            await server.stop(None)
        self._servers = []
        await self.manager.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def manager(self) -> DeviceManager:
        """What plugins offer, and who has what of it."""
        assert self._manager is not None, "not started"
        return self._manager

    def healthy(self, resource: str) -> list[str]:
        """The ids of *resource* that pods can be given or have, in order."""
        devices = self.manager.devices.get(resource)
        return sorted(devices.healthy) if devices else []

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return when *condition* is true: it is judged after each change of what plugins offer.

        Raises:
            TimeoutError: it is not in time.
        """
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._news.wait()
                self._news.clear()

    async def admit(self, pod: PodSpec, container: str, wanted: Mapping[str, int]) -> list[Given]:
        """What a container of *pod* gets; what it has already it keeps.

        Args:
            pod: whose it is.
            container: its name.
            wanted: how many devices, by resource.

        Raises:
            AdmissionError: it gets nothing; the text is the pod's message.
        """
        given = await self.manager.allocate((pod.uid, container), wanted)
        self._pods[pod.uid] = pod
        await self.manager.start((pod.uid, container))
        return list(given.values())

    def remove(self, pod: PodSpec) -> None:
        """Take back what a pod has that has ended."""
        self.manager.free(pod.uid)
        self._pods.pop(pod.uid, None)

    async def _list(
        self, _: podresources.ListPodResourcesRequest, context: "Context"
    ) -> podresources.ListPodResourcesResponse:
        """Serve podresources; a client that asks for Get learns that this kubelet is too old for it."""
        reply = podresources.ListPodResourcesResponse()
        for uid, pod in self._pods.items():
            told = reply.pod_resources.add(name=pod.name, namespace=pod.namespace)
            for (pod_uid, container), resources in self.manager.given.items():
                if pod_uid == uid:
                    entry = told.containers.add(name=container)
                    for resource, given in resources.items():
                        entry.devices.add(resource_name=resource, device_ids=given.ids)
        return reply


async def register(manager: DeviceManager, folder: Path, request: api.RegisterRequest, context: "Context") -> api.Empty:
    """Answer ``Register``: connect the plugin, whose socket is in *folder*."""
    if request.version != VERSION:
        text = f'requested API version "{request.version}" is not supported by kubelet. Supported version is'
        await context.abort(grpc.StatusCode.UNKNOWN, f'{text} "{VERSION}"')
    try:
        await manager.connect(request.resource_name, folder / request.endpoint)
    except grpc.aio.AioRpcError as error:
        await context.abort(grpc.StatusCode.UNKNOWN, f"failed to dial device plugin: {error.details()}")
    return api.Empty()


async def serve(
    socket: Path, service: str, methods: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
) -> grpc.aio.Server:
    """Serve the methods of *service* on a new socket."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, dict(methods)),))
    server.add_insecure_port(_free_address(socket))
    await server.start()
    return server


def _free_address(socket: Path) -> str:
    """The address of a socket that a former kubelet may have left behind."""
    socket.unlink(missing_ok=True)
    return f"unix://{socket.absolute()}"


def unary(act: Callable[..., Any], request: type[Message]) -> "grpc.RpcMethodHandler[Any, Any]":
    """The handler of a method that *act* answers."""
    return grpc.unary_unary_rpc_method_handler(act, request.FromString, lambda reply: reply.SerializeToString())
