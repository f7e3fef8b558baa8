"""Answers the kubelet's calls for one resource. Independent of sockets: messages can come from anywhere."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import grpc

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server.resource import DeviceList, Prefer, Resource, allocate_response, device_list
from criproxy.deviceplugin.server.sockets import Handlers, unary
from criproxy.deviceplugin.server.state import Counts, Times
from criproxy.devices.classes.cards import SHOWN_CHARACTERS, SHOWN_IDS
from criproxy.devices.evidence.device_request import InvalidRequest, Response
from criproxy.host.patience import Hangs, Patience
from criproxy.process.failures import Failures
from criproxy.process.logger import Log

if TYPE_CHECKING:
    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

PreferenceRequest = api.ContainerPreferredAllocationRequest
Ids = tuple[str, ...]
MANY_IDS = 10_000
"""With more IDs, the kubelet becomes slow: it goes through all of them for each pod."""
LONGEST_LOGGED = 500
"""Characters of a reason, which may contain an ID of any length."""
PREFERENCE_ERROR = "error getting list of preferred allocation devices: "
"""The text that NVIDIA's plugin puts before the reason."""
FILES_S = 2.0
"""Timeout of Allocate for files of the host."""


class Servicer:
    """The device plugin service of one resource.

    Args:
        resource: What is offered at first.
        log: Gets errors and refused requests.
        failures: Counts internal failures of criproxy.
        times: Timeout of the preference.
        changed: Called when a stream begins or ends.
    """

    def __init__(
        self, resource: Resource, log: Log, failures: Failures, times: Times, changed: Callable[[], None]
    ) -> None:
        self.resource = resource
        self.counts = Counts()
        self.streams_opened = 0
        """Number of streams so far."""
        self._log = log
        self._failures = failures
        self._times = times
        self._choosing = Patience()
        self._choose_lock = asyncio.Lock()
        self._is_late = False
        """Whether the last choice of devices took too long."""
        self._on_stream = changed
        self._streams: dict[int, DeviceList | None] = {}
        """The list that was last sent on each open ListAndWatch stream."""
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

    def handlers(self) -> Handlers:
        """Return the handlers of the service that the kubelet calls."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            act.__name__: unary(act, request, self.failed)
            for act, request in (
                (self.GetDevicePluginOptions, api.Empty),
                (self.GetPreferredAllocation, api.PreferredAllocationRequest),
                (self.Allocate, api.AllocateRequest),
                (self.PreStartContainer, api.PreStartContainerRequest),
            )
        }
        methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(self.ListAndWatch, api.Empty.FromString)
        return grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)

    async def flushed(self) -> None:
        """Return when the newest list has been sent on all streams that are still open."""
        while any(sent is not self._list for sent in self._streams.values()):
            await self.stream_changed()

    async def stream_changed(self) -> None:
        """Return when a stream has been sent a list, or has ended."""
        await self._sent.wait()

    # ---------------------------------------------------------------- the kubelet's calls

    async def GetDevicePluginOptions(self, _: api.Empty, context: "Context") -> api.DevicePluginOptions:
        """Return which optional calls the kubelet should make."""
        return self.resource.options

    async def ListAndWatch(self, _: api.Empty, context: "Context") -> AsyncIterator[bytes]:
        """Yield the list at once and after each change, until the kubelet or the server ends the stream."""
        self.streams_opened += 1
        stream = self.streams_opened
        self._streams[stream] = None
        self._on_stream()
        try:
            while self._is_serving:
                news, newest = self._changed, self._list
                if self._streams[stream] is not newest:
                    yield newest.data
                    self._streams[stream] = newest
                    self._sent = _set_and_replace(self._sent)
                else:
                    await news.wait()
        finally:
            del self._streams[stream]
            self._sent = _set_and_replace(self._sent)
            self._on_stream()

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: "Context"
    ) -> api.PreferredAllocationResponse:
        """Return the free IDs that the kubelet should allocate; in plain order if choosing takes too long."""
        try:
            answers = [await self._choose(each) for each in request.container_requests]
        except InvalidRequest as error:
            await context.abort(grpc.StatusCode.UNKNOWN, f"{PREFERENCE_ERROR}{error}")
        responses = [api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        return api.PreferredAllocationResponse(container_responses=responses)

    async def Allocate(self, request: api.AllocateRequest, context: "Context") -> api.AllocateResponse:
        """Return what all containers of the request get, or an error for all of them."""
        requests = [tuple(each.devices_ids) for each in request.container_requests]
        try:
            responses = await self._allocate(requests)
        except InvalidRequest as error:
            await self._refuse(context, str(error), requests)
        self.counts.allocated += len(requests)
        return api.AllocateResponse(container_responses=map(allocate_response, responses))

    async def _allocate(self, requests: list[Ids]) -> list[Response]:
        """Return the responses; files of the host that hang delay nothing else.

        Raises:
            InvalidRequest: The request cannot be served.
        """
        work = partial(_allocations, self.resource, requests)
        if not self.resource.may_block:
            return work()
        try:
            name = f"files for {', '.join(each for ids in requests for each in ids):.200}"
            return await self._patience.wait(name, work, FILES_S)
        except Hangs as error:
            raise InvalidRequest(str(error)) from error

    async def PreStartContainer(
        self, _: api.PreStartContainerRequest, context: "Context"
    ) -> api.PreStartContainerResponse:
        """Allow the container to start."""
        return api.PreStartContainerResponse()

    # ---------------------------------------------------------------- the rest

    async def _refuse(self, context: "Context", text: str, requests: list[Ids]) -> NoReturn:
        """End Allocate as NVIDIA's plugin does: the kubelet shows code and text to the pod."""
        self.counts.allocations_refused += 1
        ids = [each for request in requests for each in request]
        shown = [each[:SHOWN_CHARACTERS] for each in ids[:SHOWN_IDS]]
        keys = {"resource": self.resource.name, "containers": len(requests), "count": len(ids), "ids": shown}
        self._log.warning("allocation refused", **keys, reason=text[:LONGEST_LOGGED])
        await context.abort(grpc.StatusCode.UNKNOWN, text)
        raise AssertionError("abort() raises")

    async def _choose(self, request: PreferenceRequest) -> Ids:
        """Return the IDs that GetPreferredAllocation prefers for one container.

        Raises:
            InvalidRequest: The preference rejects the request.
        """
        resource = self.resource
        if resource.preference is None:
            return plain_order(resource, request)
        work = partial(_run_preference, resource.preference, request)
        try:
            async with self._choose_lock:
                answered, ids = await self._choosing.wait(resource.name, work, self._times.preference_s)
        except Hangs as error:
            self.counts.preferences_late += 1
            if not self._is_late:
                text = "choosing devices took too long: the kubelet gets them in plain order"
                self._log.warning(text, resource=resource.name, reason=str(error))
            self._is_late = True
            return plain_order(resource, request)
        except InvalidRequest:
            raise
        except Exception as error:  # noqa: BLE001 (the pod can have cards in spite of any error)
            self.counts.preferences_failed += 1
            cause = f"criproxy failed at GetPreferredAllocation of '{resource.name}': {error!r}"
            if self._failures.add("devices", cause):
                text = "choosing devices failed: the kubelet gets them in plain order"
                self._log.error(text, resource=resource.name, exc_info=error)
            return plain_order(resource, request)
        self._is_late = False
        # The thread may just have finished the work for another request, whose call was cancelled.
        return ids if answered is request else plain_order(resource, request)

    def failed(self, name: str, error: Exception) -> None:
        """Count an unexpected exception in a call, and log it if it is new."""
        if self._failures.add("devices", f"criproxy failed at {name} of '{self.resource.name}': {error!r}"):
            self._log.error("a call of the kubelet failed", call=name, resource=self.resource.name, exc_info=error)

    def _build_list(self) -> DeviceList:
        built = device_list(self.resource.devices.values())
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


def _allocations(resource: Resource, requests: list[Ids]) -> list[Response]:
    return [resource.allocation(ids) for ids in requests]


def plain_order(resource: Resource, request: PreferenceRequest) -> Ids:
    """Return the required IDs, and the first free ones in the order of the resource."""
    required, free = tuple(request.must_include_deviceIDs), frozenset(request.available_deviceIDs)
    others = (each for each in resource.devices if each in free and each not in required)
    return (*required, *islice(others, max(request.allocation_size - len(required), 0)))


def _run_preference(prefer: Prefer, request: PreferenceRequest) -> tuple[PreferenceRequest, Ids]:
    required = tuple(request.must_include_deviceIDs)
    answer = prefer(tuple(request.available_deviceIDs), required, request.allocation_size)
    return request, tuple(map(str, answer))
