"""Which cards there are, as their health sees them: by class and id, whole ones and MIG devices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from criproxy.deviceplugin.inventory import Inventory
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.cards import card_id
from criproxy.devices.classes import DeviceClass
from criproxy.devices.plan import PluginPlan

Key = tuple[str, str]
"""The name of a class, and the id of a card as the kubelet knows it, without the number of a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One card that is there."""

    nodes: frozenset[str] = frozenset()
    """Those of its own that exist."""
    names: frozenset[str] = frozenset()
    """What else it may be called."""
    parent: str = ""
    """The id of the card of which it is a part; empty: it is a whole one."""
    problem: str = ""
    """Why the driver cannot describe it any more; empty: it can, or was not asked."""


def names_of(cards: Mapping[Key, Seen]) -> Mapping[str, Mapping[str, str]]:
    """By class, the ids of cards by whatever they are called: other names, and the ids themselves."""
    found: dict[str, dict[str, str]] = {}
    for (kind, card), seen in cards.items():
        found.setdefault(kind, {}).update(dict.fromkeys((*seen.names, *seen.nodes), card))
    for kind, card in cards:
        found[kind][card] = card
    return found


def cards_of(plan: PluginPlan, inventory: Inventory) -> Mapping[Key, Seen]:
    """All cards of the classes that are advertised."""
    found: dict[Key, Seen] = {}
    for advertised in plan.advertised:
        kind = advertised.kind
        cards = _nvidia(inventory) if advertised.is_nvidia else _others(kind, inventory)
        found.update({(kind.name, card): seen for card, seen in cards})
    return found


def nvml_problem(inventory: Inventory) -> str:
    """Why NVML cannot be asked of NVIDIA's cards; empty: it can, or the machine has none of them."""
    if inventory.driver_version and inventory.gpus:
        return ""
    if NVIDIA.name not in inventory.stocks or inventory.pending:
        return "it is not known yet which NVIDIA cards exist"
    if not inventory.gpus and not inventory.stock(NVIDIA).cards:
        return ""
    return "NVML does not list the NVIDIA cards of this machine"  # always the same: its log has the driver's reason


def _nvidia(inventory: Inventory) -> Iterator[tuple[str, Seen]]:
    lost = inventory.lost
    nodes = {card.id: frozenset(card.nodes) for card in inventory.stock(NVIDIA).cards}
    for gpu in inventory.gpus:
        names = frozenset({str(gpu.index), gpu.pci_bus_id})
        yield gpu.uuid, Seen(nodes=nodes.get(gpu.uuid, frozenset()), names=names, problem=lost.get(gpu.uuid, ""))
        for device in gpu.mig:
            names = frozenset({f"{gpu.index}:{device.index}"})
            yield device.uuid, Seen(names=names, parent=gpu.uuid, problem=lost.get(device.uuid, ""))


def _others(kind: DeviceClass, inventory: Inventory) -> Iterator[tuple[str, Seen]]:
    for card in inventory.stock(kind).cards:
        names = frozenset(filter(None, (str(card.number), card.id, card.pci)))
        yield card_id(kind, card), Seen(nodes=frozenset(card.nodes), names=names)
