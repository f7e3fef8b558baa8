"""A made-up kubelet for device plugins: takes registrations in both ways, serves podresources, admits containers.

Everything lies below one folder, as in /var/lib/kubelet. A restart is `stop`, then `start`: sockets in device-plugins
are removed, what containers have is kept in the checkpoint.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import Message

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.cri import pluginregistration_pb2 as registry
from lab.kubelet.device_endpoint import Given, Key
from lab.kubelet.device_kubelet import REGISTRATION, VERSION, register, serve, unary
from lab.kubelet.device_manager import DeviceManager
from tests.allocations import Allocated, Allocations
from tests.deviceplugin.news import PATIENT_S, News

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

CHECKPOINT = "kubelet_internal_checkpoint"
_SCAN_S = 0.02


@dataclass(frozen=True, slots=True)
class Pod:
    """Names a pod, by which podresources knows it."""

    uid: str
    name: str = ""
    namespace: str = "default"


class FakeKubelet(News):
    """One node's kubelet.

    Args:
        root: in place of /var/lib/kubelet.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.plugins_dir = root / "device-plugins"
        self.registry_dir = root / "plugins_registry"
        self.socket = self.plugins_dir / "kubelet.sock"
        self.podresources = Allocations(root / "pod-resources" / "kubelet.sock", root / "unused")
        self.refuses = ""
        """Why it takes no plugin; empty: it does."""
        self.answers = asyncio.Event()
        """Cleared: it takes registrations and is silent until this is set."""
        self.answers.set()
        self.registered: list[str] = []
        """The resource of each plugin that it took, in their order."""
        self.tries = 0
        """Registrations that it was asked for, or began."""
        self.manager = DeviceManager(self.plugins_dir / CHECKPOINT, self.wake, self._took)
        self.pods: dict[str, Pod] = {}
        self.found: dict[Path, str] = {}
        """The resources of the plugins in plugins_registry that it took, by their sockets."""
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------- its life

    async def start(self) -> None:
        """Start, as after a boot or a restart."""
        for folder in (self.plugins_dir, self.registry_dir):
            folder.mkdir(parents=True, exist_ok=True)
        for each in self.plugins_dir.iterdir():
            if each.name != CHECKPOINT and not each.is_dir():
                each.unlink(missing_ok=True)  # a plugin that ends removes its own
        self.manager = DeviceManager(self.plugins_dir / CHECKPOINT, self.wake, self._took)
        self._tell_podresources()
        await self.podresources.start()
        self._server = await serve(self.socket, REGISTRATION, {"Register": unary(self._register, api.RegisterRequest)})
        self._watching = asyncio.create_task(self._watch_registry())

    async def stop(self, *, killed: bool = False) -> None:
        """End; a killed one leaves its socket behind, which nobody serves."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None
        if self._server is not None:
            server, self._server = self._server, None
            if killed:
                self.socket.rename(hidden := self.socket.with_name(".killed"))
                await server.stop(None)
                hidden.rename(self.socket)
            else:
                await server.stop(None)
        await self.podresources.stop()
        await self.manager.stop()
        self.wake()

    async def restart(self, *, killed: bool = False) -> None:
        """End and start again."""
        await self.stop(killed=killed)
        await self.start()

    # ---------------------------------------------------------------- devices

    def capacity(self, resource: str) -> tuple[int, int]:
        """How many devices the node has, and how many of them are healthy."""
        return self.manager.capacity(resource)

    def lists(self, resource: str) -> int:
        """How many lists the plugin has sent that was registered last."""
        return self.manager.endpoints[resource].lists

    def healthy(self, resource: str) -> set[str]:
        """The healthy ids."""
        found = self.manager.devices.get(resource)
        return set(found.healthy) if found else set()

    def unhealthy(self, resource: str) -> set[str]:
        """The others."""
        found = self.manager.devices.get(resource)
        return set(found.unhealthy) if found else set()

    async def until_capacity(self, resource: str, capacity: int, healthy: int | None = None) -> None:
        """Return when the node has *capacity* devices, *healthy* of them healthy; if not given, all of them."""
        wanted = (capacity, capacity if healthy is None else healthy)
        await self.until(lambda: self.capacity(resource) == wanted)

    async def admit(
        self, pod: Pod, wanted: Mapping[str, int], container: str = "main", *, init: bool = False, running: bool = False
    ) -> Mapping[str, Given]:
        """Admit a container, and start it, unless it runs; for the arguments see `DeviceManager.allocate`.

        Raises:
            AdmissionError: it gets nothing.
        """
        key: Key = (pod.uid, container)
        given = await self.manager.allocate(key, wanted, init=init, running=running)
        self.pods[pod.uid] = pod
        self._tell_podresources()
        if not running:
            await self.manager.start(key)
        return given

    def remove(self, pod: Pod) -> None:
        """Forget a pod that has ended."""
        self.manager.free(pod.uid)
        self._tell_podresources()

    def _tell_podresources(self) -> None:
        self.podresources.entries = [
            Allocated(
                namespace=(pod := self.pods.get(pod_uid, Pod(pod_uid))).namespace,
                pod=pod.name or pod.uid,
                pod_uid=pod_uid,
                container=container,
                resource=resource,
                ids=given.ids,
            )
            for (pod_uid, container), resources in self.manager.given.items()
            for resource, given in resources.items()
        ]

    # ---------------------------------------------------------------- registration

    async def _register(self, request: api.RegisterRequest, context: "Context") -> api.Empty:
        self.tries += 1
        self.wake()
        if not _is_extended(request.resource_name):
            await context.abort(grpc.StatusCode.UNKNOWN, f'the ResourceName "{request.resource_name}" is invalid')
        await self.answers.wait()
        if self.refuses:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        return await register(self.manager, self.plugins_dir, request, context)

    def _took(self, resource: str) -> None:
        self.registered.append(resource)
        self.wake()

    async def _watch_registry(self) -> None:
        """Ask sockets in plugins_registry what they are, once each; drop the plugins of those that are gone."""
        known: dict[Path, tuple[int, int]] = {}
        resources = self.found = {}
        while True:
            found = {
                path: (path.stat().st_ino, path.stat().st_mtime_ns)
                for path in self.registry_dir.iterdir()
                if path.is_socket() and not path.name.startswith(".")
            }
            for path in [path for path in known if found.get(path) != known[path]]:
                del known[path]
                if path in resources:
                    await self.manager.disconnect(resources[path])
                    del resources[path]
                    self.wake()
            for path in found.keys() - known.keys():
                if resource := await self._found(path):
                    known[path], resources[path] = found[path], resource
            await asyncio.sleep(_SCAN_S)

    async def _found(self, path: Path) -> str:
        """The resource of a plugin that was taken; empty: it was not, and is tried again."""
        self.tries += 1
        async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
            try:
                info = await _call(channel, "GetInfo", registry.InfoRequest(), registry.PluginInfo)
                reason = self.refuses or await self._take(info, path)
                status = registry.RegistrationStatus(plugin_registered=not reason, error=reason)
                await _call(channel, "NotifyRegistrationStatus", status, registry.RegistrationStatusResponse)
            except grpc.aio.AioRpcError:
                return ""
        self.wake()
        return "" if reason else info.name

    async def _take(self, info: registry.PluginInfo, path: Path) -> str:
        """Why the plugin that says *info* is not taken; empty: it is."""
        if info.type != "DevicePlugin" or VERSION not in info.supported_versions:
            return f"no handler for {info.type} {list(info.supported_versions)}"
        try:
            await self.manager.connect(info.name, Path(info.endpoint or path))
        except grpc.aio.AioRpcError as error:
            return str(error.details())
        return ""


def _is_extended(resource: str) -> bool:
    domain, slash, name = resource.partition("/")
    return bool(domain and slash and name) and not f".{domain}".endswith(".kubernetes.io")


async def _call(channel: grpc.aio.Channel, name: str, request: Message, reply: type[Message]) -> Any:  # noqa: ANN401
    method: Any = channel.unary_unary(
        f"/pluginregistration.Registration/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=reply.FromString,
    )
    return await method(request, timeout=PATIENT_S)
