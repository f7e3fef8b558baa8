"""The vGPUs of the machine's cards: what profiles cut, and what remains to be offered in other ways."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import join
from typing import Protocol

from criproxy.deviceplugin.cards.card_offers import Configuration, WarningList
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.pins import Pins
from criproxy.deviceplugin.nvidia.nodes import gpu_paths
from criproxy.deviceplugin.nvidia.resources import ResourceError, counted_gpus
from criproxy.deviceplugin.server.resource import Allocator
from criproxy.deviceplugin.vgpu.mig_vgpus import Parts, mig_vgpus, size_of
from criproxy.devices.classes.cards import card_id
from criproxy.devices.classes.offers import Offered, Offers
from criproxy.devices.classes.vgpu_profiles import CardSize, Profile, Vgpu, annotations_of
from criproxy.devices.evidence.allocation import InvalidRequest, Response
from criproxy.devices.plugin.card_division import cut
from criproxy.devices.plugin.enforcement import EnforcementBuilder, Missing, enforced_by, with_enforcement
from criproxy.devices.plugin.plan import Advertised

_MEMORY_UNKNOWN = "only the driver knows the memory of NVIDIA's GPUs: the device plugin checks the profiles at startup"


def vgpus_of(
    advertised: Advertised, config: Configuration, inventory: Inventory, warnings: WarningList, pins: Pins | None
) -> tuple[Offers, Inventory]:
    """Return the vGPUs of a class by resource, and the *inventory* without the cards and MIG devices behind them.

    A card with a contradiction is not offered at all: offered whole, it would give a container more than its quota.

    Args:
        advertised: The class.
        config: The contents of the files.
        inventory: The machine's cards.
        warnings: Receives contradictions.
        pins: Which cards existed before; None if a contradiction is an error.

    Raises:
        ResourceError: Without *pins*: the profiles and the cards contradict each other.
    """
    profiles = config.plan.profiles_of(advertised)
    parts, problems, remaining = dict[str, Mapping[str, Offered]](), list[str](), inventory
    if mig_profiles := [each for each in profiles if each.is_mig]:
        found = mig_vgpus(mig_profiles, config.nvidia, remaining, warnings, pins)
        parts, problems, remaining = {**found.offers}, [*found.problems], found.remaining
    if whole_profiles := [each for each in profiles if not each.is_mig]:
        with_mig = [size_of(gpu) for gpu in counted_gpus(inventory.gpus) if gpu.mig_enabled]
        cards = _Cards(advertised, remaining, with_mig if advertised.is_nvidia else [])
        found = _cut(cards, whole_profiles, warnings, pins)
        parts, problems, remaining = {**parts, **found.offers}, [*problems, *found.problems], found.remaining
    if problems and pins is None:
        raise ResourceError("; ".join(problems))
    for problem in problems:
        warnings.add(problem)
    return parts, remaining


@dataclass(frozen=True, slots=True)
class _Cards:
    """The cards of a class."""

    advertised: Advertised
    inventory: Inventory
    """Those that may be cut."""
    with_mig: Sequence[CardSize]
    """Those that have MIG, and therefore cannot be cut."""


def _cut(stock: _Cards, profiles: Sequence[Profile], warnings: WarningList, pins: Pins | None) -> Parts:
    """Cut whole cards into the vGPUs of *profiles*."""
    advertised, inventory = stock.advertised, stock.inventory
    cards = _nvidia_cards(inventory) if advertised.is_nvidia else _class_cards(advertised, inventory)
    sizes = [card.size for card in cards]
    known = sizes if pins is None else pins.sizes(advertised.kind.name, sizes)
    found = cut(known, profiles, stock.with_mig)
    problems = found.problems
    if advertised.is_nvidia and not inventory.nvml_queried:
        problems = tuple(each for each in problems if each not in found.undecided)
        if cards and any(each.memory_mib or each.memory_percent for each in profiles):
            warnings.add(_MEMORY_UNKNOWN)
    by_id = {card.size.id: card for card in cards}
    offers = {
        profile.resource: {
            each.id: by_id[each.card].offered(each) for each in found.vgpus[profile.name] if each.card in by_id
        }
        for profile in profiles
    }
    remaining = _without(inventory, advertised, {card.size.id for card in cards} - {*found.whole})
    offers = {resource: parts for resource, parts in offers.items() if parts}
    return Parts(offers=offers, remaining=remaining, problems=problems)


@dataclass(frozen=True, slots=True)
class _Card:
    """A card that may be cut."""

    size: CardSize
    paths: tuple[str, ...]
    numa_node: int | None

    def offered(self, vgpu: Vgpu) -> Offered:
        """Return how one of its vGPUs is offered."""
        return Offered(id=vgpu.id, index=str(self.size.index), paths=self.paths, numa_node=self.numa_node, vgpu=vgpu)


def _nvidia_cards(inventory: Inventory) -> list[_Card]:
    """Return the GPUs without MIG: a GPU with MIG is divided already."""
    return [
        _Card(size_of(gpu), gpu_paths(gpu), gpu.numa_node)
        for gpu in counted_gpus(inventory.gpus)
        if not gpu.mig_enabled
    ]


def _class_cards(advertised: Advertised, inventory: Inventory) -> list[_Card]:
    """Return the cards of a class other than NVIDIA's; their memory is unknown."""
    kind = advertised.kind
    return [
        _Card(
            CardSize(id=card_id(kind, card), index=card.number, model="", memory_mib=0),
            card.nodes,
            card.numa_node if card.numa_node >= 0 else None,
        )
        for card in inventory.stock(kind).cards
    ]


def _without(inventory: Inventory, advertised: Advertised, cards: set[str]) -> Inventory:
    if advertised.is_nvidia:
        return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid not in cards))
    kind = advertised.kind
    stock = inventory.stock(kind)
    remaining = replace(stock, cards=tuple(card for card in stock.cards if card_id(kind, card) not in cards))
    return replace(inventory, stocks={**inventory.stocks, kind.name: remaining})


class VgpuHost(Protocol):
    """The files of the host that vGPUs need; both methods may block."""

    def exists(self, path: str) -> bool:
        """Whether a path exists."""
        ...

    def prepare(self, own: str, shared: str) -> None:
        """Create two directories for containers.

        Args:
            own: The directory of one container; always a new one, since the former container may have written to it.
            shared: The directory of all containers.

        Raises:
            OSError: A directory cannot be created.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuAllocator:
    """Allocator for the vGPUs of one profile: a container gets one, with its quota in annotations."""

    profile: Profile
    makers: EnforcementBuilder
    host: VgpuHost
    offered: Mapping[str, Offered]
    whole: Allocator
    """Allocator for the cards themselves."""

    @property
    def resource(self) -> str:
        """Includes the domain."""
        return self.profile.resource

    def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Response]:
        """Return what each container gets for its IDs.

        Raises:
            InvalidRequest: One of the requests cannot be served; then none is.
        """
        vgpus = list(self._vgpus(requests))
        responses = self.whole.allocate(requests)
        return [self._with_quota(response, vgpu) for response, vgpu in zip(responses, vgpus, strict=True)]

    def _with_quota(self, response: Response, vgpu: Vgpu) -> Response:
        """Return *response* with the quota and its enforcement."""
        try:
            if "hami-core" in self.profile.enforce:
                paths = self.makers.hami
                self.host.prepare(join(paths.containers, vgpu.file_name), paths.lock)
            found = enforced_by(self.profile, vgpu, self.makers, self.host.exists)
        except Missing as error:
            raise self._invalid(str(error)) from error
        except OSError as error:
            raise self._invalid(f"{error.filename}: {error.strerror}") from error
        annotations = {**response.annotations, **annotations_of(vgpu)}
        return with_enforcement(replace(response, annotations=annotations), found)

    def _vgpus(self, requests: Sequence[Sequence[str]]) -> Iterator[Vgpu]:
        for ids in requests:
            if len(ids) != 1:
                raise self._invalid(f"a container can have one vGPU; found {len(ids)}")
            offered = self.offered.get(ids[0])
            if offered is None or offered.vgpu is None:
                raise self._invalid(f"unknown device: {ids[0]}")
            yield offered.vgpu

    def _invalid(self, text: str) -> InvalidRequest:
        return InvalidRequest(f'invalid allocation request for "{self.resource}": invalid request: {text}')
