"""A resource that is offered to the kubelet, and the messages of the kubelet's API about it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from criproxy.cri import deviceplugin_pb2 as api
from criproxy.devices.classes.offers import Offered
from criproxy.devices.evidence.device_request import Response, joined

VERSION = "v1beta1"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
LARGEST_LIST_BYTES = (4 << 20) - 1024
"""The kubelet accepts messages of 4 MiB, and drops a plugin that sends a larger one."""
_FRAME_BYTES = 5
"""Size of a device's tag and length in a list, in addition to the device."""
Allocate = Callable[[Sequence[str]], Response]
"""Returns what a container gets for its IDs. An InvalidRequest, whose text the kubelet receives, refuses the pod."""
Prefer = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""Returns the IDs that the kubelet should allocate to a container, from the free IDs (which may include the required
ones), those that it gets in any case, and the total number. Pure, and called in a thread, where it may take up to
`Times.preference_s`. After an InvalidRequest, the kubelet gets the text and does not admit the pod; after any other
exception, the server returns IDs in the order of the resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource and its devices."""

    name: str
    """Includes the domain."""
    kind: str = ""
    """The name of the class of its cards."""
    domains: tuple[str, ...] = ()
    """The domains of the resources as which cards of the class may have been offered before."""
    devices: Mapping[str, Offered] = field(default_factory=dict)
    """By ID, in the order of allocation if nothing else decides."""
    allocate: Allocate
    preference: Prefer | None = None
    """None if the kubelet should not call GetPreferredAllocation."""
    may_block: bool = False
    """Whether Allocate reads files of the host."""

    @property
    def options(self) -> api.DevicePluginOptions:
        """Which optional calls the kubelet should make."""
        return api.DevicePluginOptions(get_preferred_allocation_available=self.preference is not None)

    def allocation(self, ids: Sequence[str]) -> Response:
        """Return what a container gets for its *ids*, with the evidence that the proxy trusts before all other.

        Raises:
            InvalidRequest: The request cannot be served.
        """
        return joined(self.allocate(ids), self.name, ids)

    def with_held(self, held: Iterable[Offered]) -> "Resource":
        """Return the resource with the devices *held* by containers that it no longer has: first, and as unhealthy."""
        gone = {each.id: replace(each, healthy=False) for each in held if each.id not in self.devices}
        return replace(self, devices={**gone, **self.devices})


def with_health(offered: Mapping[str, Offered], unhealthy: Iterable[str] = ()) -> dict[str, Offered]:
    """Return what is offered, with what is *unhealthy*: the IDs of cards, with all replicas, or of replicas."""
    bad = frozenset(unhealthy)
    return {name: replace(each, healthy=False) if bad & {name, each.card} else each for name, each in offered.items()}


@dataclass(frozen=True, slots=True)
class DeviceList:
    """One message of ListAndWatch."""

    data: bytes
    left_out: int
    """Number of devices for which it has no room."""


def device_list(devices: Iterable[Offered], largest_bytes: int = LARGEST_LIST_BYTES) -> DeviceList:
    """Return the list of *devices*, without those at the end that would make it larger than *largest_bytes*."""
    messages = [_device(each) for each in devices]
    size, kept = 0, 0
    for message in messages:
        size += message.ByteSize() + _FRAME_BYTES
        if size > largest_bytes:
            break
        kept += 1
    data = api.ListAndWatchResponse(devices=messages[:kept]).SerializeToString()
    return DeviceList(data, len(messages) - kept)


def _device(device: Offered) -> api.Device:
    node = device.numa_node
    topology = None if node is None else api.TopologyInfo(nodes=[api.NUMANode(ID=node)])
    return api.Device(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY, topology=topology)


def allocate_response(response: Response) -> api.ContainerAllocateResponse:
    """Return the part of the reply to Allocate that is about one container."""
    return api.ContainerAllocateResponse(
        envs=dict(response.envs),
        mounts=[api.Mount(**asdict(each)) for each in response.mounts],
        devices=[api.DeviceSpec(**each._asdict()) for each in response.devices],
        annotations=dict(response.annotations),
        cdi_devices=[api.CDIDevice(name=name) for name in response.cdi_devices],
    )
