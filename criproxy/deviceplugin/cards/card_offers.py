"""What the machine's cards are offered as: NVIDIA's by NVIDIA's rules, those of other classes by our section."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.pins import Pins, with_devices
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.nodes import Platform
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResource, Sharing
from criproxy.deviceplugin.nvidia.resources import ResourceError, empty_parents
from criproxy.deviceplugin.nvidia.resources import offers as nvidia_offers
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import Card, card_id
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import Offered, Offers
from criproxy.devices.classes.sharing import SelectionError, in_order, share
from criproxy.devices.options.plugin_mistakes import MAX_ID
from criproxy.devices.plugin.enforcement import MPS_ROOT, EnforcementBuilder
from criproxy.devices.plugin.plan import Advertised, PluginPlan, SharedCards

E = TypeVar("E", bound=SharedCards | SharedResource)
NO_MIG_DEVICE = "MIG is on, but it has no MIG device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What to serve: the section of our policy file, and the NVIDIA file that it names."""

    plan: PluginPlan
    nvidia: PluginConfig = field(default_factory=PluginConfig)
    """Includes the cards that our own section shares; see `config.nvidia_file`."""

    def makers(self, resource: str) -> EnforcementBuilder:
        """What knows each method by which a quota of *resource*, which a profile offers, can be enforced."""
        return EnforcementBuilder(
            resource=resource, hami=self.plan.hami, mps_root=self.nvidia.flags.mps_root or MPS_ROOT
        )


@dataclass(slots=True)
class WarningList:
    """Collects warnings, each one once."""

    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add *text*."""
        if text not in self.texts:
            self.texts.append(text)


def nvidia_cards(config: PluginConfig, inventory: Inventory, warnings: WarningList, pins: Pins | None) -> Offers:
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
    platform = platform_for(config, inventory)
    shared = config.sharing.shared
    if shared is not None and pins is not None:
        whole = nvidia_offers(
            inventory.gpus,
            config.model_copy(update={"sharing": Sharing()}),
            minors=inventory.minors,
            platform=platform,
        )
        now = {str(gpu.index): gpu.uuid for gpu in inventory.gpus}
        entries = pins.entries(NVIDIA.name, shared.resources, whole, now)
        left = shared.model_copy(update={"resources": tuple(existing_entries(entries, whole, warnings))})
        part = "mps" if config.sharing.mps is not None else "time_slicing"
        config = config.model_copy(update={"sharing": config.sharing.model_copy(update={part: left})})
    found = nvidia_offers(inventory.gpus, config, minors=inventory.minors, platform=platform)
    for gpu in empty_parents(inventory.gpus):
        if text := _about_empty(gpu, config):
            warnings.add(text)
    return found


def _about_empty(gpu: Gpu, config: PluginConfig) -> str:
    """Return a warning about a GPU with MIG that has no MIG device; empty if it is offered whole and may have some."""
    if config.flags.mig_strategy != "none":
        return f"{gpu.uuid} is not offered: {NO_MIG_DEVICE}"
    return f"{gpu.uuid} is offered whole, but programs cannot use it: {NO_MIG_DEVICE}" if gpu.is_described else ""


def platform_for(config: PluginConfig, inventory: Inventory) -> Platform:
    """Return how cards are found: according to the file, or to the machine."""
    match config.flags.device_discovery_strategy:
        case "tegra":
            return "tegra"
        case "nvml" if inventory.platform == "tegra":
            return "nvml"
    return inventory.platform


def class_cards(
    advertised: Advertised, plan: PluginPlan, inventory: Inventory, warnings: WarningList, pins: Pins | None
) -> Offers:
    """Return what the cards of another class are offered as; arguments and errors as for `nvidia_cards`."""
    kind, resource = advertised.kind, advertised.resource
    found = in_order(_offered(kind, card) for card in inventory.stock(kind).cards)
    whole: Offers = {resource: found} if found else {}
    entries = plan.shared_of(advertised)
    if pins is not None:
        pinned = pins.entries(kind.name, entries, whole, {card.index: card.id for card in found.values()})
        entries = tuple(existing_entries(pinned, whole, warnings))
    try:
        return share(whole, entries)
    except SelectionError as error:
        raise ResourceError(f"{resource} cannot be shared as devices.plugin.sharing requires: {error}") from error


def _offered(kind: DeviceClass, card: Card) -> Offered:
    node = card.numa_node if card.numa_node >= 0 else None
    return Offered(id=card_id(kind, card), index=str(card.number), paths=card.nodes, numa_node=node)


def existing_entries(entries: Iterable[E], whole: Offers, warnings: WarningList) -> Iterator[E]:
    """Yield *entries* without the cards that do not exist (any more)."""
    for entry in entries:
        there: Mapping[str, Offered] = whole.get(entry.name, {})
        devices = entry.devices
        if isinstance(devices, tuple):
            known = {*there, *(card.index for card in there.values())}
            for name in devices:
                if name not in known:
                    warnings.add(f"{entry.name}: the card {name}, which should be shared, does not exist")
            if left := tuple(name for name in devices if name in known):
                yield with_devices(entry, left)
        elif isinstance(devices, int) and devices > len(there):
            warnings.add(f"{entry.name}: {devices} cards should be shared, but only {len(there)} exist")
            if there:
                yield with_devices(entry, len(there))
        else:
            yield entry


def warn_about_ids(offers: Offers, warnings: WarningList) -> None:
    """Warn about resources with IDs that are longer than Kubernetes documents."""
    for resource, cards in offers.items():
        if long := next((each for each in cards if len(each) > MAX_ID), ""):
            warnings.add(f"{resource}: ids such as {long} have more than {MAX_ID} characters")
