"""Pins the numbers and counts in the files to the cards that they meant when the files were loaded.

NVML numbers the GPUs that exist. When one disappears, the next one gets its number, although a container may have that
one exclusively.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from criproxy.deviceplugin.nvidia.options import SharedResource
from criproxy.devices.classes.offers import PART, Offered, Offers
from criproxy.devices.classes.sharing import Selector
from criproxy.devices.classes.vgpu_profiles import CardSize
from criproxy.devices.plugin.plan import SharedCards

E = TypeVar("E", bound=SharedCards | SharedResource)
NO_INDEX = -1
"""Index of a card whose number belonged to another card before."""


def with_devices(entry: E, devices: Selector) -> E:
    """Return *entry* for other cards."""
    if isinstance(entry, SharedResource):
        return entry.model_copy(update={"devices": devices})
    return replace(entry, devices=devices)


@dataclass(slots=True)
class Pins:
    """What the numbers in one version of the files meant at first."""

    _numbers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By class and ID: the first number of each card; empty if another card had that number before."""
    _counted: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """By resource and count: the file's names of the cards that were counted."""
    _sizes: dict[str, dict[str, CardSize]] = field(default_factory=dict)
    """By class and ID: the size of each card when it appeared."""

    def entries(self, kind: str, entries: Sequence[E], whole: Offers, now: Mapping[str, str]) -> Iterator[E]:
        """Yield *entries* with the present names of the cards; records the numbers of new cards.

        Args:
            kind: The name of the class.
            entries: The entries of the file.
            whole: The existing cards, without sharing.
            now: The ID of each card by its present number.
        """
        numbers = _Numbers(self._first_numbers(kind, now), now)
        for entry in entries:
            cards = whole.get(entry.name, {})
            if isinstance(entry.devices, tuple):
                yield with_devices(entry, tuple(map(numbers.name_now, entry.devices)))
            elif isinstance(entry.devices, int) and (counted := self._count(entry, cards, numbers)):
                yield with_devices(entry, tuple(map(numbers.name_now, counted)))
            else:
                yield entry

    def sizes(self, kind: str, cards: Sequence[CardSize]) -> list[CardSize]:
        """Return all cards of a class so far for profiles to choose from; cards that are gone keep their places."""
        known = self._sizes.setdefault(kind, {})
        for card in cards:
            is_new = all(card.index != each.index for each in known.values())
            known.setdefault(card.id, card if is_new else replace(card, index=NO_INDEX))
        return list(known.values())

    def _first_numbers(self, kind: str, now: Mapping[str, str]) -> Mapping[str, str]:
        known = self._numbers.setdefault(kind, {})
        taken = set(known.values())
        for number, card in now.items():
            known.setdefault(card, "" if number in taken else number)
        return known

    def _count(self, entry: E, cards: Mapping[str, Offered], numbers: "_Numbers") -> list[str]:
        """Return the names of the first cards of a count; empty while there are too few, as then all are shared."""
        assert isinstance(entry.devices, int)
        counted = self._counted.setdefault((entry.name, entry.devices), [])
        for card in cards.values():
            name = numbers.first_name(card)
            if len(counted) < entry.devices and name not in counted:
                counted.append(name)
        return counted if len(counted) == entry.devices else []


class _Numbers:
    """The numbers of cards at first and now."""

    def __init__(self, first_of: Mapping[str, str], now: Mapping[str, str]) -> None:
        self._first_of, self._now = first_of, now
        self._cards = {number: card for card, number in first_of.items() if number}
        self._now_of = {card: number for number, card in now.items()}

    def name_now(self, name: str) -> str:
        """Return the present name of the card, or part, that the file calls *name*; its ID if it no longer exists."""
        number, colon, part = name.partition(PART)
        card = self._cards.get(number)
        if card is None:
            # An ID, or a number that no card had at first: not the number of a card that has it only now.
            return f"number {name}" if number in self._now else name
        return f"{self._now_of[card]}{colon}{part}" if card in self._now_of else card

    def first_name(self, card: Offered) -> str:
        """Return the file's name for an existing card or part of one."""
        number, colon, part = card.index.partition(PART)
        first = self._first_of.get(self._now.get(number, ""))
        return f"{first}{colon}{part}" if first else card.id
