"""vGPUs that are MIG devices, and what remains of the GPUs that have them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.cards.card_offers import WarningList
from criproxy.deviceplugin.cards.inventory import Inventory
from criproxy.deviceplugin.cards.pins import Pins
from criproxy.deviceplugin.nvidia.gpus import Gpu, MigDevice
from criproxy.deviceplugin.nvidia.mig import compute_slices
from criproxy.deviceplugin.nvidia.options import PluginConfig
from criproxy.deviceplugin.nvidia.resources import counted_gpus, mig_part
from criproxy.deviceplugin.vgpu.instances import Instance, assign
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.mig_names import is_whole_instance
from criproxy.devices.classes.offers import Offers
from criproxy.devices.classes.vgpu_profiles import CardSize, Profile
from criproxy.devices.plugin.card_division import choose, matching

_PINNED = f"{NVIDIA.name} with MIG"
"""`Pins` keeps the places of GPUs with MIG under this name: GPUs without MIG are counted separately."""
_UNKNOWN = "which MIG devices NVIDIA's GPUs have, only the driver knows: the device plugin looks for them at startup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The vGPUs of some profiles, and what remains."""

    offers: Offers = field(default_factory=dict)
    """By resource."""
    remaining: Inventory
    """What can be offered in other ways."""
    problems: tuple[str, ...] = ()
    """Contradictions between the profiles and the cards."""


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
