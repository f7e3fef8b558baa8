"""The cards of a machine and the containers that have them, as values that JSON can say: for `criproxy devices`.

Pure functions, so that a daemon and a command that only has the database say the same. docs/devices.md has the keys.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from criproxy.devices.cards import Card, Stock, Stocks
from criproxy.devices.classes import DeviceClass
from criproxy.devices.holdings import EVERY_CLASS, Facts, Holdings, alive, cards_of, ids_of, source_of, words_of
from criproxy.devices.links import Peers, links
from criproxy.devices.may_see import Word
from criproxy.model.node import Node
from criproxy.model.notices import Values
from criproxy.model.workload import Container

_MORE = frozenset(word.value for word in (Word.OVERRIDE, Word.WOULD_HIDE, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED))
"""Findings after which a container may see cards that it was not given."""
_ALL = frozenset({Word.PRIVILEGED.value, Word.EXEMPT.value})


@dataclass(frozen=True, slots=True)
class Given:
    """A container, and what was found when it was created."""

    container: Container
    facts: Facts


def tell(classes: Iterable[DeviceClass], stocks: Stocks, node: Node | None, holdings: Holdings) -> Values:
    """Everything.

    Args:
        classes: those that matter, in their order.
        stocks: the cards of the machine.
        node: who runs; None where it is not known which container was given which card.
        holdings: what was found at creates.
    """
    running = alive(node) if node else ()
    containers = sorted(running, key=lambda c: (c.namespace, c.pod_name, c.name, c.attempt, c.key))
    found = [(container, holdings.of(container)) for container in containers]
    given = [Given(container, facts) for container, facts in found if facts is not None]
    return {
        "classes": [of_class(kind, stocks.get(kind.name, Stock()), given if node else None) for kind in classes],
        "see_all": seeing(given, EVERY_CLASS, _ALL),
        "untold": [name(container) for container, facts in found if facts is None],
    }


def of_class(kind: DeviceClass, stock: Stock, given: Sequence[Given] | None) -> Values:
    """One class: its cards with those who have them, and the ways between cards."""
    held = [(one, set(cards_of(one.facts, kind, stock))) for one in given or () if source_of(one.facts, kind.name)]
    return {
        "name": kind.name,
        "resources": list(kind.resources),
        "shared_nodes": list(stock.shared),
        "cards": [
            {
                "index": index,
                "number": card.number,
                "id": card.id,
                "pci_address": card.pci,
                "pci_bridges": list(card.bridges),
                "numa_node": card.numa_node if card.numa_node >= 0 else None,
                "nodes": list(card.nodes),
                "parts": [],
                "containers": None if given is None else [has(one, kind.name) for one, cards in held if card in cards],
            }
            for index, card in enumerate(stock.cards)
        ],
        "links": links_between(stock.cards),
        "elsewhere": [has(one, kind.name) for one, cards in held if not cards or None in cards],
        "may_see_more": seeing(given or (), kind.name, _MORE),
    }


def seeing(given: Iterable[Given], kind: str, words: Collection[str]) -> list[Values]:
    """The containers with findings of a class that are among *words*, and these findings."""
    found = [(one.container, [word for word in words_of(one.facts, kind) if word in words]) for one in given]
    return [{**name(container), "findings": findings} for container, findings in found if findings]


def links_between(cards: Sequence[Card], told: Mapping[str, Peers] | None = None) -> list[Values]:
    """The ways between *cards*; *told* has by their ids what a driver says."""
    return [
        {
            "from": link.first,
            "to": link.second,
            "link": link.name,
            "distance": link.distance.name,
            "nvlinks": link.nvlinks,
        }
        for link in links(cards, told)
    ]


def has(one: Given, kind: str) -> Values:
    """A container with the ids that it was given of a class, and by which evidence that is known."""
    return {**name(one.container), "ids": ids_of(one.facts, kind), "evidence": source_of(one.facts, kind)}


def name(container: Container) -> Values:
    """Who it is, in the words of `status`."""
    return {
        "id": container.key if container.has_id else "",
        "namespace": container.namespace,
        "pod": container.pod_name,
        "container": container.name,
        "state": container.state.value,
    }
