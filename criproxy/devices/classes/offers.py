"""What a device plugin offers to the kubelet: ids of cards, or of their replicas, by resource."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.devices.classes.vgpu_profiles import Vgpu, card_of_vgpu

PART = ":"
"""The separator between the number of a card and that of its part, such as a MIG device."""
REPLICA = "::"
"""The separator between the id of a card and the number of its replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What the kubelet can allocate under one id: a card, a part of it with an id of its own, or a replica of these."""

    id: str
    """The id that the kubelet knows."""
    index: str
    """The driver's number of the card: ``0``, or ``0:1`` for a part of it."""
    paths: tuple[str, ...] = ()
    """Its own device nodes, on the host and in containers."""
    replicas: int = 0
    """The number of replicas of the card; 0: it is not shared."""
    numa_node: int | None = None
    """The closest NUMA node; None if unknown."""
    vgpu: Vgpu | None = None
    """The vGPU, if it is a part of a card that a profile defines."""
    related: tuple[str, ...] = field(default=(), compare=False)
    """The ids of the card of which it is a part, or of its parts that have ids: a container with one of these has a
    part of this one."""

    @property
    def card(self) -> str:
        """The id of the card, without the number of a replica or of a vGPU."""
        return card_of(self.id)

    @property
    def whole_index(self) -> str:
        """The number of the whole card."""
        return self.index.partition(PART)[0]


Offers = Mapping[str, Mapping[str, Offered]]
"""By resource, with its domain, and by id; in the order of the machine's cards."""


def card_of(id: str) -> str:
    """Return the id of the card of a replica or a vGPU; any other id unchanged."""
    return card_of_vgpu(id.partition(REPLICA)[0])


def is_replica(id: str) -> bool:
    """Whether *id* has the format of a replica's id."""
    return REPLICA in id


def replica_id(card: str, number: int) -> str:
    """Return the id of one replica."""
    return f"{card}{REPLICA}{number}"


def unique(ids: Iterable[str]) -> tuple[str, ...]:
    """Return each of *ids* once, in order."""
    return tuple(dict.fromkeys(ids))
