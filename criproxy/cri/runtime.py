"""criproxy's own calls to the runtime, through grpc.aio: lists, statuses, updates, events.

grpc is imported at the first call, in a thread: a daemon answers its first pass-through call before that.
Everything that grpc raises leaves this file as a `RuntimeCallError`.
"""

import asyncio
import errno
import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message

from criproxy.cri import api_pb2 as api
from criproxy.cri import utf8
from criproxy.cri.methods import METHODS
from criproxy.cri.paths import PACKAGES
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.text.annotations import policy_annotations

if TYPE_CHECKING:
    from grpc.aio import AioRpcError, Channel, UnaryStreamMultiCallable, UnaryUnaryMultiCallable

Reply = TypeVar("Reply", bound=Message)
T = TypeVar("T")

_NO_ANSWER = "Deadline Exceeded"
"""grpc's own text when its deadline has passed; a runtime has other words for this status."""
_NOT_CONNECTED = "failed to connect to all addresses"
"""The beginning of grpc's text for a call that was not sent."""
DEFAULT_TIMEOUT_S = 10.0
"""The deadline of one call; none of criproxy's own calls waits for a process."""

_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A runtime that restarts is back within seconds; grpc's own default lets the pause grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Each client has a separate connection: it must not wait for the pause after the failure of another one.
    ("grpc.use_local_subchannel_pool", 1),
)


class RuntimeCallError(CriproxyError):
    """The runtime refused or did not answer a call of criproxy; `code` is the gRPC status."""

    def __init__(self, method: str, code: StatusCode, details: str, sentence: str = "") -> None:
        super().__init__(sentence or f"{method}: {code.name}: {details}")
        self.code = code
        self.details = details

    @property
    def not_found(self) -> bool:
        """Whether the runtime reports that the container or sandbox does not exist."""
        return self.code is StatusCode.NOT_FOUND

    @property
    def is_away(self) -> bool:
        """Whether the runtime was not reached; other failures may concern only this call's container or sandbox."""
        return self.code in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)


class RuntimeClient:
    """One channel to one runtime; safe to use from many tasks of one event loop.

    Args:
        endpoint: such as ``unix:///run/containerd/containerd.sock``.
        timeout_s: the default deadline of a call.
    """

    def __init__(self, endpoint: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.endpoint = endpoint
        self.on_unavailable: Callable[[], None] = lambda: None
        """Called after every call that did not reach the runtime: it may be restarting."""
        self._timeout_s = timeout_s
        self._channel: Channel | None = None
        self._former: Channel | None = None
        """The channel before the last `_renew`: calls of it may still be answered."""
        self._calls: dict[str, UnaryUnaryMultiCallable[Any, Any]] = {}
        self._package = PACKAGES[0]
        self._listing = asyncio.Lock()
        self.answered = ("", "")
        """Name and version that the runtime gave itself last; empty before its first answer."""

    async def version(self) -> api.VersionResponse:
        """Return the name and version of the runtime, and select the package of CRI that it supports.

        If it does not know ``runtime.v1``, this and all later calls use ``runtime.v1alpha2``.
        """
        current, old = PACKAGES
        try:
            return await self._version_in(current)
        except RuntimeCallError as error:
            if error.code is StatusCode.DEADLINE_EXCEEDED:
                await self._renew()
            if error.code is not StatusCode.UNIMPLEMENTED:
                raise
        return await self._version_in(old)

    async def list_containers(self, sandbox_id: str = "") -> Sequence[api.Container]:
        """List the containers in all states, or those of one sandbox."""
        return await self._list(api.ContainerFilter(pod_sandbox_id=sandbox_id))

    async def list_exited(self) -> Sequence[api.Container]:
        """List the containers that have ended and were not removed yet."""
        return await self._list(api.ContainerFilter(state=api.ContainerStateValue(state=api.CONTAINER_EXITED)))

    async def container_events(self) -> AsyncIterator[api.ContainerEventResponse]:
        """Yield the events of containers in order, until the runtime ends the stream.

        Raises:
            RuntimeCallError: the stream ended with another status than OK, or an event cannot be read; UNIMPLEMENTED if
                the runtime has no stream.
        """
        channel = await self._connected()
        from grpc.aio import AioRpcError

        path = f"/{self._package}.RuntimeService/GetContainerEvents"
        events: UnaryStreamMultiCallable[Any, Any] = channel.unary_stream(path, request_serializer=_serialise)
        call = events(api.GetEventsRequest())
        try:
            async for event in call:
                yield utf8.parse(api.ContainerEventResponse, event)
        except AioRpcError as error:
            raise self._failure("GetContainerEvents", error) from error
        except DecodeError as error:
            raise RuntimeCallError("GetContainerEvents", StatusCode.INTERNAL, "an event cannot be read") from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise _dropped("GetContainerEvents") from error
        finally:
            call.cancel()

    async def list_pod_sandbox(self, sandbox_id: str = "") -> Sequence[api.PodSandbox]:
        """List all sandboxes, ready or not, or one of them; without annotations that no policy may read.

        One list at a time: those of all annotations may have 200 MB, of which grpc makes three copies.
        """
        request = api.ListPodSandboxRequest(filter=api.PodSandboxFilter(id=sandbox_id) if sandbox_id else None)
        async with self._listing:
            items = (await self.call("ListPodSandbox", request, api.ListPodSandboxResponse)).items
            return [_shortened(item) for item in items]

    async def pod_sandbox_status(self, sandbox_id: str) -> api.PodSandboxStatusResponse:
        """Return the state of one sandbox."""
        request = api.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        return await self.call("PodSandboxStatus", request, api.PodSandboxStatusResponse)

    async def container_status(self, container_id: str, *, verbose: bool = False) -> api.ContainerStatusResponse:
        """Return state and resources of one container; *verbose* adds runtime-specific information, such as the pid."""
        request = api.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return await self.call("ContainerStatus", request, api.ContainerStatusResponse)

    async def update_container_resources(self, container_id: str, linux: api.LinuxContainerResources) -> None:
        """Change the fields set in *linux*; empty or 0 means unchanged."""
        request = api.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)
        await self.call("UpdateContainerResources", request, api.UpdateContainerResourcesResponse)

    async def status_info(self) -> Mapping[str, str]:
        """Return the verbose part of the runtime's answer to Status.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        answer = await self.call("Status", api.StatusRequest(verbose=True), api.StatusResponse)
        return answer.info

    async def call(self, name: str, request: Message, reply: type[Reply], timeout_s: float | None = None) -> Reply:
        """Call any unary method of RuntimeService or ImageService by its short *name*.

        Raises:
            RuntimeCallError: the status is not OK.
        """
        await self._out_of_pause()
        call = self._calls.get(name) or await self._prepare(name, reply)
        from grpc.aio import AioRpcError

        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            answer: Reply | None = await call(request, timeout=limit_s)
        except AioRpcError as error:
            failure = self._failure(name, error, limit_s)
            if failure.code is StatusCode.UNAVAILABLE:
                self.on_unavailable()
            raise failure from error
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            raise _dropped(name) from error
        if answer is None:  # grpc returns it if its deserializer raised
            raise RuntimeCallError(name, StatusCode.INTERNAL, f"the reply is not a {reply.DESCRIPTOR.full_name}")
        return answer

    async def probe(self, path: str) -> tuple[StatusCode, str]:
        """Call a method of any service with an empty message, and return the status code and text.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        channel = await self._connected()
        from grpc.aio import AioRpcError

        try:
            call: UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
            await call(b"", timeout=self._timeout_s)
        except AioRpcError as error:
            failure = self._failure(path, error, self._timeout_s)
            if failure.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
                raise failure from error
            return failure.code, failure.details
        return StatusCode.OK, ""

    async def close(self) -> None:
        """Cancel the calls in flight and drop the connection."""
        channels, self._channel, self._former = (self._former, self._channel), None, None
        self._calls.clear()
        for channel in filter(None, channels):
            await channel.close()

    async def _renew(self) -> None:
        """Connect anew with the next call, since the runtime accepts connections but does not answer on this one.

        The peer may be a runtime that hangs while it stops, and another one may listen on the path by now. Calls in
        flight keep the old connection until the next `_renew`: if the runtime is only slow, they are answered.
        """
        former, self._former, self._channel = self._former, self._channel, None
        self._calls.clear()
        if former is not None:
            await former.close()

    def _failure(self, method: str, error: "AioRpcError", limit_s: float | None = None) -> RuntimeCallError:
        code, details = StatusCode(error.code().value[0]), error.details() or ""
        if code is StatusCode.DEADLINE_EXCEEDED and details == _NO_ANSWER and limit_s is not None:
            path = self.endpoint.removeprefix("unix://")
            sentence = f"the runtime on {path} did not answer {method} within {limit_s:g} s"
            return RuntimeCallError(method, code, details, sentence)
        is_refused = code is StatusCode.UNAVAILABLE and details.startswith(_NOT_CONNECTED)
        return RuntimeCallError(method, code, details, self._unreachable(details) if is_refused else "")

    def _unreachable(self, details: str) -> str:
        """Return why nothing was sent, from the text of grpc, which names the socket three times."""
        path, reason = self.endpoint.removeprefix("unix://"), details.rpartition(" error: ")[2]
        if any(os.strerror(number) in reason for number in (errno.ENOENT, errno.ECONNREFUSED)):
            return f"no runtime listens on {path}"
        return f"the runtime on {path} cannot be reached: {reason}"

    async def _version_in(self, package: str) -> api.VersionResponse:
        self._package = package
        self._calls.clear()
        reply = await self.call("Version", api.VersionRequest(), api.VersionResponse)
        self.answered = (reply.runtime_name, reply.runtime_version)
        return reply

    async def _list(self, chosen: api.ContainerFilter) -> Sequence[api.Container]:
        request = api.ListContainersRequest(filter=chosen)
        return (await self.call("ListContainers", request, api.ListContainersResponse)).containers

    async def _out_of_pause(self) -> None:
        """Drop a channel that waits before it reconnects: the runtime may be back, and calls should reach it."""
        if self._channel is None:
            return
        from grpc import ChannelConnectivity

        if self._channel.get_state() is ChannelConnectivity.TRANSIENT_FAILURE:
            await self.close()

    async def _connected(self) -> "Channel":
        if self._channel is None:
            await asyncio.to_thread(importlib.import_module, "grpc.aio")
        if self._channel is None:
            from grpc.aio import insecure_channel

            self._channel = insecure_channel(self.endpoint, options=_CHANNEL_OPTIONS)
        return self._channel

    async def _prepare(self, name: str, reply: type[Message]) -> "UnaryUnaryMultiCallable[Any, Any]":
        channel = await self._connected()
        call = self._calls[name] = channel.unary_unary(
            f"/{self._package}.{METHODS[name].service}/{name}",
            request_serializer=_serialise,
            response_deserializer=partial(utf8.parse, reply),
        )
        return call


async def if_reported(asked: Awaitable[T]) -> T | None:
    """Await *asked*, a query about one container; None if the runtime fails for that container alone.

    Raises:
        RuntimeCallError: the runtime is away.
    """
    try:
        return await asked
    except RuntimeCallError as error:
        if error.is_away:
            raise
        return None


def _shortened(item: api.PodSandbox) -> api.PodSandbox:
    """Return a copy with those annotations only that a policy may read: *item* keeps its whole list in memory."""
    return api.PodSandbox(
        id=item.id,
        metadata=item.metadata,
        state=item.state,
        created_at=item.created_at,
        labels=item.labels,
        annotations=policy_annotations(item.annotations),
        runtime_handler=item.runtime_handler,
    )


def _is_cancelled() -> bool:
    """Whether this task is cancelled, and not only its call: grpc raises the same exception for both."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _dropped(method: str) -> RuntimeCallError:
    """Return the error of a call whose channel another call has dropped, because the runtime was away."""
    return RuntimeCallError(method, StatusCode.UNAVAILABLE, "the connection to the runtime was given up")


def _serialise(request: Message) -> bytes:
    # Not Message.SerializeToString, which only raises in the base class.
    return request.SerializeToString()
