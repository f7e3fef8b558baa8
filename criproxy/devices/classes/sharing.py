"""Shared cards: which replicas of which cards are offered, and as which resource.

A card of a resource is either whole or shared. NVIDIA's rule, which processes one entry after the other, would offer
the cards of one entry as whole cards again for the next; here, a card is whole only if no entry for its resource shares
it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from re import fullmatch
from typing import Literal, Protocol

from criproxy.devices.classes.offers import Offered, Offers, replica_id, unique

SHARED_SUFFIX = ".shared"
"""The suffix of a resource that is renamed because its cards are shared."""
MAX_REPLICAS = 10_000
"""The maximum for one card; the kubelet processes the ids of all cards for each pod."""
Selector = Literal["all"] | int | tuple[str, ...]
"""All cards of a resource, the first N, or those with an index or id."""
_INDEX = "[0-9]+(:[0-9]+)?"


class SelectionError(ValueError):
    """An entry selects cards that its resource does not have."""

    resource = ""


class Entry(Protocol):
    """Shared cards of one resource."""

    @property
    def name(self) -> str:
        """The resource, with its domain."""
        ...

    @property
    def rename(self) -> str:
        """The resource of the replicas, with its domain; empty if the entry does not set it."""
        ...

    @property
    def devices(self) -> Selector:
        """The selected cards of the resource."""
        ...

    @property
    def replicas(self) -> int:
        """The number of replicas of each card."""
        ...


def share(offers: Offers, entries: Sequence[Entry], *, rename_by_default: bool = False) -> Offers:
    """Return what is offered when cards are shared.

    Several entries for one card add up: each adds its replicas, and the later entry counts for replicas of both.

    Args:
        offers: the existing cards, none of which is shared.
        entries: how they are shared; entries for resources that do not exist have no effect.
        rename_by_default: whether entries that name no other resource offer replicas as ``<resource>.shared``.

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
        name = entry.rename or (entry.name + SHARED_SUFFIX if rename_by_default else entry.name)
        found.setdefault(name, {}).update((each.id, each) for each in _replicas(cards, entry.replicas))
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


def _selected(offers: Offers, entry: Entry) -> list[Offered]:
    try:
        return _chosen(offers.get(entry.name, {}), entry.devices)
    except SelectionError as error:
        error.resource = entry.name
        raise


def _chosen(cards: Mapping[str, Offered], devices: Selector) -> list[Offered]:
    there = list(cards.values())
    if devices == "all" or not there:
        return there
    if isinstance(devices, int):
        if devices > len(there):
            text = f"requested {devices} devices to be replicated, but only {len(there)} devices available"
            raise SelectionError(text)
        return there[:devices]
    if not devices:
        raise SelectionError("unexpected error: the list of devices is empty")
    by_index = {card.index: card for card in there}
    return [cards[each] for each in unique(_named(cards, by_index, name).id for name in devices)]


def _named(cards: Mapping[str, Offered], by_index: Mapping[str, Offered], name: str) -> Offered:
    if fullmatch(_INDEX, name):
        if name not in by_index:
            raise SelectionError(f"no matching device at index: {name}")
        return by_index[name]
    if name not in cards:
        raise SelectionError(f"no matching device with UUID: {name}")
    return cards[name]
