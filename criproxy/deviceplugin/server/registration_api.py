"""Registration with the kubelet: by a call to its socket, or by a socket in the directory that it watches."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.cri import pluginregistration_pb2 as registry
from criproxy.deviceplugin.server import messages
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.server import Handlers, unary
from criproxy.deviceplugin.server.sockets import Identity, identity, is_alive

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    # A kubelet that starts makes its socket before it listens.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.use_local_subchannel_pool", 1),
)


class RegistrationRefused(Exception):
    """The kubelet rejects the plugin, or does not answer; the text is the reason."""


class KubeletSocket:
    """The socket on which the kubelet accepts registrations.

    Args:
        path: For example /var/lib/kubelet/device-plugins/kubelet.sock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def identity(self) -> Identity | None:
        """Return the identity of the socket file: a kubelet that starts creates a new one; reads the file system."""
        return identity(self.path)

    async def is_alive(self) -> bool:
        """Whether a kubelet is listening."""
        return await asyncio.to_thread(is_alive, self.path)

    async def register(self, resource: Resource, endpoint: str, timeout_s: float) -> None:
        """Register a plugin that already serves its socket: the kubelet calls it before it answers.

        Args:
            resource: What the plugin offers.
            endpoint: The name of its socket, in the same directory.
            timeout_s: Limit for the kubelet's answer.

        Raises:
            RegistrationRefused: The kubelet rejected the plugin, or did not answer.
        """
        request = api.RegisterRequest(
            version=messages.VERSION,
            endpoint=endpoint,
            resource_name=resource.name,
            options=messages.options(resource),
        )
        async with grpc.aio.insecure_channel(f"unix://{self.path.absolute()}", options=_CHANNEL_OPTIONS) as channel:
            call: Any = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=api.RegisterRequest.SerializeToString,
                response_deserializer=api.Empty.FromString,
            )
            try:
                await call(request, timeout=timeout_s, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise RegistrationRefused(f"no answer within {timeout_s:g} s") from error
                raise RegistrationRefused(error.details() or error.code().name) from error


class RegistryEntry:
    """The service that the kubelet calls on a socket in plugins_registry, in addition to the device plugin itself.

    Args:
        resource: The name of the resource.
        path: Path of the socket.
        notified: Called with the kubelet's answer: why it rejected the plugin, or an empty string.
        failed: Called when a method raised an unexpected exception.
    """

    def __init__(
        self,
        resource: str,
        path: Path,
        notified: Callable[[str], None],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._info = registry.PluginInfo(
            type="DevicePlugin", name=resource, endpoint=str(path), supported_versions=[messages.VERSION]
        )
        self._notified = notified
        self._failed = failed

    def handlers(self) -> Handlers:
        """Return the handlers of the service."""
        return grpc.method_handlers_generic_handler(
            "pluginregistration.Registration",
            {
                "GetInfo": unary(self.GetInfo, registry.InfoRequest, self._failed),
                "NotifyRegistrationStatus": unary(
                    self.NotifyRegistrationStatus, registry.RegistrationStatus, self._failed
                ),
            },
        )

    async def GetInfo(self, _: registry.InfoRequest, context: "Context") -> registry.PluginInfo:
        """Return the type, name and socket of the plugin."""
        return self._info

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: "Context"
    ) -> registry.RegistrationStatusResponse:
        """Receive the result of the registration."""
        self._notified("" if request.plugin_registered else request.error or "the kubelet gave no reason")
        return registry.RegistrationStatusResponse()
