"""Builds the resources that are published to the kubelet, each with its allocator."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from uuid import uuid4

from criproxy.deviceplugin.cards.card_offers import Configuration, Pins, Warnings, class_cards, nvidia_cards
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.vgpus import VgpuAllocator, vgpus_of
from criproxy.deviceplugin.nvidia.allocation import Allocator, MpsError, overloaded
from criproxy.deviceplugin.nvidia.gpus import Gpu
from criproxy.deviceplugin.nvidia.options import Sharing
from criproxy.deviceplugin.nvidia.preference import FreeCpus, PairScores, pair_scores, prefer
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.other_ids import domains_of
from criproxy.deviceplugin.server.resource import Allocate, Resource, with_health
from criproxy.devices.classes.cards import Card, Stock, card_id
from criproxy.devices.classes.offers import Offered, Offers
from criproxy.devices.evidence.device_request import chosen, of_class
from criproxy.devices.options.plugin_mistakes import MAX_ID
from criproxy.devices.plugin.plan import Advertised
from criproxy.devices.plugin.preference import Spread
from criproxy.host.nvml import address_of

Unhealthy = Mapping[str, Collection[str]]
"""By class: IDs of cards, MIG devices or single replicas; all replicas of such a card are unhealthy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The published resources, and the warnings about them."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    """By name."""
    warnings: tuple[str, ...] = ()
    """Sentences."""

    @property
    def classes(self) -> dict[str, str]:
        """The name of the class of each resource."""
        return {name: resource.kind for name, resource in self.resources.items()}


def build_resources(
    config: Configuration,
    inventory: Inventory,
    unhealthy: Unhealthy | None = None,
    *,
    strict: bool = False,
    free_cpus: FreeCpus = dict,
    pins: Pins | None = None,
) -> Served:
    """Build the resources to publish.

    Args:
        config: What to serve.
        inventory: The machine's cards.
        unhealthy: The cards that do not work.
        strict: Whether a contradiction between files and machine is an error instead of a warning: for new files.
        free_cpus: Returns the free CPU of NUMA nodes, which decides among otherwise equal cards.
        pins: What numbers in these files meant before; None if the files are new.

    Raises:
        ResourceError: With *strict*: the cards and the files contradict each other.
    """
    warnings, found = list[str](), dict[str, Resource]()
    for advertised in config.plan.advertised:
        name = advertised.kind.name
        kind = _NvidiaBuilder if advertised.is_nvidia else _ClassBuilder
        try:
            builder = kind(config, inventory, advertised, free_cpus)
            cards = builder.offers(warnings, None if strict else pins or Pins())
            if twice := next((each for each in cards if each in found), ""):
                raise ResourceError(f"{twice} is also offered by the class {found[twice].kind!r}: rename one of them")
            bad = {*(unhealthy or {}).get(name, ()), *(inventory.lost if advertised.is_nvidia else ())}
            found |= {each: builder.resource(each, offered, bad) for each, offered in cards.items()}
        except (ResourceError, MpsError) as error:
            if strict:
                raise ResourceError(str(error), name) from error
            warnings.append(f"{name}: {error}")
            continue
        for resource, offered in cards.items():
            if long := next((each for each in offered if len(each) > MAX_ID), ""):  # longer than Kubernetes documents
                warnings.append(f"{resource}: ids such as {long} have more than {MAX_ID} characters")
    return Served(resources=found, warnings=tuple(dict.fromkeys(warnings)))


@dataclass(frozen=True, slots=True)
class _Builder(ABC):
    """Builds the resources of one class."""

    config: Configuration
    inventory: Inventory
    advertised: Advertised
    free_cpus: FreeCpus

    def offers(self, warnings: Warnings, pins: Pins | None) -> Offers:
        """Return what is offered: whole cards, and the vGPUs of cards that are cut.

        A mistake about whole cards does not take the vGPUs away.

        Raises:
            ResourceError, MpsError: Without *pins*, or without vGPUs: the cards and the files contradict each other.
        """
        parts, left = vgpus_of(self.advertised, self.config, self.inventory, warnings, pins)
        try:
            whole = self.whole(left, warnings, pins)
        except (ResourceError, MpsError) as error:
            if pins is None or not parts:
                raise
            warnings.append(f"{self.advertised.kind.name}: only vGPUs are offered: {error}")
            return parts
        return {**whole, **parts}

    @abstractmethod
    def whole(self, inventory: Inventory, warnings: Warnings, pins: Pins | None) -> Offers:
        """Return what the cards of *inventory*, which no profile cuts, are offered as."""

    @abstractmethod
    def allocate(self, resource: str, offered: Mapping[str, Offered], *, is_vgpu: bool) -> Allocate:
        """Return what answers Allocate for a resource; that of vGPUs does not know their quotas."""

    @abstractmethod
    def scores(self) -> PairScores:
        """Return how closely each two cards are linked."""

    @property
    @abstractmethod
    def spread(self) -> Spread:
        """How replicas are distributed over cards."""

    @property
    def stock(self) -> Stock:
        """The cards according to files."""
        return self.inventory.stock(self.advertised.kind)

    def resource(self, name: str, offered: Mapping[str, Offered], unhealthy: Collection[str]) -> Resource:
        """Build one resource."""
        profile = next((each for each in self.config.plan.profiles_of(self.advertised) if each.resource == name), None)
        allocate = self.allocate(name, offered, is_vgpu=profile is not None)
        if profile is not None:
            files, makers = self.inventory.files, self.config.makers(name)
            allocate = VgpuAllocator(profile, makers, files, offered, allocate).allocate
        return Resource(
            name=name,
            kind=self.advertised.kind.name,
            domains=domains_of(self.advertised.kind),
            devices=with_health(offered, unhealthy),
            allocate=allocate,
            preference=partial(prefer, offered, self.spread, cache(self.scores), self.free_cpus),
            may_block=any(each.vgpu for each in offered.values()),
        )

    def only_one(self, resource: str) -> bool:
        """Whether our section gives a container at most one replica of a resource."""
        entries = self.config.plan.shared_of(self.advertised)
        return any(each.only_one for each in entries if each.target == resource)


class _ClassBuilder(_Builder):
    """For a class other than NVIDIA's."""

    def whole(self, inventory: Inventory, warnings: Warnings, pins: Pins | None) -> Offers:
        return class_cards(self.advertised, self.config.plan, inventory, warnings, pins)

    def allocate(self, resource: str, offered: Mapping[str, Offered], *, is_vgpu: bool) -> Allocate:
        only_one = self.only_one(resource)
        return lambda ids: of_class(self.advertised.kind, self.stock, chosen(resource, offered, ids, only_one=only_one))

    def scores(self) -> PairScores:
        kind = self.advertised.kind
        return pair_scores([replace(card, id=card_id(kind, card)) for card in self.stock.cards], {})

    @property
    def spread(self) -> Spread:
        return self.advertised.spread


class _NvidiaBuilder(_Builder):
    """For NVIDIA's class."""

    def offers(self, warnings: Warnings, pins: Pins | None) -> Offers:
        flags, profiles = self.config.nvidia.flags, self.config.plan.profiles_of(self.advertised)
        # The files of the driver are not enough: only NVML knows MIG devices.
        needs_nvml = flags.fail_on_init_error or flags.mig_strategy != "none" or any(each.is_mig for each in profiles)
        if self.inventory.pending and needs_nvml and self.inventory.platform_for(self.config.nvidia) != "tegra":
            warnings.append("NVIDIA's cards are not offered until NVML has answered: parts of them may be in use")
            return {}
        return _Builder.offers(self, warnings, pins)

    def whole(self, inventory: Inventory, warnings: Warnings, pins: Pins | None) -> Offers:
        offers = nvidia_cards(self.config.nvidia, inventory, warnings, pins)
        unable = overloaded(offers, inventory.gpus, self.config.nvidia)
        for card, why in unable.items():
            if pins is None:
                raise MpsError(why)
            warnings.append(f"{card} is not offered: {why}")
        found = dict[str, Mapping[str, Offered]]()
        for name, offered in offers.items():
            if left := {each.id: each for each in offered.values() if each.card not in unable}:
                found[name] = left
                if not self.advertised.kind.serves(name):
                    text = "is not in resources of the class nvidia, so criproxy hides its cards: add it there"
                    warnings.append(f"{name} {text}")
        return found

    def allocate(self, resource: str, offered: Mapping[str, Offered], *, is_vgpu: bool) -> Allocate:
        config = self.config.nvidia
        if is_vgpu:
            config = config.model_copy(update={"sharing": Sharing()})
        only_one = config.sharing.only_one
        # NVIDIA's file has one setting for all resources
        if not is_vgpu and self.config.plan.shared_of(self.advertised):
            only_one = self.only_one(resource)
        return Allocator(
            resource=resource,
            offered=offered,
            config=config,
            only_one=only_one,
            platform=self.inventory.platform_for(config),
            nodes=self.stock.shared,
            imex_channels=tuple(self._imex_channels()),
            new_uuid=uuid4,
        ).allocate

    def _imex_channels(self) -> Iterator[str]:
        imex = self.config.nvidia.imex
        for number in map(str, imex.channel_ids):
            if number in self.inventory.imex_channels:
                yield number
            elif imex.required:
                raise ResourceError(f"the IMEX channel {number}, which imex of NVIDIA's file requires, does not exist")

    def scores(self) -> PairScores:
        known = {card.id: card for card in self.stock.cards}
        cards = [known.get(gpu.uuid) or _card(gpu) for gpu in self.inventory.gpus]
        return pair_scores(cards, self.inventory.peers)

    @property
    def spread(self) -> Spread:
        return self.config.nvidia.flags.plugin.shared_devices_allocation_policy


def _card(gpu: Gpu) -> Card:
    numa_node = -1 if gpu.numa_node is None else gpu.numa_node
    return Card(gpu.minor, id=gpu.uuid, pci=address_of(gpu.pci_bus_id), numa_node=numa_node)
