"""The distances between cards, in the terms of ``nvidia-smi topo -m``.

The PCI paths show them for cards of every vendor. What a driver reports in addition, such as NVLinks, takes precedence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations

from criproxy.devices.classes.cards import Card


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
        nvlinks = _nvlinks((one, peers[first].nvlinks), (other, peers[second].nvlinks))
        yield Link(first, second, known or distance(one, other), nvlinks)


def distance(one: Card, other: Card) -> Distance:
    """Return the distance of two cards on the PCI bus."""
    common = _common(one.bridges, other.bridges)
    if common > 1:
        below = max(len(one.bridges), len(other.bridges)) - common
        return Distance.PIX if below <= _BELOW_ONE_SWITCH else Distance.PXB
    if common:
        return Distance.PHB
    return Distance.NODE if one.numa_node == other.numa_node >= 0 else Distance.SYS


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many bridges two paths have in common, from the host bridge on."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _nvlinks(one: tuple[Card, NvLinks], other: tuple[Card, NvLinks]) -> int:
    """Return the number of NVLinks between two cards, direct ones or through switches that all cards share."""
    (card, own), (neighbour, others) = one, other
    straight = own.to_cards.get(neighbour.pci, 0) or others.to_cards.get(card.pci, 0)
    return straight or min(own.to_switches, others.to_switches)
