"""To which class a resource of our own device plugin belongs, by its name and by the cards in its ids.

The kubelet repeats an answer of Allocate for as long as a pod lives, and the policy file may have changed since: the
resources of profiles and of shared cards may have other names by now, or none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from criproxy.devices.classes.cards import NO_CARDS, Card, Stock, Stocks, card_id, number_in
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SHARED_SUFFIX, card_of, unique
from criproxy.devices.classes.vgpu_profiles import DOMAIN, is_vgpu


def class_of(
    classes: Sequence[DeviceClass], resource: str, ids: Sequence[str], stocks: Stocks, nodes: Sequence[str]
) -> DeviceClass | None:
    """The class of what our own device plugin has allocated; None where that is not known.

    Args:
        classes: those that matter.
        resource: its name at the time of Allocate.
        ids: as the kubelet asked for them.
        stocks: the machine's cards.
        nodes: the device nodes on the host with which the container is created.
    """
    cards, known = unique(map(card_of, ids)), [_Cards(kind, stocks.get(kind.name, NO_CARDS)) for kind in classes]
    is_of_profile = resource.startswith(f"{DOMAIN}/") and all(map(is_vgpu, ids))
    of_vgpus = _by_cards(known, resource, cards, nodes) if is_of_profile else ()
    names = resource, resource.removesuffix(SHARED_SUFFIX)  # our plugin may have made it of that of a class
    by_name = (kind for name in names for kind in classes if kind.serves(name))
    by_id = (each.kind for each in known if all(map(each.is_very_name, cards)))
    return next((kind for found in (of_vgpus, by_name, by_id) for kind in found), None)


def own_word(kind: DeviceClass, device: str) -> str:
    """The id of a card as the kubelet has it, although the machine's list may have no such card."""
    return device if kind.id_format == "uuid" and device.startswith(("GPU-", "MIG-")) else ""


def _by_cards(
    known: Iterable["_Cards"], resource: str, cards: Sequence[str], nodes: Sequence[str]
) -> Iterator[DeviceClass]:
    """The class of vGPUs: profiles come and go, but the names of their cards stay.

    Cards of two classes may have the same name: then it is the class of which the machine has such a card, whose nodes
    the container has, and to which the profile belongs by now, in this order.
    """
    left = [each for each in known if all(map(each.may_mean, cards))]
    left = [each for each in left if all(map(each.card, cards))] or left
    left = [each for each in left if all(each.has_node(card, nodes) for card in cards)] or left
    left = [each for each in left if each.kind.serves(resource)] or left
    return (each.kind for each in left)


@dataclass(frozen=True, slots=True)
class _Cards:
    """The cards of one class, by their names."""

    kind: DeviceClass
    stock: Stock

    def is_very_name(self, id: str) -> bool:
        """Whether *id* is the very name of one of them, and no number that cards of other classes have, too."""
        return any(id in (card.id, card.pci) for card in self.stock.cards) or bool(own_word(self.kind, id))

    def card(self, id: str) -> Card | None:
        """The one that *id* means, by any of its names."""
        by_name = (each for each in self.stock.cards if id in (each.id, each.pci, card_id(self.kind, each)))
        by_number = (each for each in self.stock.cards if id == str(each.number))
        return next(by_name, None) or next(by_number, None)

    def may_mean(self, id: str) -> bool:
        """Whether *id* is a name of one of them, or has the form of one: the machine may not be known yet."""
        number = number_in(id)
        has_form = number is not None and card_id(self.kind, Card(number)) == id
        return has_form or self.card(id) is not None or self.is_very_name(id)

    def has_node(self, id: str, nodes: Iterable[str]) -> bool:
        """Whether one of *nodes* is of the card that *id* means."""
        number = card.number if (card := self.card(id)) else number_in(id)
        return number is not None and any(self.kind.card_number(path) == number for path in nodes)
