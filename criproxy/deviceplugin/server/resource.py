"""A resource that is offered to the kubelet, with its devices and its allocator."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from criproxy.devices.classes.offers import Offered
from criproxy.devices.evidence.allocation import Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a resource, which the kubelet can allocate by its ID."""

    id: str
    numa_nodes: tuple[int, ...] = ()
    """The NUMA nodes next to it; empty if it is next to none in particular."""
    healthy: bool = True
    quota: tuple[int, int] = (0, 0)
    """Of a vGPU: memory in MiB, and cores in percent."""
    related: tuple[str, ...] = field(default=(), compare=False)
    """See `Offered.related`."""


class Allocator(Protocol):
    """Answers Allocate for one resource: pure, fast, and called on the event loop."""

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """Return what each container gets for its IDs.

        Raises:
            InvalidRequest: One of the requests cannot be served; then none is. The kubelet receives the text.
        """
        ...


class Preference(Protocol):
    """Chooses among free IDs: pure, and called in a thread, where it may take up to `Times.preference_s`."""

    def __call__(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Return the IDs that the kubelet should allocate to a container.

        Args:
            available: The free IDs; they may include *required*.
            required: The IDs that the container gets in any case.
            size: The total number of IDs for the container.

        Raises:
            InvalidRequest: The request cannot be satisfied; the kubelet gets the text and does not admit the pod. After
                any other exception, the server returns IDs in the order of the resource.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource and its devices."""

    name: str
    """Includes the domain."""
    kind: str = ""
    """The name of the class of its cards."""
    domains: tuple[str, ...] = ()
    """The domains of the resources as which cards of the class may have been offered before."""
    devices: Mapping[str, Device] = field(default_factory=dict)
    """By ID, in the order of allocation if nothing else decides."""
    allocator: Allocator
    preference: Preference | None = None
    """None if the kubelet should not call GetPreferredAllocation."""
    may_block: bool = False
    """Whether Allocate reads files of the host."""
    pre_start: bool = False
    """Whether the kubelet should call before each start of a container; the reply always allows the start."""

    def with_held(self, held: Iterable[Device]) -> "Resource":
        """Return the resource with the devices *held* by containers that it no longer has: first, and as unhealthy."""
        gone = {each.id: replace(each, healthy=False) for each in held if each.id not in self.devices}
        return replace(self, devices={**gone, **self.devices})


def devices_of(offered: Mapping[str, Offered], unhealthy: Iterable[str] = ()) -> Mapping[str, Device]:
    """Return the devices of a resource, as the server lists them.

    Args:
        offered: The cards and replicas by ID.
        unhealthy: IDs of cards or of replicas; all replicas of such a card are unhealthy.
    """
    bad = frozenset(unhealthy)
    return {
        each.id: Device(
            id=each.id,
            numa_nodes=() if each.numa_node is None else (each.numa_node,),
            healthy=not bad & {each.id, each.card},
            quota=(each.vgpu.memory_mib, each.vgpu.cores_percent) if each.vgpu else (0, 0),
            related=each.related,
        )
        for each in offered.values()
    }
