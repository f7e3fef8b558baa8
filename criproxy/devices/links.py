"""How far cards are from each other: what lies between two of them, in the words of ``nvidia-smi topo -m``.

PCI paths show it for cards of every vendor. What a driver reports in addition, such as NVLinks, comes first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations

from criproxy.devices.cards import Card


class Distance(IntEnum):
    """What lies between two cards, the nearest first."""

    PIX = 1
    """At most one PCIe switch."""
    PXB = 2
    """Several switches, and no host bridge."""
    PHB = 3
    """A host bridge, which is usually a CPU's."""
    NODE = 4
    """Host bridges of one NUMA node."""
    SYS = 5
    """NUMA nodes; or not known."""


_BELOW_ONE_SWITCH = 1
"""Bridges below the port of a switch that is nearest to the CPU: the port to which the card is connected."""


@dataclass(frozen=True, slots=True)
class NvLinks:
    """The links of one card that are up."""

    to_cards: Mapping[str, int] = field(default_factory=dict)
    """By the PCI address of the card at the other end."""
    to_switches: int = 0


@dataclass(frozen=True, slots=True)
class Peers:
    """What a driver reports about one card and others."""

    distances: Mapping[str, Distance] = field(default_factory=dict)
    """By the id of the other."""
    nvlinks: NvLinks = NvLinks()
    parts: tuple[str, ...] = ()
    """Ids of the card's parts that can be allocated in its stead, such as MIG devices."""


@dataclass(frozen=True, slots=True)
class Link:
    """The way between two cards, which are named by their places in a list."""

    first: int
    second: int
    distance: Distance
    nvlinks: int = 0

    @property
    def name(self) -> str:
        """As nvidia-smi writes it: ``NV4`` for four NVLinks, else the distance."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.distance.name


NO_PEERS = Peers()


def links(cards: Sequence[Card], told: Mapping[str, Peers] | None = None) -> Iterator[Link]:
    """The ways between all *cards*; *told* has by their ids what a driver says."""
    peers = [(told or {}).get(card.id, NO_PEERS) if card.id else NO_PEERS for card in cards]
    for (first, one), (second, other) in combinations(enumerate(cards), 2):
        known = peers[first].distances.get(other.id) if other.id else None
        nvlinks = _nvlinks((one, peers[first].nvlinks), (other, peers[second].nvlinks))
        yield Link(first, second, known or distance(one, other), nvlinks)


def distance(one: Card, other: Card) -> Distance:
    """What lies between two cards on the PCI bus."""
    common = _common(one.bridges, other.bridges)
    if common > 1:
        below = max(len(one.bridges), len(other.bridges)) - common
        return Distance.PIX if below <= _BELOW_ONE_SWITCH else Distance.PXB
    if common:
        return Distance.PHB
    return Distance.NODE if one.numa_node == other.numa_node >= 0 else Distance.SYS


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the bridges to two cards are the same, from the host bridge on."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _nvlinks(one: tuple[Card, NvLinks], other: tuple[Card, NvLinks]) -> int:
    """How many NVLinks lead from one card to the other, at once or through switches that all cards share."""
    (card, own), (neighbour, others) = one, other
    straight = own.to_cards.get(neighbour.pci, 0) or others.to_cards.get(card.pci, 0)
    return straight or min(own.to_switches, others.to_switches)
