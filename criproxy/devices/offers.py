"""What a device plugin offers to the kubelet: ids of cards, or of their replicas, by resource."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from criproxy.devices.vgpu_profiles import Vgpu, card_of_vgpu

PART = ":"
"""Between the number of a card and that of its part, such as a MIG device."""
REPLICA = "::"
"""Between the id of a card and the number of its replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What the kubelet can allocate under one id: a card, a part of it with an id of its own, or a replica of these."""

    id: str
    """As the kubelet knows it."""
    index: str
    """How people and drivers number the card: ``0``, or ``0:1`` for a part of it."""
    paths: tuple[str, ...] = ()
    """The device nodes of its own, on the host and in containers."""
    replicas: int = 0
    """In how many the card is shared; 0: it is not."""
    numa_node: int | None = None
    """The NUMA node next to it; None where that is not known."""
    vgpu: Vgpu | None = None
    """Its quota, if it is a part of a card that a profile makes."""
    related: tuple[str, ...] = field(default=(), compare=False)
    """The ids of the card of which it is a part, or of its parts, where these have ids of their own: who has one of
    them has a part of this."""

    @property
    def card(self) -> str:
        """The id of the card, without the number of a replica or of a vGPU."""
        return card_of(self.id)

    @property
    def whole_index(self) -> str:
        """The number of the card, also for a part of it."""
        return self.index.partition(PART)[0]


Offers = Mapping[str, Mapping[str, Offered]]
"""By resource, with its domain, and by id; in the order of the machine."""


def card_of(id: str) -> str:
    """The id of the card that *id* is, or of which it is a replica or a vGPU."""
    return card_of_vgpu(id.partition(REPLICA)[0])


def is_replica(id: str) -> bool:
    """Whether *id* has the form of a replica's."""
    return REPLICA in id


def replica_id(card: str, number: int) -> str:
    """The id of one replica."""
    return f"{card}{REPLICA}{number}"


def unique(ids: Iterable[str]) -> tuple[str, ...]:
    """Each of *ids* once, in their order."""
    return tuple(dict.fromkeys(ids))
