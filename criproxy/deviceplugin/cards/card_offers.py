"""What the machine's cards are offered as: NVIDIA's by NVIDIA's rules, those of other classes by our section."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.resources import ResourceError, empty_parents
from criproxy.deviceplugin.nvidia.resources import offers as nvidia_offers
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Card, card_id
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import PART, Offered, Offers, SelectionError, SharedCards, in_order, share
from criproxy.devices.classes.vgpu_profiles import CardSize
from criproxy.devices.plugin.enforcement import MPS_ROOT, EnforcementBuilder
from criproxy.devices.plugin.plan import Advertised, PluginPlan

Warnings = list[str]
"""Receives sentences; the same one may come again."""
NO_INDEX = -1
"""Index of a card whose number belonged to another card before."""
NO_MIG_DEVICE = "MIG is on, but it has no MIG device"


@dataclass(slots=True)
class Pins:
    """What the numbers and counts in one version of the files meant when it was loaded.

    NVML numbers the GPUs that exist. When one disappears, the next one gets its number, although a container may have
    that one exclusively.
    """

    _numbers: dict[str, dict[str, str]] = field(default_factory=dict)
    """By class and ID: the first number of each card; empty if another card had that number before."""
    _counted: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """By resource and count: the file's names of the cards that were counted."""
    _sizes: dict[str, dict[str, CardSize]] = field(default_factory=dict)
    """By class and ID: the size of each card when it appeared."""

    def entries(
        self, kind: str, entries: Iterable[SharedCards], whole: Offers, now: Mapping[str, str]
    ) -> Iterator[SharedCards]:
        """Yield *entries* with the present names of the cards; records the numbers of new cards.

        Args:
            kind: The name of the class.
            entries: The entries of the file.
            whole: The existing cards, without sharing.
            now: The ID of each card by its present number.
        """
        numbers = _Numbers(self._first_numbers(kind, now), now)
        for entry in entries:
            cards = whole.get(entry.name, {})
            if isinstance(entry.devices, tuple):
                yield replace(entry, devices=tuple(map(numbers.name_now, entry.devices)))
            elif isinstance(entry.devices, int) and (counted := self._count(entry, cards, numbers)):
                yield replace(entry, devices=tuple(map(numbers.name_now, counted)))
            else:
                yield entry

    def sizes(self, kind: str, cards: Sequence[CardSize]) -> list[CardSize]:
        """Return all cards of a class so far for profiles to choose from; cards that are gone keep their places."""
        known = self._sizes.setdefault(kind, {})
        for card in cards:
            is_new = all(card.index != each.index for each in known.values())
            known.setdefault(card.id, card if is_new else replace(card, index=NO_INDEX))
        return list(known.values())

    def _first_numbers(self, kind: str, now: Mapping[str, str]) -> Mapping[str, str]:
        known = self._numbers.setdefault(kind, {})
        taken = set(known.values())
        for number, card in now.items():
            known.setdefault(card, "" if number in taken else number)
        return known

    def _count(self, entry: SharedCards, cards: Mapping[str, Offered], numbers: "_Numbers") -> list[str]:
        """Return the names of the first cards of a count; empty while there are too few, as then all are shared."""
        assert isinstance(entry.devices, int)
        counted = self._counted.setdefault((entry.name, entry.devices), [])
        for card in cards.values():
            name = numbers.first_name(card)
            if len(counted) < entry.devices and name not in counted:
                counted.append(name)
        return counted if len(counted) == entry.devices else []


class _Numbers:
    """The numbers of cards at first and now."""

    def __init__(self, first_of: Mapping[str, str], now: Mapping[str, str]) -> None:
        self._first_of, self._now = first_of, now
        self._cards = {number: card for card, number in first_of.items() if number}
        self._now_of = {card: number for number, card in now.items()}

    def name_now(self, name: str) -> str:
        """Return the present name of the card, or part, that the file calls *name*; its ID if it no longer exists."""
        number, colon, part = name.partition(PART)
        card = self._cards.get(number)
        if card is None:
            # An ID, or a number that no card had at first: not the number of a card that has it only now.
            return f"number {name}" if number in self._now else name
        return f"{self._now_of[card]}{colon}{part}" if card in self._now_of else card

    def first_name(self, card: Offered) -> str:
        """Return the file's name for an existing card or part of one."""
        number, colon, part = card.index.partition(PART)
        first = self._first_of.get(self._now.get(number, ""))
        return f"{first}{colon}{part}" if first else card.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What to serve: the section of our policy file, and the NVIDIA file that it names."""

    plan: PluginPlan
    nvidia: PluginConfig = field(default_factory=PluginConfig)
    """Includes the cards that our own section shares; see `config.nvidia_file`."""

    def makers(self, resource: str) -> EnforcementBuilder:
        """What knows each method by which a quota of *resource*, which a profile offers, can be enforced."""
        return EnforcementBuilder(resource=resource, mps_root=self.nvidia.flags.mps_root or MPS_ROOT)


def nvidia_cards(config: PluginConfig, inventory: Inventory, warnings: Warnings, pins: Pins | None) -> Offers:
    """Return what NVIDIA's cards are offered as.

    Args:
        config: NVIDIA's file.
        inventory: The machine's cards.
        warnings: Receives mistakes that do no harm.
        pins: What numbers meant when the file was loaded; shared cards that do not exist are left out, so that a card
            that breaks does not take all others away. None: all of them must exist, as when NVIDIA's plugin starts.

    Raises:
        ResourceError: The cards and the file contradict each other.
    """
    offers = partial(
        nvidia_offers, inventory.gpus, config, minors=inventory.minors, platform=inventory.platform_for(config)
    )
    entries: Iterable[SharedCards] = config.sharing.entries
    if entries and pins is not None:
        whole, now = offers(shared=()), {str(gpu.index): gpu.uuid for gpu in inventory.gpus}
        entries = existing_entries(pins.entries(NVIDIA.name, entries, whole, now), whole, warnings)
    found = offers(shared=entries)
    for gpu in empty_parents(inventory.gpus):
        if config.flags.mig_strategy != "none":
            warnings.append(f"{gpu.uuid} is not offered: {NO_MIG_DEVICE}")
        elif gpu.is_described:  # else it may have some
            warnings.append(f"{gpu.uuid} is offered whole, but programs cannot use it: {NO_MIG_DEVICE}")
    return found


def class_cards(
    advertised: Advertised, plan: PluginPlan, inventory: Inventory, warnings: Warnings, pins: Pins | None
) -> Offers:
    """Return what the cards of another class are offered as; arguments and errors as for `nvidia_cards`."""
    kind, resource = advertised.kind, advertised.resource
    found = in_order(whole_card(kind, card) for card in inventory.stock(kind).cards)
    whole: Offers = {resource: found} if found else {}
    entries = plan.shared_of(advertised)
    if pins is not None:
        pinned = pins.entries(kind.name, entries, whole, {card.index: card.id for card in found.values()})
        entries = tuple(existing_entries(pinned, whole, warnings))
    try:
        return share(whole, entries)
    except SelectionError as error:
        raise ResourceError(f"{resource} cannot be shared as devices.plugin.sharing requires: {error}") from error


def whole_card(kind: DeviceClass, card: Card) -> Offered:
    """Return how a card of a class other than NVIDIA's is offered."""
    node = card.numa_node if card.numa_node >= 0 else None
    return Offered(id=card_id(kind, card), index=str(card.number), paths=card.nodes, numa_node=node)


def existing_entries(entries: Iterable[SharedCards], whole: Offers, warnings: Warnings) -> Iterator[SharedCards]:
    """Yield *entries* without the cards that do not exist (any more)."""
    for entry in entries:
        there: Mapping[str, Offered] = whole.get(entry.name, {})
        devices = entry.devices
        if isinstance(devices, tuple):
            known = {*there, *(card.index for card in there.values())}
            for name in devices:
                if name not in known:
                    warnings.append(f"{entry.name}: the card {name}, which should be shared, does not exist")
            if left := tuple(name for name in devices if name in known):
                yield replace(entry, devices=left)
        elif isinstance(devices, int) and devices > len(there):
            warnings.append(f"{entry.name}: {devices} cards should be shared, but only {len(there)} exist")
            if there:
                yield replace(entry, devices=len(there))
        else:
            yield entry
