"""Builds the resources that are published to the kubelet, each with its allocator."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from uuid import uuid4

from criproxy.deviceplugin.cards.card_offers import (
    Configuration,
    WarningList,
    class_cards,
    nvidia_cards,
    platform_for,
    warn_about_ids,
)
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.pins import Pins
from criproxy.deviceplugin.nvidia import allocation
from criproxy.deviceplugin.nvidia.mps import MpsError, overloaded
from criproxy.deviceplugin.nvidia.options import PluginConfig, Sharing
from criproxy.deviceplugin.nvidia.preference import PairScores, pair_scores
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.other_ids import domains_of
from criproxy.deviceplugin.server.allocators import (
    ClassAllocator,
    EvidenceAllocator,
    FreeCpus,
    LinkPreference,
)
from criproxy.deviceplugin.server.resource import Allocator, Resource, devices_of
from criproxy.deviceplugin.vgpu.vgpus import VgpuAllocator, vgpus_of
from criproxy.devices.classes.cards import Card, Stock, card_id
from criproxy.devices.classes.offers import Offered, Offers
from criproxy.devices.plugin.plan import Advertised
from criproxy.devices.plugin.preference import Spread
from criproxy.host.devices.nvml import address_of

Unhealthy = Mapping[str, Collection[str]]
"""By class: IDs of cards, MIG devices or single replicas; all replicas of such a card are unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The published resources, and the warnings about them."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    """By name."""
    offers: Offers = field(default_factory=dict)
    """The same IDs with their cards, indexes and nodes: for labels and for `criproxy devices`."""
    classes: Mapping[str, str] = field(default_factory=dict)
    """The name of the class of each resource."""
    warnings: tuple[str, ...] = ()
    """Sentences."""


def build_resources(
    config: Configuration,
    inventory: Inventory,
    unhealthy: Unhealthy | None = None,
    *,
    strict: bool = False,
    free_cpus: FreeCpus = dict,
    new_uuid: Callable[[], str] = lambda: str(uuid4()),
    pins: Pins | None = None,
) -> Served:
    """Build the resources to publish.

    Args:
        config: What to serve.
        inventory: The machine's cards.
        unhealthy: The cards that do not work.
        strict: Whether a contradiction between files and machine is an error instead of a warning: for new files.
        free_cpus: Returns the free CPU of NUMA nodes, which decides among otherwise equal cards.
        new_uuid: Makes keys of annotations unique.
        pins: What numbers in these files meant before; None if the files are new.

    Raises:
        ResourceError: With *strict*: the cards and the files contradict each other.
    """
    warnings, found, classes = WarningList(), dict[str, Resource](), dict[str, str]()
    offers = dict[str, Mapping[str, Offered]]()
    for advertised in config.plan.advertised:
        name = advertised.kind.name
        kind = _NvidiaBuilder if advertised.is_nvidia else _ClassBuilder
        try:
            builder = kind(config, inventory, advertised, free_cpus, new_uuid)
            builders = builder.builders(warnings, None if strict else pins or Pins())
            cards = {each: offered for each, (_, offered) in builders.items()}
            _check_unique(cards, classes)
            bad = {*(unhealthy or {}).get(name, ()), *(inventory.lost if advertised.is_nvidia else ())}
            found |= {each: part.resource(each, offered, bad) for each, (part, offered) in builders.items()}
        except (ResourceError, MpsError) as error:
            if strict:
                raise ResourceError(str(error), name) from error
            warnings.add(f"{name}: {error}")
            continue
        warn_about_ids(cards, warnings)
        offers |= cards
        classes |= dict.fromkeys(cards, name)
    return Served(resources=found, offers=offers, classes=classes, warnings=tuple(warnings.texts))


def _without(offers: Offers, unable: Mapping[str, str], warnings: WarningList, *, strict: bool) -> Offers:
    """Return *offers* without the cards that are *unable* to serve the required number of MPS clients.

    Raises:
        MpsError: With *strict*: there is such a card.
    """
    for card, why in unable.items():
        if strict:
            raise MpsError(why)
        warnings.add(f"{card} is not offered: {why}")
    left = {
        resource: {name: each for name, each in offered.items() if each.card not in unable}
        for resource, offered in offers.items()
    }
    return {resource: offered for resource, offered in left.items() if offered}


def _check_unique(cards: Offers, classes: Mapping[str, str]) -> None:
    if twice := next((name for name in cards if name in classes), ""):
        raise ResourceError(f"{twice} is also offered by the class {classes[twice]!r}: rename one of them")


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the resources of one class."""

    config: Configuration
    inventory: Inventory
    advertised: Advertised
    free_cpus: FreeCpus
    new_uuid: Callable[[], str]

    def builders(self, warnings: WarningList, pins: Pins | None) -> dict[str, tuple["_Builder", Mapping[str, Offered]]]:
        """Return, by resource, its builder and what is offered: whole cards, and the vGPUs of cards that are cut."""
        parts, left = vgpus_of(self.advertised, self.config, self.inventory, warnings, pins)
        whole = replace(self, inventory=left)
        found = {name: (whole, offered) for name, offered in whole.rest(parts, warnings, pins).items()}
        return {**found, **{name: (self, offered) for name, offered in parts.items()}}

    def rest(self, parts: Offers, warnings: WarningList, pins: Pins | None) -> Offers:
        """Return what the cards are offered as in addition to the vGPUs *parts*.

        A mistake about these cards does not take the vGPUs away.

        Raises:
            ResourceError, MpsError: Without *pins*, or without vGPUs: the cards and the files contradict each other.
        """
        try:
            return self.cards(warnings, pins)
        except (ResourceError, MpsError) as error:
            if pins is None or not parts:
                raise
            warnings.add(f"{self.advertised.kind.name}: only vGPUs are offered: {error}")
            return {}

    def cards(self, warnings: WarningList, pins: Pins | None) -> Offers:
        """Return what the cards are offered as."""
        raise NotImplementedError

    def allocator(self, resource: str, offered: Mapping[str, Offered]) -> Allocator:
        """Return the allocator of a resource."""
        raise NotImplementedError

    def scores(self) -> PairScores:
        """Return how closely each two cards are linked."""
        raise NotImplementedError

    @property
    def spread(self) -> Spread:
        """How replicas are distributed over cards."""
        raise NotImplementedError

    def resource(self, name: str, offered: Mapping[str, Offered], unhealthy: Collection[str]) -> Resource:
        """Build one resource."""
        prefer = LinkPreference(
            resource=name, offered=offered, spread=self.spread, scores=cache(self.scores), free_cpus=self.free_cpus
        )
        return Resource(
            name=name,
            kind=self.advertised.kind.name,
            domains=domains_of(self.advertised.kind),
            devices=devices_of(offered, unhealthy),
            allocator=EvidenceAllocator(name, self._allocator(name, offered)),
            preference=prefer,
            may_block=any(each.vgpu for each in offered.values()),
        )

    def _allocator(self, name: str, offered: Mapping[str, Offered]) -> Allocator:
        profile = next((each for each in self.config.plan.profiles_of(self.advertised) if each.resource == name), None)
        if profile is None:
            return self.allocator(name, offered)
        return VgpuAllocator(
            profile=profile,
            makers=self.config.makers(name),
            host=self.inventory.files,
            offered=offered,
            whole=self.unshared().allocator(name, offered),
        )

    def unshared(self) -> "_Builder":
        """Return a builder for the same cards without sharing."""
        return self

    @property
    def stock(self) -> Stock:
        """The cards according to files."""
        return self.inventory.stock(self.advertised.kind)


class _ClassBuilder(_Builder):
    """For a class other than NVIDIA's."""

    __slots__ = ()

    def cards(self, warnings: WarningList, pins: Pins | None) -> Offers:
        return class_cards(self.advertised, self.config.plan, self.inventory, warnings, pins)

    def allocator(self, resource: str, offered: Mapping[str, Offered]) -> Allocator:
        entries = self.config.plan.shared_of(self.advertised)
        only_one = any(each.only_one for each in entries if each.target == resource)
        kind = self.advertised.kind
        return ClassAllocator(resource=resource, kind=kind, stock=self.stock, offered=offered, only_one=only_one)

    def scores(self) -> PairScores:
        kind = self.advertised.kind
        return pair_scores([replace(card, id=card_id(kind, card)) for card in self.stock.cards], {})

    @property
    def spread(self) -> Spread:
        return self.advertised.spread


class _NvidiaBuilder(_Builder):
    """For NVIDIA's class."""

    __slots__ = ()

    def builders(self, warnings: WarningList, pins: Pins | None) -> dict[str, tuple[_Builder, Mapping[str, Offered]]]:
        if self.inventory.pending and self._needs_nvml and platform_for(self.config.nvidia, self.inventory) != "tegra":
            warnings.add("NVIDIA's cards are not offered until NVML has answered: parts of them may be in use")
            return {}
        return _Builder.builders(self, warnings, pins)

    @property
    def _needs_nvml(self) -> bool:
        """Whether the files of the driver are not enough: only NVML knows MIG devices."""
        flags, profiles = self.config.nvidia.flags, self.config.plan.profiles_of(self.advertised)
        return flags.fail_on_init_error or flags.mig_strategy != "none" or any(each.is_mig for each in profiles)

    def unshared(self) -> _Builder:
        config = replace(self.config, nvidia=self.config.nvidia.model_copy(update={"sharing": Sharing()}))
        return replace(self, config=config)

    def cards(self, warnings: WarningList, pins: Pins | None) -> Offers:
        offers = nvidia_cards(self.config.nvidia, self.inventory, warnings, pins)
        if unable := overloaded(offers, self.inventory.gpus, self.config.nvidia):
            offers = _without(offers, unable, warnings, strict=pins is None)
        for name in offers:
            if not self.advertised.kind.serves(name):
                warnings.add(
                    f"{name} is not in resources of the class nvidia, so criproxy hides its cards: add it there"
                )
        return offers

    def allocator(self, resource: str, offered: Mapping[str, Offered]) -> Allocator:
        return allocation.Allocator(
            resource=resource,
            offered=offered,
            config=self._config_for(resource),
            host=allocation.Host(
                platform=platform_for(self.config.nvidia, self.inventory),
                nodes=self.stock.shared,
                imex_channels=tuple(self._imex_channels()),
            ),
            new_uuid=self.new_uuid,
        )

    def _config_for(self, resource: str) -> PluginConfig:
        """Return NVIDIA's file with our section's ``only_one`` for this resource; NVIDIA's has one setting for all."""
        config, entries = self.config.nvidia, self.config.plan.shared_of(self.advertised)
        if not entries or config.sharing.time_slicing is None:
            return config
        only_one = any(each.only_one for each in entries if each.target == resource)
        shared = config.sharing.time_slicing.model_copy(update={"fail_requests_greater_than_one": only_one})
        return config.model_copy(update={"sharing": config.sharing.model_copy(update={"time_slicing": shared})})

    def _imex_channels(self) -> Iterator[str]:
        imex = self.config.nvidia.imex
        for number in map(str, imex.channel_ids):
            if number in self.inventory.imex_channels:
                yield number
            elif imex.required:
                raise ResourceError(f"the IMEX channel {number}, which imex of NVIDIA's file requires, does not exist")

    def scores(self) -> PairScores:
        known = {card.id: card for card in self.stock.cards}
        cards = [
            known.get(gpu.uuid)
            or Card(
                gpu.minor,
                id=gpu.uuid,
                pci=address_of(gpu.pci_bus_id),
                numa_node=-1 if gpu.numa_node is None else gpu.numa_node,
            )
            for gpu in self.inventory.gpus
        ]
        return pair_scores(cards, self.inventory.peers)

    @property
    def spread(self) -> Spread:
        return self.config.nvidia.flags.plugin.shared_devices_allocation_policy
