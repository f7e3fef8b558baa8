"""The vGPUs that are MIG devices, and what is left of the GPUs that have them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from criproxy.deviceplugin.inventory import Inventory
from criproxy.deviceplugin.offering import Said
from criproxy.deviceplugin.pins import Pins
from criproxy.devices.builtin import NVIDIA
from criproxy.devices.card_division import choose
from criproxy.devices.instances import Instance, assign
from criproxy.devices.offers import Offers
from criproxy.devices.vgpu_profiles import CardSize, Profile
from criproxy.nvidia.gpus import Gpu, MigDevice
from criproxy.nvidia.mig import compute_slices, is_whole_instance
from criproxy.nvidia.options import PluginConfig
from criproxy.nvidia.resources import mig_part, shown

_PINNED = f"{NVIDIA.name} with MIG"
"""Under this name, `Pins` keeps the places of GPUs with MIG: those without are counted by themselves."""
_UNKNOWN = "which MIG devices NVIDIA's GPUs have, only the driver knows: the device plugin looks for them at startup"
_PENDING = "vGPUs that are MIG devices are not offered before NVML has said which there are"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The vGPUs of some profiles."""

    offers: Offers = field(default_factory=dict)
    """By resource."""
    left: Inventory
    """What can be offered otherwise."""
    problems: tuple[str, ...] = ()
    """What the profiles and the cards contradict each other in."""


def mig_vgpus(
    profiles: Sequence[Profile], config: PluginConfig, inventory: Inventory, said: Said, pins: Pins | None
) -> Parts:
    """The MIG devices that *profiles* take, each as one vGPU.

    A GPU that they choose is not offered whole, which NVIDIA's plugin does under the strategy ``none``: its container
    would have all MIG devices.

    Args:
        profiles: those with MIG.
        config: NVIDIA's file.
        inventory: the machine.
        said: gets what is not known yet.
        pins: which GPUs there were before, if that counts.
    """
    gpus = [gpu for gpu in shown(inventory.gpus) if gpu.mig_enabled]
    sizes = [size_of(gpu) for gpu in gpus]
    cards = sizes if pins is None else pins.sizes(_PINNED, sizes)
    chosen = {card.id for each in profiles for card in choose(cards, each.select)}
    devices = {device.uuid: (gpu, device) for gpu in gpus for device in gpu.mig}
    found = assign(
        cards,
        [
            _instance(card, device, gpu.mig_slices)
            for card, gpu in zip(sizes, gpus, strict=True)
            for device in _whole(gpu)
        ],
        profiles,
        [size_of(gpu) for gpu in shown(inventory.gpus) if not gpu.mig_enabled],
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
        left=replace(inventory, gpus=tuple(_left(inventory.gpus, found.taken, hidden))),
        problems=() if _is_unknown(inventory, chosen, said) else found.problems,
    )


def size_of(gpu: Gpu) -> CardSize:
    """What a GPU has."""
    return CardSize(id=gpu.uuid, index=gpu.index, model=gpu.name, memory_mib=gpu.memory_mib)


def _whole(gpu: Gpu) -> Iterator[MigDevice]:
    """Those that share their memory with no other one."""
    return (device for device in gpu.mig if is_whole_instance(device.profile))


def _instance(card: CardSize, device: MigDevice, slices: int) -> Instance:
    return Instance(
        id=device.uuid,
        card=card,
        profile=device.profile,
        memory_mib=device.memory_mib,
        cores_percent=min(compute_slices(device.profile) * 100 // slices, 100) if slices else 0,
    )


def _left(gpus: Sequence[Gpu], taken: Collection[str], hidden: Collection[str]) -> Iterator[Gpu]:
    for gpu in gpus:
        mig = tuple(device for device in gpu.mig if device.uuid not in taken)
        if gpu.uuid not in hidden and (mig or not gpu.mig):
            yield replace(gpu, mig=mig)


def _is_unknown(inventory: Inventory, chosen: Collection[str], said: Said) -> bool:
    """Whether it is not known which MIG devices there are, so that nothing can be wrong with them."""
    is_asked = inventory.nvml_asked or not chosen
    if inventory.pending:
        said.warn(_PENDING)
    elif not is_asked:
        said.warn(_UNKNOWN)
    return inventory.pending or not is_asked
