"""The vGPUs of the machine's cards: what profiles cut, and what remains to be offered in other ways."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import join
from typing import Protocol

from criproxy.deviceplugin.cards.card_offers import Configuration, WarningList
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.pins import Pins
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from criproxy.deviceplugin.nvidia.mig import compute_slices
from criproxy.deviceplugin.nvidia.nodes import gpu_paths
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.resources import ResourceError, counted_gpus, mig_part
from criproxy.deviceplugin.server.resource import Allocator
from criproxy.deviceplugin.vgpu.instances import Instance, assign
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import card_id
from criproxy.devices.classes.mig_names import is_whole_instance
from criproxy.devices.classes.offers import Offered, Offers
from criproxy.devices.classes.vgpu_profiles import CardSize, Profile, Vgpu, annotations_of
from criproxy.devices.evidence.allocation import InvalidRequest, Response
from criproxy.devices.plugin.card_division import choose, cut, matching
from criproxy.devices.plugin.enforcement import EnforcementBuilder, Missing, enforced_by, with_enforcement
from criproxy.devices.plugin.plan import Advertised

_PINNED = f"{NVIDIA.name} with MIG"
"""`Pins` keeps the places of GPUs with MIG under this name: GPUs without MIG are counted separately."""
_UNKNOWN = "which MIG devices NVIDIA's GPUs have, only the driver knows: the device plugin looks for them at startup"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The vGPUs of some profiles, and what remains."""

    offers: Offers = field(default_factory=dict)
    """By resource."""
    remaining: Inventory
    """What can be offered in other ways."""
    problems: tuple[str, ...] = ()
    """Contradictions between the profiles and the cards."""


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


def mig_vgpus(
    profiles: Sequence[Profile], config: PluginConfig, inventory: Inventory, warnings: WarningList, pins: Pins | None
) -> Parts:
    """Return the MIG devices that *profiles* select, each as one vGPU.

    A selected GPU is not offered whole, as NVIDIA's plugin does with the strategy ``none``: its container would get all
    MIG devices.

    Args:
        profiles: The profiles with MIG.
        config: NVIDIA's file.
        inventory: The machine's cards.
        warnings: Receives what is not known yet.
        pins: The GPUs that existed before; None if those do not count.
    """
    gpus = [gpu for gpu in counted_gpus(inventory.gpus) if gpu.mig_enabled]
    sizes = [size_of(gpu) for gpu in gpus]
    cards = sizes if pins is None else pins.sizes(_PINNED, sizes)
    chosen = {card.id for each in profiles for card in choose(cards, each.select)} & {gpu.uuid for gpu in gpus}
    devices = {device.uuid: (gpu, device) for gpu in gpus for device in gpu.mig}
    instances = [_instance(gpu, device) for gpu, device in devices.values()]
    found = assign(
        cards,
        [each for each in instances if is_whole_instance(each.profile)],
        profiles,
        [size_of(gpu) for gpu in counted_gpus(inventory.gpus) if not gpu.mig_enabled],
        [each for each in instances if not is_whole_instance(each.profile)],
    )
    offers = {
        each.resource: {
            vgpu.id: replace(mig_part(*devices[vgpu.card], inventory.minors), id=vgpu.id, vgpu=vgpu)
            for vgpu in found.vgpus[each.name]
        }
        for each in profiles
    }
    hidden = chosen if config.flags.mig_strategy == "none" else ()
    return Parts(
        offers={resource: parts for resource, parts in offers.items() if parts},
        remaining=replace(inventory, gpus=tuple(_remaining(inventory.gpus, found.taken, hidden))),
        problems=() if _is_unknown(inventory, _matching(gpus, profiles), warnings) else found.problems,
    )


def size_of(gpu: Gpu) -> CardSize:
    """Return the properties of a GPU that profiles use."""
    return CardSize(id=gpu.uuid, index=gpu.index, model=gpu.name, memory_mib=gpu.memory_mib)


def _instance(gpu: Gpu, device: MigDevice) -> Instance:
    slices = gpu.mig_slices
    return Instance(
        id=device.uuid,
        card=size_of(gpu),
        profile=device.profile,
        memory_mib=device.memory_mib,
        cores_percent=min(compute_slices(device.profile) * 100 // slices, 100) if slices else 0,
    )


def _remaining(gpus: Sequence[Gpu], taken: Collection[str], hidden: Collection[str]) -> Iterator[Gpu]:
    for gpu in gpus:
        mig = tuple(device for device in gpu.mig if device.uuid not in taken)
        if gpu.uuid not in hidden and (mig or not gpu.mig):
            yield replace(gpu, mig=mig)


def _matching(gpus: Sequence[Gpu], profiles: Sequence[Profile]) -> list[Gpu]:
    """Return the GPUs that any of the profiles may select."""
    found = {card.id for each in profiles for card in matching([size_of(gpu) for gpu in gpus], each.select)}
    return [gpu for gpu in gpus if gpu.uuid in found]


def _is_unknown(inventory: Inventory, gpus: Sequence[Gpu], warnings: WarningList) -> bool:
    """Whether the MIG devices of *gpus* are unknown, so that nothing can be wrong with them."""
    if inventory.nvml_queried or not gpus:
        return False
    warnings.add(_UNKNOWN)
    return True
