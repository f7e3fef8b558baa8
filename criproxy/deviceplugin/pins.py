"""Which cards the numbers and counts in the files mean: those that they meant when the files were loaded.

NVML numbers the GPUs that are there. When one leaves, the next gets its number, although a container may have it alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from criproxy.devices.offers import PART, Offered, Offers
from criproxy.devices.plan import SharedCards
from criproxy.devices.vgpu_profiles import CardSize
from criproxy.nvidia.options import SharedResource

E = TypeVar("E", bound=SharedCards | SharedResource)
NO_INDEX = -1
"""Of a card that has the number of one that was there before."""


@dataclass(slots=True)
class Pins:
    """What one version of the files meant at first."""

    _numbers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By class and id: the first numbers of cards; empty for those that came when another card had theirs."""
    _counted: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """By resource and count: what the file calls the cards that were counted."""
    _sizes: dict[str, dict[str, CardSize]] = field(default_factory=dict)
    """By class and id: cards as they were when they came."""

    def entries(self, kind: str, entries: Sequence[E], whole: Offers, now: Mapping[str, str]) -> Iterator[E]:
        """*entries* with the names that the cards have now; cards that have come first are learned.

        Args:
            kind: the name of the class.
            entries: as the file has them.
            whole: the cards that there are, none of which is shared.
            now: by the numbers of this moment: the ids of cards.
        """
        numbers = _Numbers(self._learned(kind, now), now)
        for entry in entries:
            cards = whole.get(entry.name, {})
            if isinstance(entry.devices, tuple):
                yield replace(entry, devices=tuple(map(numbers.name_now, entry.devices)))
            elif isinstance(entry.devices, int) and (counted := self._count(entry, cards, numbers)):
                yield replace(entry, devices=tuple(map(numbers.name_now, counted)))
            else:
                yield entry

    def sizes(self, kind: str, cards: Sequence[CardSize]) -> list[CardSize]:
        """All cards of a class so far, as profiles choose among them; those that are gone keep their places."""
        known = self._sizes.setdefault(kind, {})
        for card in cards:
            is_new = all(card.index != each.index for each in known.values())
            known.setdefault(card.id, card if is_new else replace(card, index=NO_INDEX))
        return list(known.values())

    def _learned(self, kind: str, now: Mapping[str, str]) -> Mapping[str, str]:
        known = self._numbers.setdefault(kind, {})
        taken = set(known.values())
        for number, card in now.items():
            known.setdefault(card, "" if number in taken else number)
        return known

    def _count(self, entry: E, cards: Mapping[str, Offered], numbers: "_Numbers") -> list[str]:
        """The names of the first so many; empty while there are too few, since all that come will be shared."""
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
        """What a card, or the part of one, is called now that the file calls *name*; an id if it is gone."""
        number, colon, part = name.partition(PART)
        card = self._cards.get(number)
        if card is None:
            # An id, or a number that no card had first: not that of a card which has it only now.
            return f"number {name}" if number in self._now else name
        return f"{self._now_of[card]}{colon}{part}" if card in self._now_of else card

    def first_name(self, card: Offered) -> str:
        """What the file calls a card that is there, or its part."""
        number, colon, part = card.index.partition(PART)
        first = self._first_of.get(self._now.get(number, ""))
        return f"{first}{colon}{part}" if first else card.id
