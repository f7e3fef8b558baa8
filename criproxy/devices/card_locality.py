"""The NUMA nodes that are closest to a container's cards, so that its CPUs and memory can be placed there.

The kernel knows them for most cards. For others, such as parts of a card, the device plugin may report them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from criproxy.devices.classes.cards import NO_CARDS, Card, Stock, Stocks, ids_text
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import card_of
from criproxy.devices.evidence.device_request import DeviceRequest
from criproxy.devices.evidence.evidence import UNKNOWN_ALLOCATION, Evidence, Given, Known, numbers_of_nodes
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class CardLocation:
    """The location of one card of a container."""

    kind: str
    """The name of its class."""
    id: str
    """The id in the evidence; empty if that has only a device node."""
    pci: str = ""
    """The PCI address; empty if unknown."""
    nodes: CpuSet = frozenset()
    """The closest NUMA nodes with CPUs; empty if unknown."""

    @property
    def sentence(self) -> str:
        """A description for users."""
        place = f"is next to {numbered('NUMA node', self.nodes)}" if self.nodes else "is next to no known NUMA node"
        where = f" ({self.pci})" if self.pci not in ("", self.id) else ""
        return f"{self.kind}: {ids_text([self.id] if self.id else []) or 'a card'}{where} {place}"


def locate_cards(
    classes: Iterable[DeviceClass],
    asked: DeviceRequest,
    evidence: Evidence,
    known: Sequence[Known],
    stocks: Stocks,
    topology: Topology,
) -> tuple[CardLocation, ...]:
    """Return the locations of the cards that are allocated to a container.

    Args:
        classes: the classes of interest.
        asked: the create request, whose device nodes identify cards if ids do not.
        evidence: the cards that are allocated to the container.
        known: the answers of the sources, for the locations that device plugins report.
        stocks: the machine's cards.
        topology: the machine.
    """
    reported = {each: nodes for source in reversed(known) for each, nodes in source.near.items()}
    found: list[CardLocation] = []
    for kind in classes:
        allocation = evidence.get(kind.name, UNKNOWN_ALLOCATION)
        if allocation.given is Given.CARDS:
            found += _of_class(kind, asked, allocation.ids, reported, stocks.get(kind.name, NO_CARDS), topology)
    return tuple(found)


def hints(cards: Iterable[CardLocation]) -> tuple[CpuSet, ...]:
    """Return a container's hints: the closest NUMA nodes of each card for which they are known."""
    return tuple(card.nodes for card in cards if card.nodes)


def _of_class(
    kind: DeviceClass,
    asked: DeviceRequest,
    ids: Sequence[str],
    reported: Mapping[str, CpuSet],
    stock: Stock,
    topology: Topology,
) -> Iterator[CardLocation]:
    cards = [stock.card(kind, each) for each in ids]
    if not ids or None in cards:
        by_number = {card.number: card for card in stock.cards}
        numbers = numbers_of_nodes(kind, asked, stock)
        if len(numbers) >= len(ids) and all(number in by_number for number in numbers):
            ids = [*ids, *[""] * (len(numbers) - len(ids))]
            cards = [by_number[number] for number in numbers]
    by_plugin = {card: nodes for each, nodes in reported.items() for card in (card_of(each), *kind.physical((each,)))}
    for each, card in zip(ids, cards, strict=True):
        nodes = _with_cpus(topology, _next_to(topology, card) or by_plugin.get(each, frozenset()))
        yield CardLocation(kind.name, each, card.pci if card else "", nodes)


def _next_to(topology: Topology, card: Card | None) -> CpuSet:
    """Return the NUMA nodes that the kernel reports for a card; none if all CPUs are equally close."""
    if card is None:
        return frozenset()
    if card.numa_node in topology.node_by_id:
        return frozenset({card.numa_node})
    cpus = card.local_cpus & topology.online_cpus
    return frozenset() if cpus == topology.online_cpus else topology.nodes_of(cpus)


def _with_cpus(topology: Topology, nodes: CpuSet) -> CpuSet:
    """Return those of *nodes* with CPUs; if none has any (as with a card's own memory), the closest with CPUs."""
    there = [topology.node_by_id[number] for number in nodes if number in topology.node_by_id]
    if found := frozenset(node.id for node in there if node.cpus):
        return found
    homes = [node.id for node in topology.nodes if node.cpus]
    if not there or not homes:
        return frozenset()
    return frozenset({min(homes, key=lambda home: (min(topology.distance(home, lone.id) for lone in there), home))})
