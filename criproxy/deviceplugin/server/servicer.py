"""Answers the kubelet's calls for one resource. Independent of sockets: messages can come from anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import grpc

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server import messages
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.settings import LARGEST_LIST_BYTES, MANY_IDS, Counts, Times
from criproxy.devices.classes.cards import SHOWN_CHARACTERS, SHOWN_IDS
from criproxy.devices.evidence.allocation import InvalidRequest, Response
from criproxy.host.patience import Hangs, Patience
from criproxy.process.failures import Failures
from criproxy.process.logger import Log

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
from itertools import islice

PreferenceRequest = api.ContainerPreferredAllocationRequest
Ids = tuple[str, ...]
LONGEST_LOGGED = 500
"""Characters of a reason, which may contain an ID of any length."""
PREFERENCE_ERROR = "error getting list of preferred allocation devices: "
"""The text that NVIDIA's plugin puts before the reason."""
FILES_S = 2.0
"""Timeout of Allocate for files of the host."""


@dataclass(slots=True, eq=False)
class _Stream:
    """One open ListAndWatch stream of a kubelet."""

    sent: messages.DeviceList | None = None


class Servicer:
    """The device plugin service of one resource.

    Args:
        resource: What is offered at first.
        log: Gets errors and refused requests.
        failures: Counts internal failures of criproxy.
        times: Timeout of the preference.
        changed: Called when a stream begins or ends.
        largest_bytes: Limit for the size of a list.
    """

    def __init__(
        self,
        resource: Resource,
        log: Log,
        failures: Failures,
        times: Times,
        changed: Callable[[], None],
        largest_bytes: int = LARGEST_LIST_BYTES,
    ) -> None:
        self.resource = resource
        self.counts = Counts()
        self.streams_opened = 0
        """Number of streams so far."""
        self._log = log
        self._failures = failures
        self._preference_runner = PreferenceRunner(log, failures, times, self.counts)
        self._on_stream = changed
        self._largest_bytes = largest_bytes
        self._streams: set[_Stream] = set()
        self._is_serving = True
        self._patience = Patience()
        self.left_out = 0
        """Number of devices for which the list has no room."""
        self._warned_of_many = False
        self._changed = asyncio.Event()
        """Set, and replaced, when there is a new list, or the server stops."""
        self._sent = asyncio.Event()
        """Set, and replaced, when a stream has been sent a list, or has ended."""
        self._list = self._build_list()

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    def update(self, resource: Resource) -> None:
        """Offer *resource* from now on, and send its list on all open streams."""
        self.resource = resource
        built = self._build_list()
        if built.data != self._list.data:
            self._list = built
            self._changed = _set_and_replace(self._changed)

    def begin(self) -> None:
        """Send lists from now on: a server starts."""
        self._is_serving = True
        self._patience = Patience()

    def end_streams(self) -> None:
        """End all streams, including new ones: the server stops."""
        self._is_serving = False
        self._changed = _set_and_replace(self._changed)

    async def flushed(self) -> None:
        """Return when the newest list has been sent on all streams that are still open."""
        while any(stream.sent is not self._list for stream in self._streams):
            await self.stream_changed()

    async def stream_changed(self) -> None:
        """Return when a stream has been sent a list, or has ended."""
        await self._sent.wait()

    # ---------------------------------------------------------------- the kubelet's calls

    async def GetDevicePluginOptions(self, _: api.Empty, context: "Context") -> api.DevicePluginOptions:
        """Return which optional calls the kubelet should make."""
        return messages.options(self.resource)

    async def ListAndWatch(self, _: api.Empty, context: "Context") -> AsyncIterator[bytes]:
        """Yield the list at once and after each change, until the kubelet or the server ends the stream."""
        stream = _Stream()
        self._streams.add(stream)
        self.streams_opened += 1
        self._on_stream()
        try:
            while self._is_serving:
                news, newest = self._changed, self._list
                if stream.sent is not newest:
                    yield newest.data
                    stream.sent = newest
                    self.counts.lists += 1
                    self._sent = _set_and_replace(self._sent)
                else:
                    await news.wait()
        finally:
            self._streams.discard(stream)
            self._sent = _set_and_replace(self._sent)
            self._on_stream()

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: "Context"
    ) -> api.PreferredAllocationResponse:
        """Return the free IDs that the kubelet should allocate; in plain order if choosing takes too long."""
        self.counts.preferred += len(request.container_requests)
        try:
            answers = [await self._preference_runner.choose(self.resource, each) for each in request.container_requests]
        except InvalidRequest as error:
            await context.abort(grpc.StatusCode.UNKNOWN, f"{PREFERENCE_ERROR}{error}")
        return messages.preferred_response(answers)

    async def Allocate(self, request: api.AllocateRequest, context: "Context") -> api.AllocateResponse:
        """Return what all containers of the request get, or an error for all of them."""
        requests = [tuple(each.devices_ids) for each in request.container_requests]
        try:
            reply = messages.allocate_response(await self._allocate(requests))
        except InvalidRequest as error:
            await self._refuse(context, str(error), requests)
        self.counts.allocated += len(requests)
        return reply

    async def _allocate(self, requests: list[tuple[str, ...]]) -> Sequence[Response]:
        """Return the responses; files of the host that hang delay nothing else.

        Raises:
            InvalidRequest: The request cannot be served.
        """
        allocator = self.resource.allocator
        if not self.resource.may_block:
            return allocator.allocate(requests)
        try:
            name = f"files for {', '.join(each for ids in requests for each in ids):.200}"
            return await self._patience.wait(name, partial(allocator.allocate, requests), FILES_S)
        except Hangs as error:
            raise InvalidRequest(str(error)) from error

    async def PreStartContainer(
        self, _: api.PreStartContainerRequest, context: "Context"
    ) -> api.PreStartContainerResponse:
        """Allow the container to start."""
        return api.PreStartContainerResponse()

    # ---------------------------------------------------------------- the rest

    async def _refuse(self, context: "Context", text: str, requests: list[tuple[str, ...]]) -> NoReturn:
        """End Allocate as NVIDIA's plugin does: the kubelet shows code and text to the pod."""
        self.counts.allocations_refused += 1
        ids = [each for request in requests for each in request]
        shown = [each[:SHOWN_CHARACTERS] for each in ids[:SHOWN_IDS]]
        keys = {"resource": self.resource.name, "containers": len(requests), "count": len(ids), "ids": shown}
        self._log.warning("allocation refused", **keys, reason=text[:LONGEST_LOGGED])
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort() raises")

    def failed(self, name: str, error: Exception) -> None:
        """Count an unexpected exception in a call, and log it if it is new."""
        if self._failures.add("devices", f"criproxy failed at {name} of '{self.resource.name}': {error!r}"):
            self._log.error("a call of the kubelet failed", call=name, resource=self.resource.name, exc_info=error)

    def _build_list(self) -> messages.DeviceList:
        built = messages.device_list(self.resource.devices.values(), self._largest_bytes)
        keys = {"resource": self.resource.name, "devices": len(self.resource.devices)}
        if built.left_out and not self.left_out:
            text = "too many devices for a message to the kubelet: some are not offered"
            self._log.error(text, **keys, left_out=built.left_out)
        self.left_out = built.left_out
        many = len(self.resource.devices) > MANY_IDS
        if many and not self._warned_of_many:
            self._log.warning("the kubelet becomes slow with this many devices", **keys, more_than=MANY_IDS)
        self._warned_of_many = many
        return built


def _set_and_replace(event: asyncio.Event) -> asyncio.Event:
    """Wake all that wait for *event*; return a new event for the next time."""
    event.set()
    return asyncio.Event()


class PreferenceRunner:
    """Chooses the devices for GetPreferredAllocation of one resource."""

    def __init__(self, log: Log, failures: Failures, times: Times, counts: Counts) -> None:
        self._log = log
        self._failures = failures
        self._times = times
        self._counts = counts
        self._patience = Patience()
        self._lock = asyncio.Lock()
        self._late = False

    async def choose(self, resource: Resource, request: PreferenceRequest) -> Ids:
        """Return the IDs for one container.

        Raises:
            InvalidRequest: The preference rejects the request.
        """
        if resource.preference is None:
            return plain_order(resource, request)
        work = partial(_run_preference, resource.preference, request)
        try:
            async with self._lock:
                answered, ids = await self._patience.wait(resource.name, work, self._times.preference_s)
        except Hangs as error:
            self._counts.preferences_late += 1
            self._log_late(resource.name, error)
            return plain_order(resource, request)
        except InvalidRequest:
            raise
        except Exception as error:  # noqa: BLE001 (the pod can have cards in spite of any error)
            self._log_failure(resource.name, error)
            return plain_order(resource, request)
        self._late = False
        # The thread may just have finished the work for another request, whose call was cancelled.
        return ids if answered is request else plain_order(resource, request)

    def _log_late(self, resource: str, error: Hangs) -> None:
        if not self._late:
            text = "choosing devices took too long: the kubelet gets them in plain order"
            self._log.warning(text, resource=resource, reason=str(error))
        self._late = True

    def _log_failure(self, resource: str, error: Exception) -> None:
        self._counts.preferences_failed += 1
        if self._failures.add("devices", f"criproxy failed at GetPreferredAllocation of '{resource}': {error!r}"):
            text = "choosing devices failed: the kubelet gets them in plain order"
            self._log.error(text, resource=resource, exc_info=error)


def plain_order(resource: Resource, request: PreferenceRequest) -> Ids:
    """Return the required IDs, and the first free ones in the order of the resource."""
    required, free = tuple(request.must_include_deviceIDs), frozenset(request.available_deviceIDs)
    others = (each for each in resource.devices if each in free and each not in required)
    return (*required, *islice(others, max(request.allocation_size - len(required), 0)))


def _run_preference(
    prefer: Callable[[Sequence[str], Sequence[str], int], Sequence[str]], request: PreferenceRequest
) -> tuple[PreferenceRequest, Ids]:
    required = tuple(request.must_include_deviceIDs)
    answer = prefer(tuple(request.available_deviceIDs), required, request.allocation_size)
    return request, tuple(map(str, answer))
