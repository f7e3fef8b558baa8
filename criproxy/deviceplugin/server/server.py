"""A gRPC server on a socket in one of the kubelet's directories."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server import sockets
from criproxy.deviceplugin.server.servicer import Servicer
from criproxy.deviceplugin.server.sockets import Identity, SocketError
from criproxy.errors import for_kubelet
from criproxy.process.ending import in_full

Handlers = grpc.GenericRpcHandler
STOP_S = 1.0
"""How long calls in progress may take when the server stops."""
END_S = 2.0
"""Timeout for stopping: gRPC waits forever for a call that ignores its cancellation."""


class Server:
    """Serves until `stop`.

    Args:
        path: Path of the socket.
        handlers: The services.
    """

    def __init__(self, path: Path, handlers: Sequence[Handlers]) -> None:
        self.path = path
        self._handlers = handlers
        self._server: grpc.aio.Server | None = None
        self.claimed: Identity | None = None
        """The socket that it created; None if it has created none yet."""
        self._stopped = False

    async def start(self) -> None:
        """Listen, then give the socket its name, so that clients that see it can call. Leaves nothing if cancelled.

        Raises:
            SocketTrouble: No socket can be created; nothing is left behind.
        """
        try:
            await in_full(self._start(), None, END_S)
        except RuntimeError as error:  # gRPC's own log has the reason
            await self.stop()
            raise SocketError(f"{self.path.parent}: no socket can be created in it") from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop, and remove the socket if it is still ours; calls in progress get `STOP_S`."""
        self._stopped = True
        with suppress(TimeoutError):
            await in_full(self._stop(), END_S, END_S)

    async def _start(self) -> None:
        hidden = await asyncio.to_thread(sockets.hidden_path, self.path.parent)
        self._server = server = grpc.aio.server()
        server.add_generic_rpc_handlers(tuple(self._handlers))
        with sockets.owner_only_umask():
            server.add_insecure_port(f"unix://{hidden.absolute()}")
        await server.start()
        self.claimed = await asyncio.to_thread(sockets.claim, hidden, self.path)
        if self._stopped:  # start() has been cancelled, or has timed out
            await self._stop()

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if self.claimed is not None:
            await asyncio.to_thread(sockets.release, self.path, self.claimed)
        if server is not None:
            await server.stop(STOP_S)


def device_plugin(servicer: Servicer) -> Handlers:
    """Return the handlers of the service that the kubelet calls."""
    return grpc.method_handlers_generic_handler(
        "v1beta1.DevicePlugin",
        {
            "GetDevicePluginOptions": unary(servicer.GetDevicePluginOptions, api.Empty, servicer.failed),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(servicer.ListAndWatch, api.Empty.FromString),
            "GetPreferredAllocation": unary(
                servicer.GetPreferredAllocation, api.PreferredAllocationRequest, servicer.failed
            ),
            "Allocate": unary(servicer.Allocate, api.AllocateRequest, servicer.failed),
            "PreStartContainer": unary(servicer.PreStartContainer, api.PreStartContainerRequest, servicer.failed),
        },
    )


def unary(
    act: Callable[..., Awaitable[Message]], request: type[Message], failed: Callable[[str, Exception], None]
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a method with one reply. gRPC itself would send the text of any exception to the caller.

    Args:
        act: Returns the reply.
        request: The type of its request messages.
        failed: Called with the method and an unexpected exception.
    """

    async def call(data: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        try:
            reply = await act(request.FromString(data), context)
            return reply.SerializeToString()
        except grpc.aio.AbortError:
            raise
        except DecodeError:
            await context.abort(grpc.StatusCode.INTERNAL, "the request cannot be read")
        except Exception as error:  # noqa: BLE001 (no text of an exception may reach pods)
            failed(request.DESCRIPTOR.name, error)
            await context.abort(grpc.StatusCode.INTERNAL, for_kubelet(error))

    return grpc.unary_unary_rpc_method_handler(call)
