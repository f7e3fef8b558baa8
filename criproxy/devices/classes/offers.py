"""What a device plugin offers to the kubelet: ids of cards, or of their replicas, by resource.

A card of a resource is either whole or shared. NVIDIA's rule, which processes one entry after the other, would offer
the cards of one entry as whole cards again for the next; here, a card is whole only if no entry for its resource shares
it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from re import fullmatch
from typing import Literal

from criproxy.devices.classes.vgpu_profiles import Vgpu, card_of_vgpu

PART = ":"
"""The separator between the number of a card and that of its part, such as a MIG device."""
REPLICA = "::"
"""The separator between the id of a card and the number of its replica."""
SHARED_SUFFIX = ".shared"
"""The suffix of a resource that is renamed because its cards are shared."""
MAX_REPLICAS = 10_000
"""The maximum for one card; the kubelet processes the ids of all cards for each pod."""
Selector = Literal["all"] | int | tuple[str, ...]
"""All cards of a resource, the first N, or those with an index or id."""
_INDEX = "[0-9]+(:[0-9]+)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What the kubelet can allocate under one id: a card, a part of it with an id of its own, or a replica of these."""

    id: str
    """The id that the kubelet knows."""
    index: str = ""
    """The driver's number of the card: ``0``, or ``0:1`` for a part of it."""
    paths: tuple[str, ...] = ()
    """Its own device nodes, on the host and in containers."""
    replicas: int = 0
    """The number of replicas of the card; 0: it is not shared."""
    numa_node: int | None = None
    """The closest NUMA node; None if unknown."""
    vgpu: Vgpu | None = None
    """The vGPU, if it is a part of a card that a profile defines."""
    healthy: bool = True
    """Whether the kubelet may allocate it."""
    related: tuple[str, ...] = field(default=(), compare=False)
    """The ids of the card of which it is a part, or of its parts that have ids: a container with one of these has a
    part of this one."""

    @property
    def card(self) -> str:
        """The id of the card, without the number of a replica or of a vGPU."""
        return card_of(self.id)

    @property
    def quota(self) -> tuple[int, int]:
        """The quota of a vGPU: memory in MiB, and cores in percent."""
        return (self.vgpu.memory_mib, self.vgpu.cores_percent) if self.vgpu else (0, 0)

    @property
    def is_part(self) -> bool:
        """Whether it is a part of a card with an id of its own, such as a MIG device, or a replica of one."""
        return PART in self.index

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


class SelectionError(ValueError):
    """An entry selects cards that its resource does not have."""

    def __init__(self, resource: str, text: str) -> None:
        super().__init__(text)
        self.resource = resource


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCards:
    """Cards of one resource that are shared: an entry of a file."""

    name: str
    """The resource, with its domain."""
    replicas: int
    """The number of replicas of each card."""
    devices: Selector = "all"
    rename: str = ""
    """The resource of the replicas, with its domain; empty: the same one."""
    only_one: bool = False
    """Whether a container that requests more than one replica is refused."""

    @property
    def target(self) -> str:
        """The resource of the replicas."""
        return self.rename or self.name


def share(offers: Offers, entries: Iterable[SharedCards]) -> Offers:
    """Return what is offered when cards are shared.

    Several entries for one card add up: each adds its replicas, and the later entry counts for replicas of both.

    Args:
        offers: the existing cards, none of which is shared.
        entries: how they are shared; entries for resources that do not exist have no effect.

    Raises:
        SelectionError: an entry selects a card that its resource does not have.
    """
    selected = [(entry, _selected(offers, entry)) for entry in entries]
    shared: dict[str, set[str]] = {}
    for entry, cards in selected:
        shared.setdefault(entry.name, set()).update(card.id for card in cards)
    found = {
        name: {card.id: card for card in cards.values() if card.id not in shared.get(name, ())}
        for name, cards in offers.items()
    }
    for entry, cards in selected:
        found.setdefault(entry.target, {}).update((each.id, each) for each in _replicas(cards, entry.replicas))
    return {name: in_order(cards.values()) for name, cards in found.items() if cards}


def in_order(offered: Iterable[Offered]) -> dict[str, Offered]:
    """Sort by the indexes of the cards, and the replicas of a card by their numbers; return them by id."""
    return {each.id: each for each in sorted(offered, key=_place)}


def _place(offered: Offered) -> tuple[tuple[int, ...], str, int, str]:
    numbers = tuple(map(int, offered.index.split(":"))) if fullmatch(_INDEX, offered.index) else ()
    number = offered.id[len(offered.card) :].removeprefix("::")
    return numbers, offered.card, int(number) if number.isdecimal() else -1, offered.id


def _replicas(cards: Iterable[Offered], count: int) -> Iterator[Offered]:
    for card in cards:
        for number in range(count):
            yield replace(card, id=replica_id(card.id, number), replicas=count)


def _selected(offers: Offers, entry: SharedCards) -> list[Offered]:
    cards, devices = offers.get(entry.name, {}), entry.devices
    there = list(cards.values())
    if devices == "all" or not there:
        return there
    if isinstance(devices, int):
        if devices > len(there):
            text = f"requested {devices} devices to be replicated, but only {len(there)} devices available"
            raise SelectionError(entry.name, text)
        return there[:devices]
    by_index, ids = {card.index: card for card in there}, list[str]()
    for name in devices:
        is_index = fullmatch(_INDEX, name)
        if (card := (by_index if is_index else cards).get(name)) is None:
            raise SelectionError(entry.name, f"no matching device {'at index' if is_index else 'with UUID'}: {name}")
        ids.append(card.id)
    return [cards[each] for each in unique(ids)]
