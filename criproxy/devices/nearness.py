"""Next to which NUMA nodes the cards of a container are: what makes its CPUs and memory follow them.

The kernel knows it of most cards. Of others, such as parts of a card, the device plugin may report it to the kubelet.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from criproxy.devices.asked import Asked
from criproxy.devices.cards import Card, Stock, Stocks, ids_text
from criproxy.devices.classes import DeviceClass
from criproxy.devices.evidence import NOBODY_TELLS, Evidence, Given, Known, numbers_of_nodes
from criproxy.devices.offers import card_of
from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where one card of a container is."""

    kind: str
    """The name of its class."""
    id: str
    """As in the evidence; empty where that has only a device node."""
    pci: str = ""
    """Its PCI address; empty where that is not known."""
    nodes: CpuSet = frozenset()
    """The NUMA nodes with CPUs that are next to it; empty where that is not known."""

    @property
    def sentence(self) -> str:
        """For people."""
        place = f"is next to {numbered('NUMA node', self.nodes)}" if self.nodes else "is next to no known NUMA node"
        where = f" ({self.pci})" if self.pci not in ("", self.id) else ""
        return f"{self.kind}: {ids_text([self.id] if self.id else []) or 'a card'}{where} {place}"


def whereabouts(
    classes: Iterable[DeviceClass],
    asked: Asked,
    evidence: Evidence,
    known: Sequence[Known],
    stocks: Stocks,
    topology: Topology,
) -> tuple[Whereabouts, ...]:
    """Where the cards are that a container was given.

    Args:
        classes: those that matter.
        asked: its create, whose device nodes mean cards where ids do not.
        evidence: what it was given.
        known: what the sources say; only where device plugins say that their cards are counts here.
        stocks: the machine's cards.
        topology: the machine.
    """
    told = {each: nodes for source in reversed(known) for each, nodes in source.near.items()}
    found: list[Whereabouts] = []
    for kind in classes:
        allocation = evidence.get(kind.name, NOBODY_TELLS)
        if allocation.given is Given.CARDS:
            found += _of_class(kind, asked, allocation.ids, told, stocks.get(kind.name, Stock()), topology)
    return tuple(found)


def hints(cards: Iterable[Whereabouts]) -> tuple[CpuSet, ...]:
    """What a container shall be close to: for each card of which it is known, the NUMA nodes next to it."""
    return tuple(card.nodes for card in cards if card.nodes)


def _of_class(
    kind: DeviceClass,
    asked: Asked,
    ids: Sequence[str],
    told: Mapping[str, CpuSet],
    stock: Stock,
    topology: Topology,
) -> Iterator[Whereabouts]:
    cards = [stock.card(kind, each) for each in ids]
    if not ids or None in cards:
        by_number = {card.number: card for card in stock.cards}
        numbers = numbers_of_nodes(kind, asked, stock)
        if len(numbers) >= len(ids) and all(number in by_number for number in numbers):
            ids = [*ids, *[""] * (len(numbers) - len(ids))]
            cards = [by_number[number] for number in numbers]
    by_plugin = {card: nodes for each, nodes in told.items() for card in (card_of(each), *kind.physical((each,)))}
    for each, card in zip(ids, cards, strict=True):
        nodes = _with_cpus(topology, _next_to(topology, card) or by_plugin.get(each, frozenset()))
        yield Whereabouts(kind.name, each, card.pci if card else "", nodes)


def _next_to(topology: Topology, card: Card | None) -> CpuSet:
    """What the kernel says of a card; nothing where every CPU is as close to it."""
    if card is None:
        return frozenset()
    if card.numa_node in topology.node_by_id:
        return frozenset({card.numa_node})
    cpus = card.local_cpus & topology.online_cpus
    return frozenset() if cpus == topology.online_cpus else topology.nodes_of(cpus)


def _with_cpus(topology: Topology, nodes: CpuSet) -> CpuSet:
    """*nodes* as far as they have CPUs; if none has, such as memory of a card itself, the nearest that has."""
    there = [topology.node_by_id[number] for number in nodes if number in topology.node_by_id]
    if found := frozenset(node.id for node in there if node.cpus):
        return found
    homes = [node.id for node in topology.nodes if node.cpus]
    if not there or not homes:
        return frozenset()
    return frozenset({min(homes, key=lambda home: (min(topology.distance(home, lone.id) for lone in there), home))})
