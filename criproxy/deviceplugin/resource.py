"""What is offered to the kubelet under the name of one resource, and who answers for it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from criproxy.devices.allocation import Response
from criproxy.devices.offers import Offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One id that the kubelet can allocate."""

    id: str
    numa_nodes: tuple[int, ...] = ()
    """Those next to it; none: it is next to none in particular."""
    healthy: bool = True
    quota: tuple[int, int] = (0, 0)
    """Of a vGPU: memory in MiB, and cores in percent."""
    related: tuple[str, ...] = field(default=(), compare=False)
    """See `Offered.related`."""


class Allocator(Protocol):
    """Answers Allocate for one resource: pure, quick, and called on the event loop."""

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """What containers get, each by its ids.

        Raises:
            InvalidRequest: one of them cannot be served, and so none is; the kubelet gets its text.
        """
        ...


class Preference(Protocol):
    """Chooses among free ids: pure, and called in a thread, where it may take up to `Times.preference_s`."""

    def __call__(self, available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
        """Which ids the kubelet had best allocate to a container.

        Args:
            available: those that are free; *required* may be among them.
            required: those that the container has anyway.
            size: how many it gets in all.

        Raises:
            InvalidRequest: the question cannot be answered; the kubelet gets the text, and admits no pod with it. What
                else is raised makes the server answer with ids in the order of the resource.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What is offered under one name."""

    name: str
    """With its domain."""
    kind: str = ""
    """The name of the class of its cards."""
    domains: tuple[str, ...] = ()
    """Those of the resources as which cards of the class may have been offered before."""
    devices: Mapping[str, Device] = field(default_factory=dict)
    """By id, in the order in which they are allocated where nothing else decides."""
    allocator: Allocator
    preference: Preference | None = None
    """None: the kubelet is not to ask."""
    may_block: bool = False
    """Whether Allocate looks at files of the host."""
    pre_start: bool = False
    """Whether the kubelet is to call before each start of a container; the answer is always that it may start."""

    def with_held(self, held: Iterable[Device]) -> "Resource":
        """The same, and first ids that it has no more, but containers have: they are listed as unhealthy."""
        gone = {each.id: replace(each, healthy=False) for each in held if each.id not in self.devices}
        return replace(self, devices={**gone, **self.devices})


def devices_of(offered: Mapping[str, Offered], unhealthy: Iterable[str] = ()) -> Mapping[str, Device]:
    """The ids of one resource, as the server lists them.

    Args:
        offered: by id.
        unhealthy: ids of cards or of replicas; with a card all its replicas are.
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
