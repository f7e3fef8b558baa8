"""The cards of a machine, and which of them an id means."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from criproxy.devices.classes import PLACEHOLDER, DeviceClass
from criproxy.model.cpuset import CpuSet

_INDEX = re.compile("[0-9]{1,9}")
"""Python reads no number of thousands of digits."""
_NUMBERED = re.compile(r"(?:[A-Za-z]+|[A-Za-z0-9]+-)?([0-9]{1,6})")
"""``1``, ``card1`` and ``Ascend910-1``; not ``Ascend910-2c-100-1``, a part of a card with numbers of its own."""
SHOWN_CHARACTERS = 63
"""The longest id that Kubernetes' documentation speaks of."""
SHOWN_IDS = 16


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator."""

    number: int
    """That in the name of its nodes."""
    nodes: tuple[str, ...] = ()
    """Those of its own that exist."""
    id: str = ""
    """Its UUID, where a file of the driver has it."""
    pci: str = ""
    """Its PCI address as the kernel writes it, ``0000:3b:00.0``; empty where that is not known."""
    bridges: tuple[str, ...] = ()
    """What leads to it, the root (``pci0000:3a``) first: PCI addresses of bridges; empty where that is not known."""
    numa_node: int = -1
    """-1 where the firmware does not say."""
    local_cpus: CpuSet = frozenset()
    """CPUs close to it, as the kernel says; empty where it says nothing."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What a machine has of one class."""

    cards: tuple[Card, ...] = ()
    """In the order of their driver, where that is known."""
    shared: tuple[str, ...] = ()
    """The nodes that all its cards need, as far as they exist."""
    cdi_sets: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """By the name of a CDI device, whether its specification sets the visible variable, as far as that can be read."""

    def card(self, kind: DeviceClass, id: str) -> Card | None:
        """The card that *id*, as the kubelet or CDI writes it, means; None where that is not known."""
        if named := next((card for card in self.cards if id and id in (card.id, card.pci)), None):
            return named
        if kind.id_format == "uuid":  # a bare number is the driver's index: its order, and not the node's number
            listed = [card for card in self.cards if card.id]
            return listed[int(id)] if _INDEX.fullmatch(id) and int(id) < len(listed) else None
        number = number_in(id)
        return next((card for card in self.cards if card.number == number), None)


Stocks = Mapping[str, Stock]
"""By the name of the class."""


def ids_text(ids: Sequence[str]) -> str:
    """*ids* for people: shortened, since those of a plugin may have any length and number."""
    short = [each if len(each) <= SHOWN_CHARACTERS else f"{each[: SHOWN_CHARACTERS - 1]}…" for each in ids[:SHOWN_IDS]]
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(short) + more


def number_in(id: str) -> int | None:
    """The number of the card in an id such as ``Ascend910-1``."""
    found = _NUMBERED.fullmatch(id)
    return int(found[1]) if found else None


def card_id(kind: DeviceClass, card: Card) -> str:
    """The id under which our device plugin offers a card: one that `Stock.card` finds again.

    It is the name of a node, such as ``npu3``: it stays the same while other cards, and other nodes, come and go.
    """
    name = PLACEHOLDER.sub(str(card.number), kind.per_device[0]).rpartition("/")[2] if kind.per_device else ""
    if number_in(name) == card.number:
        return name
    return f"{re.sub('[^A-Za-z]', '', kind.name) or 'card'}{card.number}"


def visible_value(kind: DeviceClass, ids: Iterable[str], stock: Stock) -> bytes | None:
    """The value of the visible variable for *ids*; None where that is not known."""
    words: list[str | None]
    match kind.id_format:
        case "uuid" | "as-is":
            words = list(ids)
        case "index":
            words = [None if (number := number_in(each)) is None else str(number) for each in ids]
        case "minor":
            words = [None if (card := stock.card(kind, each)) is None else str(card.number) for each in ids]
        case "plugin":
            return None
    known = [word for word in words if word is not None]
    return ",".join(known).encode() if known and len(known) == len(words) else None
