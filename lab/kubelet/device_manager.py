"""The part of a made-up kubelet that keeps devices: what plugins offer, what containers have, and the checkpoint.

It follows the rules of the kubelet's device manager: the end of a stream makes all devices unhealthy at once and the
endpoint stays; the latest plugin of a resource counts; capacity is nothing after a restart until plugins are back.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from criproxy.cri import deviceplugin_pb2 as api
from lab.kubelet.device_endpoint import (
    AdmissionError,
    Devices,
    Endpoint,
    Given,
    Key,
    dial,
    read_checkpoint,
    write_checkpoint,
)


class DeviceManager:
    """Keeps devices for one kubelet.

    Args:
        checkpoint: the file with what containers have.
        changed: called after each change of what plugins offer.
        connected: called with the resource of each plugin that is taken.
    """

    def __init__(self, checkpoint: Path, changed: Callable[[], None], connected: Callable[[str], None]) -> None:
        self.checkpoint = checkpoint
        self.endpoints: dict[str, Endpoint] = {}
        self.devices: dict[str, Devices] = {}
        self.given: dict[Key, dict[str, Given]] = {}
        self.asked: list[tuple[str, api.ContainerPreferredAllocationRequest]] = []
        """Resources and questions of all calls of GetPreferredAllocation."""
        self.init: set[Key] = set()
        """Init containers, whose devices others of their pods may have."""
        self._reusable: dict[str, dict[str, set[str]]] = {}
        """What init containers had and no other container of their pods has, by pod and resource."""
        self.follows = True
        """Whether it asks plugins for their lists."""
        self._changed = changed
        self._connected = connected
        self._allocating = asyncio.Lock()
        """Pods are admitted one after the other."""
        self._read()

    # ---------------------------------------------------------------- plugins

    async def connect(self, resource: str, socket: Path) -> Endpoint:
        """Dial a plugin, ask for its options, and follow its list; the former plugin of the resource is dropped.

        Raises:
            grpc.aio.AioRpcError: it does not answer.
        """
        endpoint = dial(resource, socket)
        try:
            endpoint.options = await endpoint.call(
                "GetDevicePluginOptions", api.Empty(), api.DevicePluginOptions, dials=True
            )
        except BaseException:
            await endpoint.close()
            raise
        former = self.endpoints.get(resource)
        self.endpoints[resource] = endpoint
        self._connected(resource)
        if self.follows:
            endpoint.following = asyncio.create_task(self._follow(endpoint))
        if former is not None:
            await self._drop(former)
        return endpoint

    async def disconnect(self, resource: str) -> None:
        """Drop the plugin of *resource*; its devices are unhealthy."""
        if (endpoint := self.endpoints.get(resource)) is not None:
            await self._drop(endpoint)

    async def stop(self) -> None:
        """End all connections, as a kubelet does that ends."""
        for endpoint in self.endpoints.values():
            await self._drop(endpoint)

    def capacity(self, resource: str) -> tuple[int, int]:
        """How many devices the node has, and how many of them pods can be given or have: capacity and allocatable."""
        devices = self.devices.get(resource, Devices())
        return len(devices.healthy | devices.unhealthy), len(devices.healthy)

    async def _follow(self, endpoint: Endpoint) -> None:
        assert endpoint.channel is not None
        stream: Any = endpoint.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        try:
            async for message in stream(api.Empty()):
                endpoint.lists += 1
                self._take(endpoint, message.devices)
        except grpc.aio.AioRpcError:
            pass
        finally:
            self._stopped(endpoint)

    def _take(self, endpoint: Endpoint, listed: Iterable[api.Device]) -> None:
        devices = Devices()
        for each in listed:
            (devices.healthy if each.health == "Healthy" else devices.unhealthy).add(each.ID)
            devices.numa_nodes[each.ID] = tuple(node.ID for node in each.topology.nodes)
        if self.endpoints.get(endpoint.resource) is endpoint:
            self.devices[endpoint.resource] = devices
            self._changed()

    def _stopped(self, endpoint: Endpoint) -> None:
        endpoint.stopped = True
        if self.endpoints.get(endpoint.resource) is endpoint:
            devices = self.devices.setdefault(endpoint.resource, Devices())
            devices.unhealthy |= devices.healthy
            devices.healthy = set()
        self._changed()

    async def _drop(self, endpoint: Endpoint) -> None:
        if endpoint.following is not None:
            endpoint.following.cancel()
            with suppress(asyncio.CancelledError):
                await endpoint.following
        await endpoint.close()

    # ---------------------------------------------------------------- pods

    async def allocate(
        self, key: Key, wanted: Mapping[str, int], *, init: bool = False, running: bool = False
    ) -> Mapping[str, Given]:
        """Give one container of a pod that is admitted what it asks for; what it has already it keeps.

        Args:
            key: the container.
            wanted: how many devices, by resource.
            init: whether the pod's other containers get its devices after it.
            running: whether it runs already, as for a kubelet that was restarted: then nothing is judged.

        Raises:
            AdmissionError: that is not possible; the container has got nothing.
        """
        async with self._allocating:
            before = self.given.get(key, {})
            found = dict(before)
            for resource, count in wanted.items():
                if resource not in before:
                    found[resource] = await self._give(resource, count, self._left_by_init(key[0], resource))
                elif not running:
                    self._check_healthy(resource, before[resource].ids)
            self.given[key] = found
            self._note_init(key, found, init)
            self._write()
            return found

    async def start(self, key: Key) -> None:
        """Do what comes before each start of a container."""
        for resource, given in self.given.get(key, {}).items():
            endpoint = self.endpoints[resource]
            if endpoint.options.pre_start_required:
                request = api.PreStartContainerRequest(devices_ids=given.ids)
                await endpoint.call("PreStartContainer", request, api.PreStartContainerResponse)

    def free(self, pod_uid: str) -> None:
        """Take back what the containers of a pod have."""
        for key in [key for key in self.given if key[0] == pod_uid]:
            del self.given[key]
            self.init.discard(key)
        self._write()

    def in_use(self, resource: str) -> set[str]:
        """The ids that containers have; none is given twice, but from an init container to another of its pod."""
        found: dict[str, Key] = {}
        for key, given in self.given.items():
            for each in given[resource].ids if resource in given else ():
                other = found.setdefault(each, key)
                assert other == key or (other[0] == key[0] and {other, key} & self.init), f"{each} is given twice"
        return set(found)

    def _note_init(self, key: Key, found: Mapping[str, Given], init: bool) -> None:
        if init:
            self.init.add(key)
            self._reusable.setdefault(key[0], {}).update({name: set(given.ids) for name, given in found.items()})
        else:
            for resource, given in found.items():
                self._left_by_init(key[0], resource).difference_update(given.ids)

    def _left_by_init(self, pod_uid: str, resource: str) -> set[str]:
        return self._reusable.get(pod_uid, {}).get(resource, set())

    def _check_healthy(self, resource: str, ids: Iterable[str]) -> None:
        """Judge a container that had devices before and does not run, or one that has none yet."""
        if resource not in self.devices:
            raise _unexpected(f"cannot allocate unregistered device {resource}")
        healthy = self.devices[resource].healthy
        if not healthy:
            raise _unexpected(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not healthy.issuperset(ids):
            text = "previously allocated devices are no longer healthy; cannot allocate unhealthy devices"
            raise _unexpected(f"{text} {resource}")

    async def _give(self, resource: str, count: int, reusable: set[str]) -> Given:
        self._check_healthy(resource, ())
        required = sorted(reusable)[:count]
        endpoint = self.endpoints[resource]
        free = self.devices[resource].healthy - self.in_use(resource)
        if len(free) < count - len(required):
            text = f"requested number of devices unavailable for {resource}"
            raise _unexpected(f"{text}. Requested: {count - len(required)}, Available: {len(free)}")
        try:
            ids = await self._choose(endpoint, free, required, count)
            request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
            reply = await endpoint.call("Allocate", request, api.AllocateResponse)
        except grpc.aio.AioRpcError as error:
            code = "".join(part.title() for part in error.code().name.split("_"))
            raise _unexpected(f"rpc error: code = {code} desc = {error.details()}") from error
        if len(reply.container_responses) == 0:
            raise _unexpected(f"no containers return in allocation response {reply}")
        return Given(tuple(ids), reply.container_responses[0].SerializeToString())

    async def _choose(self, endpoint: Endpoint, free: set[str], required: Sequence[str], count: int) -> Sequence[str]:
        """Ask the plugin only where it wants that and there is a choice; take only what is free."""
        more = count - len(required)
        if more in (0, len(free)) or not endpoint.options.get_preferred_allocation_available:
            return [*required, *sorted(free)[:more]]
        question = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted({*free, *required}), must_include_deviceIDs=required, allocation_size=count
        )
        self.asked.append((endpoint.resource, question))
        request = api.PreferredAllocationRequest(container_requests=[question])
        reply = await endpoint.call("GetPreferredAllocation", request, api.PreferredAllocationResponse)
        answers = reply.container_responses
        chosen = [each for each in (answers[0].deviceIDs if answers else ()) if each in free]
        return [*required, *[*chosen, *sorted(free - set(chosen))][:more]]

    # ---------------------------------------------------------------- checkpoint

    def _write(self) -> None:
        write_checkpoint(self.checkpoint, self.given, self.devices)

    def _read(self) -> None:
        """Take over what containers have; resources have no devices until their plugins are back."""
        self.given, resources = read_checkpoint(self.checkpoint)
        for resource in resources:
            self.devices[resource] = Devices()
            self.endpoints[resource] = Endpoint(resource, api.DevicePluginOptions(), None, stopped=True)


def _unexpected(text: str) -> AdmissionError:
    return AdmissionError(f"Allocate failed due to {text}, which is unexpected")
