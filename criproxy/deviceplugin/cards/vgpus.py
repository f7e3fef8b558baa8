"""The vGPUs of the machine's cards: what profiles cut, and what remains to be offered in other ways."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.cards.card_offers import Configuration, Pins, Warnings, whole_card
from criproxy.deviceplugin.cards.instances import Instance, assign
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.vgpu_files import VgpuFiles
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.resources import ResourceError, counted_gpus, mig_part, whole_gpu
from criproxy.deviceplugin.server.resource import Allocate
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.cards import card_id
from criproxy.devices.classes.mig_profiles import compute_slices, is_whole_instance
from criproxy.devices.classes.offers import Offered, Offers
from criproxy.devices.classes.vgpu_profiles import CardSize, Profile, annotations_of
from criproxy.devices.evidence.device_request import Response, invalid_request
from criproxy.devices.plugin.card_division import choose, cut, matching
from criproxy.devices.plugin.enforcement import EnforcementBuilder, Missing, enforced_by, with_enforcement
from criproxy.devices.plugin.plan import Advertised

_PINNED = f"{NVIDIA.name} with MIG"
"""`Pins` keeps the places of GPUs with MIG under this name: GPUs without MIG are counted separately."""
_UNKNOWN = "which MIG devices NVIDIA's GPUs have, only the driver knows: the device plugin looks for them at startup"
_MEMORY_UNKNOWN = "only the driver knows the memory of NVIDIA's GPUs: the device plugin checks the profiles at startup"


def vgpus_of(
    advertised: Advertised, config: Configuration, inventory: Inventory, warnings: Warnings, pins: Pins | None
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
        found = _cut(advertised, remaining, with_mig if advertised.is_nvidia else [], whole_profiles, warnings, pins)
        parts, problems, remaining = {**parts, **found.offers}, [*problems, *found.problems], found.remaining
    if problems and pins is None:
        raise ResourceError("; ".join(problems))
    warnings.extend(problems)
    return parts, remaining


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The vGPUs of some profiles, and what remains."""

    offers: Offers = field(default_factory=dict)
    """By resource."""
    remaining: Inventory
    """What can be offered in other ways."""
    problems: tuple[str, ...] = ()
    """Contradictions between the profiles and the cards."""


def _cut(
    advertised: Advertised,
    inventory: Inventory,
    with_mig: Sequence[CardSize],
    profiles: Sequence[Profile],
    warnings: Warnings,
    pins: Pins | None,
) -> Parts:
    """Cut the cards of *inventory* into the vGPUs of *profiles*; those *with_mig* cannot be cut."""
    if advertised.is_nvidia:
        gpus = [gpu for gpu in counted_gpus(inventory.gpus) if not gpu.mig_enabled]  # else it is divided already
        sizes, cards = [size_of(gpu) for gpu in gpus], [whole_gpu(gpu) for gpu in gpus]
    else:  # only NVIDIA's driver is asked how much memory a card has
        cards = [whole_card(advertised.kind, card) for card in inventory.stock(advertised.kind).cards]
        sizes = [CardSize(id=each.id, index=int(each.index), model="", memory_mib=0) for each in cards]
    known = sizes if pins is None else pins.sizes(advertised.kind.name, sizes)
    found = cut(known, profiles, with_mig)
    problems = found.problems
    if advertised.is_nvidia and not inventory.nvml_queried:
        problems = tuple(each for each in problems if each not in found.undecided)
        if cards and any(each.memory_mib or each.memory_percent for each in profiles):
            warnings.append(_MEMORY_UNKNOWN)
    by_id = {card.id: card for card in cards}
    offers = {
        profile.resource: {
            each.id: replace(by_id[each.card], id=each.id, vgpu=each)
            for each in found.vgpus[profile.name]
            if each.card in by_id
        }
        for profile in profiles
    }
    remaining = _without(inventory, advertised, by_id.keys() - {*found.whole})
    offers = {resource: parts for resource, parts in offers.items() if parts}
    return Parts(offers=offers, remaining=remaining, problems=problems)


def _without(inventory: Inventory, advertised: Advertised, cards: AbstractSet[str]) -> Inventory:
    if advertised.is_nvidia:
        return replace(inventory, gpus=tuple(gpu for gpu in inventory.gpus if gpu.uuid not in cards))
    kind = advertised.kind
    stock = inventory.stock(kind)
    remaining = replace(stock, cards=tuple(card for card in stock.cards if card_id(kind, card) not in cards))
    return replace(inventory, stocks={**inventory.stocks, kind.name: remaining})


@dataclass(frozen=True, slots=True)
class VgpuAllocator:
    """Answers Allocate for the vGPUs of one profile: a container gets one, with its quota in annotations."""

    profile: Profile
    makers: EnforcementBuilder
    files: VgpuFiles
    offered: Mapping[str, Offered]
    whole: Allocate
    """Answers it for the cards themselves."""

    def allocate(self, ids: Sequence[str]) -> Response:
        """Return what a container gets for its IDs.

        Raises:
            InvalidRequest: The request cannot be served.
        """
        resource = self.profile.resource
        if len(ids) != 1:
            raise invalid_request(resource, f"a container can have one vGPU; found {len(ids)}")
        if ids[0] not in self.offered or (vgpu := self.offered[ids[0]].vgpu) is None:
            raise invalid_request(resource, f"unknown device: {ids[0]}")
        response = self.whole(ids)
        try:
            for folders in filter(None, (self.makers.folders(way, vgpu) for way in self.profile.enforce)):
                self.files.prepare(*folders)
            found = enforced_by(self.profile, vgpu, self.makers, self.files.exists)
        except Missing as error:
            raise invalid_request(resource, str(error)) from error
        except OSError as error:
            raise invalid_request(resource, f"{error.filename}: {error.strerror}") from error
        annotations = {**response.annotations, **annotations_of(vgpu)}
        return with_enforcement(replace(response, annotations=annotations), found)


def mig_vgpus(
    profiles: Sequence[Profile], config: PluginConfig, inventory: Inventory, warnings: Warnings, pins: Pins | None
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
    problems = found.problems
    if not inventory.nvml_queried and any(matching(sizes, each.select) for each in profiles):
        warnings.append(_UNKNOWN)  # so that nothing can be wrong with them
        problems = ()
    return Parts(
        offers={resource: parts for resource, parts in offers.items() if parts},
        remaining=replace(inventory, gpus=tuple(_remaining(inventory.gpus, found.taken, hidden))),
        problems=problems,
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
