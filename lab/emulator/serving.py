"""From coroutines to gRPC methods: paths, messages, delays, and how a call ends with an error.

An error ends a call with `abort`, so that no message is ever sent beside a code other than OK.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri.methods import METHODS, Method
from lab.emulator.containers import Containers
from lab.emulator.core import Core
from lab.emulator.images import ImageService
from lab.emulator.records.records import Refusal
from lab.emulator.sandboxes import Sandboxes
from lab.emulator.streaming import Streaming

NAME = "criproxy-sim"
"""What the embedded runtime calls itself, if nothing else is asked for."""
Reply = Message | bytes
Unary = Callable[[Any], Awaitable[Reply]]
Stream = Callable[[Any], AsyncIterator[Reply]]
Action = Unary | Stream
if TYPE_CHECKING:  # these classes cannot be subscripted when they run
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

_SELF_TIMED = frozenset({"RunPodSandbox", "CreateContainer", "StartContainer"})
"""Methods that wait in their middle, between what a failure leaves behind and what success brings."""
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Node:
    """One coroutine per method; *api_version* is the one of the path, such as ``v1``."""

    def __init__(self, api_version: str, name: str, version: str, program: str) -> None:
        self._api_version = api_version
        self._name, self._version, self._program = name, version, program

    async def version(self, request: cri.VersionRequest) -> cri.VersionResponse:
        """Serve Version; the kubelet takes no other *version* than 0.1.0."""
        return cri.VersionResponse(
            version="0.1.0",
            runtime_name=self._name,
            runtime_version=self._version,
            runtime_api_version=self._api_version,
        )

    async def status(self, request: cri.StatusRequest) -> cri.StatusResponse:
        """Serve Status: always ready."""
        runc = {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": self._program}}
        config = {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": runc}}}
        conditions = [cri.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
        return cri.StatusResponse(
            status=cri.RuntimeStatus(conditions=conditions),
            info={"golang": '"none"', "config": json.dumps(config)} if request.verbose else None,
            runtime_handlers=[cri.RuntimeHandler(name=name) for name in ("", "runc")],
        )

    async def runtime_config(self, request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse:
        """Serve RuntimeConfig: the cgroups are cgroupfs paths."""
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))

    async def update_runtime_config(self, request: cri.UpdateRuntimeConfigRequest) -> cri.UpdateRuntimeConfigResponse:
        """Serve UpdateRuntimeConfig: a pod CIDR means nothing without a network."""
        return cri.UpdateRuntimeConfigResponse()


class Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a path; a path without one gets the answer of grpc-go.

    Args:
        core: what the handlers work on.
        missing: names of methods to be unknown.
        runtime: its name, its version, and the program of its default handler.
    """

    def __init__(self, core: Core, missing: frozenset[str], runtime: tuple[str, str, str]) -> None:
        self._handlers: dict[str, Handler] = {}
        self._tasks: set[asyncio.Future[Reply]] = set()
        for version in ("v1", "v1alpha2"):  # with the same messages
            for name, act in _methods(core, Node(version, *runtime)).items():
                if name not in missing:
                    path = f"/runtime.{version}.{METHODS[name].service}/{name}"
                    self._handlers[path] = self._handler(core, METHODS[name], act)
        self._services = {path.rpartition("/")[0] for path in self._handlers}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        """Return the handler of one call."""
        path = handler_call_details.method
        return self._handlers.get(path) or self._unknown(path)

    def _unknown(self, path: str) -> Handler:
        service, _, method = path.rpartition("/")
        text = f"unknown service {service[1:]}"
        if service in self._services:
            text = f"unknown method {method} for service {service[1:]}"

        async def refuse(_requests: object, context: Context) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _handler(self, core: Core, method: Method, act: Any) -> Handler:  # noqa: ANN401 - the method says which
        parse = method.request.FromString
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(_streaming(parse, act), response_serializer=_serialise)
        call = self._unary(core, method.name, parse, act)
        return grpc.unary_unary_rpc_method_handler(call, response_serializer=_serialise)

    def _unary(
        self, core: Core, name: str, parse: Callable[[bytes], Message], act: Unary
    ) -> Callable[[bytes, Context], Awaitable[Reply]]:
        async def timed(request: Message) -> Reply:
            if name not in _SELF_TIMED:
                await core.delay(name)
            return await act(request)

        async def call(data: bytes, context: Context) -> Reply:
            try:
                request = parse(data)
                # A real runtime goes on with a call whose client has gone; without delay nothing can be cut short.
                return await (self._to_its_end(timed(request)) if core.delay_s(name) else timed(request))
            except DecodeError:
                await context.abort(grpc.StatusCode.INTERNAL, "grpc: error unmarshalling request: unexpected EOF")
            except Refusal as refusal:
                await context.abort(_CODES[refusal.status], refusal.text)

        return call

    def _to_its_end(self, operation: Awaitable[Reply]) -> Awaitable[Reply]:
        task = asyncio.ensure_future(operation)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Reply]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may be left to wait


def _streaming(parse: Callable[[bytes], Message], act: Stream) -> Callable[[bytes, Context], AsyncIterator[Reply]]:
    async def call(data: bytes, context: Context) -> AsyncIterator[Reply]:
        try:
            request = parse(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INTERNAL, "grpc: error unmarshalling request: unexpected EOF")
        async for reply in act(request):
            yield reply

    return call


def _serialise(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else reply.SerializeToString()


def _once(act: Unary) -> Stream:
    """Serve a streamed list as one message: its field has the number of the plain list's."""

    async def stream(request: Message) -> AsyncIterator[Reply]:
        yield await act(request)

    return stream


def _methods(core: Core, node: Node) -> dict[str, Action]:
    images = ImageService(core.images)
    sandboxes, containers, streaming = Sandboxes(core), Containers(core), Streaming(core)
    return {
        "Version": node.version,
        "Status": node.status,
        "RuntimeConfig": node.runtime_config,
        "UpdateRuntimeConfig": node.update_runtime_config,
        "RunPodSandbox": sandboxes.run,
        "StopPodSandbox": sandboxes.stop,
        "RemovePodSandbox": sandboxes.remove,
        "PodSandboxStatus": sandboxes.status,
        "ListPodSandbox": sandboxes.list,
        "StreamPodSandboxes": _once(sandboxes.list),
        "PodSandboxStats": sandboxes.stats,
        "ListPodSandboxStats": sandboxes.list_stats,
        "StreamPodSandboxStats": _once(sandboxes.list_stats),
        "UpdatePodSandboxResources": sandboxes.update_resources,
        "RestorePod": containers.restore,
        "CreateContainer": containers.create,
        "StartContainer": containers.start,
        "StopContainer": containers.stop,
        "RemoveContainer": containers.remove,
        "ListContainers": containers.list,
        "StreamContainers": _once(containers.list),
        "ContainerStatus": containers.status,
        "UpdateContainerResources": containers.update,
        "ReopenContainerLog": containers.reopen_log,
        "ContainerStats": containers.stats,
        "ListContainerStats": containers.list_stats,
        "StreamContainerStats": _once(containers.list_stats),
        "ExecSync": streaming.exec_sync,
        "Exec": streaming.exec,
        "Attach": streaming.attach,
        "PortForward": streaming.port_forward,
        "GetContainerEvents": core.events.stream,
        "ListImages": images.list_images,
        "StreamImages": _once(images.list_images),
        "ImageStatus": images.image_status,
        "PullImage": images.pull_image,
        "RemoveImage": images.remove_image,
        "ImageFsInfo": images.image_fs_info,
    }
