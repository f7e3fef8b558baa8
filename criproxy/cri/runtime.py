"""criproxy's own calls to the runtime: lists, statuses, updates, events."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from criproxy.cri import api_pb2 as api
from criproxy.cri import utf8
from criproxy.cri.methods import METHODS
from criproxy.cri.touched_methods import PACKAGES
from criproxy.cri.translate import annotations_in
from criproxy.errors import CriproxyError, StatusCode
from criproxy.model.text.annotations import policy_annotations
from criproxy.wire.client import CallError, Channel

Reply = TypeVar("Reply", bound=Message)
T = TypeVar("T")

DEFAULT_TIMEOUT_S = 10.0
"""The deadline of one call; none of criproxy's own calls waits for a process."""


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
        reads_specs: whether lists of containers have our annotations also where they are in the OCI specification only,
            as those that an NRI plugin has added. Each container is asked about once.
    """

    def __init__(self, endpoint: str, timeout_s: float = DEFAULT_TIMEOUT_S, *, reads_specs: bool = False) -> None:
        self.endpoint = endpoint
        self.on_unavailable: Callable[[], None] = lambda: None
        """Called after every call that did not reach the runtime: it may be restarting."""
        self._timeout_s = timeout_s
        self._channel = Channel(endpoint.removeprefix("unix://"))
        self._package = PACKAGES[0]
        self._listing = asyncio.Lock()
        self._reads_specs = reads_specs
        self._in_specs: dict[str, Mapping[str, str]] = {}
        """Container → our annotations in its specification."""
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
                self._channel.renew()
            if error.code is not StatusCode.UNIMPLEMENTED:
                raise
        return await self._version_in(old)

    async def list_containers(self, sandbox_id: str = "") -> Sequence[api.Container]:
        """List the containers in all states, or those of one sandbox."""
        items = await self._list(api.ContainerFilter(pod_sandbox_id=sandbox_id))
        if self._reads_specs:
            await self._add_annotations(items, is_whole=not sandbox_id)
        return items

    async def _add_annotations(self, items: Sequence[api.Container], *, is_whole: bool) -> None:
        for item in items:
            if item.id not in self._in_specs:
                reply = await if_reported(self.container_status(item.id, verbose=True))
                if reply is None:
                    continue
                self._in_specs[item.id] = annotations_in(item.id, reply.info)
            item.annotations.update(self._in_specs[item.id])
        if is_whole:
            listed = {item.id for item in items}
            self._in_specs = {key: ours for key, ours in self._in_specs.items() if key in listed}

    async def list_exited(self) -> Sequence[api.Container]:
        """List the containers that have ended and were not removed yet."""
        return await self._list(api.ContainerFilter(state=api.ContainerStateValue(state=api.CONTAINER_EXITED)))

    async def container_events(self) -> AsyncIterator[api.ContainerEventResponse]:
        """Yield the events of containers in order, until the runtime ends the stream.

        Raises:
            RuntimeCallError: the stream ended with another status than OK, or an event cannot be read; UNIMPLEMENTED if
                the runtime has no stream.
        """
        path = f"/{self._package}.RuntimeService/GetContainerEvents"
        try:
            async with aclosing(self._channel.stream(path, b"")) as events:
                async for event in events:
                    yield utf8.parse(api.ContainerEventResponse, event)
        except CallError as error:
            raise self._failure("GetContainerEvents", error) from error
        except DecodeError as error:
            raise RuntimeCallError("GetContainerEvents", StatusCode.INTERNAL, "an event cannot be read") from error

    async def list_pod_sandbox(self, sandbox_id: str = "") -> Sequence[api.PodSandbox]:
        """List all sandboxes, ready or not, or one of them; without annotations that no policy may read.

        One list at a time: those of all annotations may have 200 MB.
        """
        request = api.ListPodSandboxRequest(filter=api.PodSandboxFilter(id=sandbox_id) if sandbox_id else None)
        async with self._listing:
            items = (await self.call("ListPodSandbox", request, api.ListPodSandboxResponse)).items
            return [_shortened(item) for item in items]

    async def pod_sandbox_status(self, sandbox_id: str) -> api.PodSandboxStatusResponse:
        """Return the state of one sandbox."""
        request = api.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        return await self.call("PodSandboxStatus", request, api.PodSandboxStatusResponse)

    async def container_status(
        self, container_id: str, timeout_s: float | None = None, *, verbose: bool = False
    ) -> api.ContainerStatusResponse:
        """Return state and resources of one container; *verbose* adds runtime-specific information, such as the pid."""
        request = api.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return await self.call("ContainerStatus", request, api.ContainerStatusResponse, timeout_s)

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
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        path = f"/{self._package}.{METHODS[name].service}/{name}"
        try:
            answer = await self._channel.unary(path, request.SerializeToString(), limit_s)
            return utf8.parse(reply, answer)
        except CallError as error:
            failure = self._failure(name, error, limit_s)
            if failure.code is StatusCode.UNAVAILABLE:
                self.on_unavailable()
            raise failure from error
        except DecodeError as error:
            text = f"the reply is not a {reply.DESCRIPTOR.full_name}"
            raise RuntimeCallError(name, StatusCode.INTERNAL, text) from error

    async def probe(self, path: str) -> tuple[StatusCode, str]:
        """Call a method of any service with an empty message, and return the status code and text.

        Raises:
            RuntimeCallError: the runtime does not answer.
        """
        try:
            await self._channel.unary(path, b"", self._timeout_s)
        except CallError as error:
            failure = self._failure(path, error, self._timeout_s)
            if failure.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
                raise failure from error
            return failure.code, failure.details
        return StatusCode.OK, ""

    async def close(self) -> None:
        """Drop the connection; calls in flight fail."""
        self._channel.close()

    def _failure(self, method: str, error: CallError, limit_s: float | None = None) -> RuntimeCallError:
        path, sentence = self._channel.path, ""
        if error.is_own and limit_s is not None:
            sentence = f"the runtime on {path} did not answer {method} within {limit_s:g} s"
        elif error.cause is not None and error.cause.errno in (errno.ENOENT, errno.ECONNREFUSED):
            sentence = f"no runtime listens on {path}"
        elif error.cause is not None:
            sentence = f"the runtime on {path} cannot be reached: {error.details}"
        return RuntimeCallError(method, error.code, error.details, sentence)

    async def _version_in(self, package: str) -> api.VersionResponse:
        self._package = package
        reply = await self.call("Version", api.VersionRequest(), api.VersionResponse)
        self.answered = (reply.runtime_name, reply.runtime_version)
        return reply

    async def _list(self, chosen: api.ContainerFilter) -> Sequence[api.Container]:
        request = api.ListContainersRequest(filter=chosen)
        return (await self.call("ListContainers", request, api.ListContainersResponse)).containers


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
