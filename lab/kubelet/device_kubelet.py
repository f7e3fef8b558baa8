"""The services of a kubelet that gives devices to pods: registration of plugins, and podresources."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import Message

from criproxy.cri import deviceplugin_pb2 as api
from lab.kubelet.device_manager import DeviceManager

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

VERSION = "v1beta1"
REGISTRATION, PODRESOURCES = f"{VERSION}.Registration", "v1.PodResourcesLister"
"""The names of the services."""


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
