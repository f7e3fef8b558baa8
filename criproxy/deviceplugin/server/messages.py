"""Conversions between our values and the messages of the kubelet's API."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.deviceplugin.server.resource import Device, Resource
from criproxy.deviceplugin.server.settings import LARGEST_LIST_BYTES
from criproxy.devices.evidence.allocation import Response

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
_FRAME_BYTES = 5
"""Size of a device's tag and length in a list, in addition to the device."""


@dataclass(frozen=True, slots=True)
class DeviceList:
    """One message of ListAndWatch."""

    data: bytes
    count: int
    """Number of devices in it."""
    left_out: int
    """Number of devices for which it has no room."""


def device_list(devices: Iterable[Device], largest_bytes: int = LARGEST_LIST_BYTES) -> DeviceList:
    """Return the list of *devices*, without those at the end that would make it larger than *largest_bytes*."""
    messages = [_device(each) for each in devices]
    size, kept = 0, 0
    for message in messages:
        size += message.ByteSize() + _FRAME_BYTES
        if size > largest_bytes:
            break
        kept += 1
    data = api.ListAndWatchResponse(devices=messages[:kept]).SerializeToString()
    return DeviceList(data, kept, len(messages) - kept)


def _device(device: Device) -> api.Device:
    nodes = [api.NUMANode(ID=node) for node in device.numa_nodes]
    topology = api.TopologyInfo(nodes=nodes) if nodes else None
    return api.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY, topology=topology)


def options(resource: Resource) -> api.DevicePluginOptions:
    """Return which optional calls the kubelet should make."""
    return api.DevicePluginOptions(
        pre_start_required=resource.pre_start, get_preferred_allocation_available=resource.preference is not None
    )


def allocate_response(responses: Sequence[Response]) -> api.AllocateResponse:
    """Return the reply to Allocate, with a response for each container."""
    return api.AllocateResponse(container_responses=map(_container, responses))


def _container(response: Response) -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        envs=dict(response.envs),
        mounts=[
            api.Mount(container_path=each.container_path, host_path=each.host_path, read_only=each.read_only)
            for each in response.mounts
        ],
        devices=[
            api.DeviceSpec(container_path=each.container_path, host_path=each.host_path, permissions=each.permissions)
            for each in response.devices
        ],
        annotations=dict(response.annotations),
        cdi_devices=[api.CDIDevice(name=name) for name in response.cdi_devices],
    )


def preferred_response(answers: Iterable[Sequence[str]]) -> api.PreferredAllocationResponse:
    """Return the reply to GetPreferredAllocation, with a response for each container."""
    responses = [api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
    return api.PreferredAllocationResponse(container_responses=responses)
