"""From coroutines to gRPC methods: paths, messages, delays, and how a call ends with an error.

An error ends a call with `abort`, so that no message is ever sent beside a code other than OK.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message

from criproxy.cri import api_pb2 as cri
from criproxy.cri.methods import METHODS
from lab.emulator.containers import Containers, Sandboxes
from lab.emulator.core import Core
from lab.emulator.records.records import Refusal

NAME = "criproxy-sim"
"""What the embedded runtime calls itself, if nothing else is asked for."""
Reply = Message | bytes
Unary = Callable[[Any], Awaitable[Reply]]
if TYPE_CHECKING:  # these classes cannot be subscripted when they run
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
    Handler: TypeAlias = grpc.RpcMethodHandler[Any, Any]

_EVENTS = "GetContainerEvents"
_SELF_TIMED = frozenset({"RunPodSandbox", "CreateContainer", "StartContainer"})
"""Methods that wait in their middle, between what a failure leaves behind and what success brings."""
_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def _status(program: str, request: cri.StatusRequest) -> cri.StatusResponse:
    """Serve Status: always ready; *program* is what the default handler runs."""
    runc = {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": program}}
    config = {"containerd": {"defaultRuntimeName": "runc", "runtimes": {"runc": runc}}}
    conditions = [cri.RuntimeCondition(type=name, status=True) for name in ("RuntimeReady", "NetworkReady")]
    return cri.StatusResponse(
        status=cri.RuntimeStatus(conditions=conditions),
        info={"golang": '"none"', "config": json.dumps(config)} if request.verbose else None,
        runtime_handlers=[cri.RuntimeHandler(name=name) for name in ("", "runc")],
    )


async def _runtime_config(request: cri.RuntimeConfigRequest) -> cri.RuntimeConfigResponse:
    """Serve RuntimeConfig: the cgroups are cgroupfs paths."""
    return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS))


async def _version(reply: cri.VersionResponse, request: cri.VersionRequest) -> cri.VersionResponse:
    return reply


class Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a path; a path without one gets the answer of grpc-go.

    Args:
        core: what the handlers work on.
        missing: names of methods to be unknown.
        runtime: its name, its version, and the program of its default handler.
    """

    def __init__(self, core: Core, missing: frozenset[str], runtime: tuple[str, str, str]) -> None:
        self._core = core
        self._handlers: dict[str, Handler] = {}
        self._tasks: set[asyncio.Future[Reply]] = set()
        name, version, program = runtime
        events: Handler = grpc.unary_stream_rpc_method_handler(core.events.stream, response_serializer=_serialise)
        for api in ("v1", "v1alpha2"):  # with the same messages
            said = cri.VersionResponse(
                version="0.1.0", runtime_name=name, runtime_version=version, runtime_api_version=api
            )
            methods: dict[str, Unary] = {
                **_methods(core),
                "Version": partial(_version, said),
                "Status": partial(_status, program),
            }
            handlers = {method: self._handler(method, act) for method, act in methods.items()} | {_EVENTS: events}
            self._handlers |= {
                f"/runtime.{api}.{METHODS[method].service}/{method}": handler
                for method, handler in handlers.items()
                if method not in missing
            }
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

    def _handler(self, name: str, act: Unary) -> Handler:
        core, parse = self._core, METHODS[name].request.FromString

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
                await context.abort(_CODES[refusal.status], str(refusal))

        return grpc.unary_unary_rpc_method_handler(call, response_serializer=_serialise)

    def _to_its_end(self, operation: Awaitable[Reply]) -> Awaitable[Reply]:
        task = asyncio.ensure_future(operation)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Reply]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may be left to wait


def _serialise(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else reply.SerializeToString()


def _methods(core: Core) -> dict[str, Unary]:
    sandboxes, containers, images = Sandboxes(core), Containers(core), core.images
    return {
        "RuntimeConfig": _runtime_config,
        "RunPodSandbox": sandboxes.run,
        "StopPodSandbox": sandboxes.stop,
        "RemovePodSandbox": sandboxes.remove,
        "PodSandboxStatus": sandboxes.status,
        "ListPodSandbox": sandboxes.list,
        "UpdatePodSandboxResources": sandboxes.update_resources,
        "RestorePod": containers.restore,
        "CreateContainer": containers.create,
        "StartContainer": containers.start,
        "StopContainer": containers.stop,
        "RemoveContainer": containers.remove,
        "ListContainers": containers.list,
        "ContainerStatus": containers.status,
        "UpdateContainerResources": containers.update,
        "ListImages": images.list,
        "ImageStatus": images.status,
        "PullImage": images.serve_pull,
        "RemoveImage": images.remove,
    }
