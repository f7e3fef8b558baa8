"""The cards of a machine, the lookup of a card by its id, and the distances between cards.

Distances are in the terms of ``nvidia-smi topo -m``. The PCI paths show them for cards of every vendor. What a driver
reports in addition, such as NVLinks, takes precedence.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations, takewhile

from criproxy.devices.classes.device_class import PLACEHOLDER, DeviceClass
from criproxy.model.cpuset import CpuSet

_INDEX = re.compile("[0-9]{1,9}")
"""Python does not parse numbers with thousands of digits."""
_NUMBERED = re.compile(r"(?:[A-Za-z]+|[A-Za-z0-9]+-)?([0-9]{1,6})")
"""``1``, ``card1`` and ``Ascend910-1``; not ``Ascend910-2c-100-1``, a part of a card with a separate number."""
SHOWN_CHARACTERS = 63
"""The maximum length of an id according to Kubernetes' documentation."""
SHOWN_IDS = 16


@dataclass(frozen=True, slots=True)
class Card:
    """One accelerator."""

    number: int
    """The number in the names of its device nodes."""
    nodes: tuple[str, ...] = ()
    """Its own device nodes, as far as they exist."""
    id: str = ""
    """Its UUID, if a file of the driver contains it."""
    pci: str = ""
    """Its PCI address in the kernel's format, ``0000:3b:00.0``; empty if unknown."""
    bridges: tuple[str, ...] = ()
    """The PCI addresses of the bridges above it, the root (``pci0000:3a``) first; empty if unknown."""
    numa_node: int = -1
    """-1 if the firmware does not report it."""
    local_cpus: CpuSet = frozenset()
    """The CPUs close to it, according to the kernel; empty if the kernel does not report them."""


@dataclass(frozen=True, slots=True)
class Stock:
    """The cards of one class on a machine."""

    cards: tuple[Card, ...] = ()
    """In the order of their driver, if it is known."""
    shared: tuple[str, ...] = ()
    """The device nodes that all cards need, as far as they exist."""
    cdi_sets: Mapping[str, bool] = field(default_factory=dict, hash=False)
    """By CDI device, whether its specification sets the visible variable; without unreadable specifications."""

    def card(self, kind: DeviceClass, id: str) -> Card | None:
        """Return the card with an *id* of the kubelet or of CDI; None if it is unknown."""
        if named := next((card for card in self.cards if id and id in (card.id, card.pci)), None):
            return named
        if kind.id_format == "uuid":  # a plain number is the driver's index, not the number of the node
            listed = [card for card in self.cards if card.id]
            return listed[int(id)] if _INDEX.fullmatch(id) and int(id) < len(listed) else None
        number = number_in(id)
        return next((card for card in self.cards if card.number == number), None)


NO_CARDS = Stock()
Stocks = Mapping[str, Stock]
"""The cards of a machine, by the name of their class."""


def ids_text(ids: Sequence[str]) -> str:
    """Return *ids* for messages: shortened, since a plugin's ids may have any length and number."""
    short = [each if len(each) <= SHOWN_CHARACTERS else f"{each[: SHOWN_CHARACTERS - 1]}…" for each in ids[:SHOWN_IDS]]
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(short) + more


def number_in(id: str) -> int | None:
    """Return the number of the card in an id such as ``Ascend910-1``."""
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
    """Return the value of the visible variable for *ids*; None if it is unknown."""
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


class Distance(IntEnum):
    """The connection between two cards, the closest first."""

    PIX = 1
    """At most one PCIe switch."""
    PXB = 2
    """Several switches, and no host bridge."""
    PHB = 3
    """A host bridge, which is usually a CPU's."""
    NODE = 4
    """Host bridges of one NUMA node."""
    SYS = 5
    """Host bridges of different NUMA nodes; or unknown."""


_BELOW_ONE_SWITCH = 1
"""The number of bridges below the upstream port of a switch: the port to which the card is connected."""


@dataclass(frozen=True, slots=True)
class NvLinks:
    """The active links of one card."""

    to_cards: Mapping[str, int] = field(default_factory=dict)
    """The number of links, by the PCI address of the card at the other end."""
    to_switches: int = 0


@dataclass(frozen=True, slots=True)
class Peers:
    """What a driver reports about one card in relation to others."""

    distances: Mapping[str, Distance] = field(default_factory=dict)
    """By the id of the other card."""
    nvlinks: NvLinks = NvLinks()
    parts: tuple[str, ...] = ()
    """The ids of the card's parts that can be allocated instead of it, such as MIG devices."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connection between two cards, which are identified by their indexes in a list."""

    first: int
    second: int
    distance: Distance
    nvlinks: int = 0

    @property
    def name(self) -> str:
        """The name that nvidia-smi uses: ``NV4`` for four NVLinks, else the distance."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.distance.name


NO_PEERS = Peers()


def links(cards: Sequence[Card], reported: Mapping[str, Peers] | None = None) -> Iterator[Link]:
    """Yield the connections between all *cards*; *reported* has the driver's data by the id of the card."""
    peers = [(reported or {}).get(card.id, NO_PEERS) if card.id else NO_PEERS for card in cards]
    for (first, one), (second, other) in combinations(enumerate(cards), 2):
        known = peers[first].distances.get(other.id) if other.id else None
        nvlinks = _nvlinks(one, peers[first].nvlinks, other, peers[second].nvlinks)
        yield Link(first, second, known or distance(one, other), nvlinks)


def distance(one: Card, other: Card) -> Distance:
    """Return the distance of two cards on the PCI bus."""
    pairs = zip(one.bridges, other.bridges, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if common > 1:
        below = max(len(one.bridges), len(other.bridges)) - common
        return Distance.PIX if below <= _BELOW_ONE_SWITCH else Distance.PXB
    if common:
        return Distance.PHB
    return Distance.NODE if one.numa_node == other.numa_node >= 0 else Distance.SYS


def _nvlinks(one: Card, own: NvLinks, other: Card, others: NvLinks) -> int:
    """Return the number of NVLinks between two cards, direct ones or through switches that all cards share."""
    straight = own.to_cards.get(other.pci, 0) or others.to_cards.get(one.pci, 0)
    return straight or min(own.to_switches, others.to_switches)
