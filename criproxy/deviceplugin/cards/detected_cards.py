"""The existing cards, whole ones and MIG devices, by class and ID: the input for their health."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import card_id
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.devices.plugin.published import NOT_YET

CardKey = tuple[str, str]
"""The name of a class, and the ID of a card as the kubelet has it, without the number of a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedCard:
    """A card that exists."""

    nodes: frozenset[str] = frozenset()
    """Its own device nodes that exist."""
    names: frozenset[str] = frozenset()
    """Its other names."""
    parent: str = ""
    """The ID of the card to which a part belongs; empty for a whole card."""
    problem: str = ""
    """Why the driver can no longer describe it; empty if it can, or has not been queried."""
    queried_s: float | None = None
    """When the driver was last asked about it and answered, on the monotonic clock; None: it cannot be asked."""


def names_of(cards: Mapping[CardKey, DetectedCard]) -> Mapping[str, Mapping[str, str]]:
    """Return, by class, the ID of each card by all its names, including the ID itself."""
    found: dict[str, dict[str, str]] = {}
    for (kind, card), seen in cards.items():
        found.setdefault(kind, {}).update(dict.fromkeys((*seen.names, *seen.nodes), card))
    for kind, card in cards:
        found[kind][card] = card
    return found


def cards_of(plan: PluginPlan, inventory: Inventory) -> Mapping[CardKey, DetectedCard]:
    """Return all cards of the advertised classes."""
    found: dict[CardKey, DetectedCard] = {}
    for advertised in plan.advertised:
        kind = advertised.kind
        cards = _nvidia(inventory) if advertised.is_nvidia else _others(kind, inventory)
        found.update({(kind.name, card): seen for card, seen in cards})
    return found


def nvml_problem(inventory: Inventory) -> str:
    """Return why NVML cannot be queried about NVIDIA's cards; empty if it can, or if the machine has no such card."""
    if inventory.driver_version and inventory.gpus:
        return ""
    if NVIDIA.name not in inventory.stocks or NOT_YET in inventory.problems:
        return "it is not known yet which NVIDIA cards exist"
    if not inventory.gpus and not inventory.stock(NVIDIA).cards:
        return ""
    return "NVML does not list the NVIDIA cards of this machine"  # a constant text: another log line has the reason


def _nvidia(inventory: Inventory) -> Iterator[tuple[str, DetectedCard]]:
    nodes = {card.id: frozenset(card.nodes) for card in inventory.stock(NVIDIA).cards}

    def detected(uuid: str, *names: str, parent: str = "") -> tuple[str, DetectedCard]:
        return uuid, DetectedCard(
            nodes=nodes.get(uuid, frozenset()),
            names=frozenset(names),
            parent=parent,
            problem=inventory.lost.get(uuid, ""),
            queried_s=inventory.answered_s,
        )

    for gpu in inventory.gpus:
        yield detected(gpu.uuid, str(gpu.index), gpu.pci_bus_id)
        for device in gpu.mig:
            yield detected(device.uuid, f"{gpu.index}:{device.index}", parent=gpu.uuid)


def _others(kind: DeviceClass, inventory: Inventory) -> Iterator[tuple[str, DetectedCard]]:
    for card in inventory.stock(kind).cards:
        names = frozenset(filter(None, (str(card.number), card.id, card.pci)))
        yield card_id(kind, card), DetectedCard(nodes=frozenset(card.nodes), names=names)
