"""Machines with NVIDIA's cards."""

from dataclasses import replace

from criproxy.deviceplugin.nvidia.gpus import Gpu, MigMinors, mig_minors
from criproxy.deviceplugin.nvidia.options import (
    Flags,
    ListStrategy,
    MigStrategy,
    MpsResources,
    PluginConfig,
    PluginFlags,
    SharedResource,
    SharedResources,
    Sharing,
)
from tests.deviceplugin import hosts

MIG_MINORS = """\
config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi2/access 21
gpu0/gi2/ci0/access 22
gpu3/gi1/access 417
gpu3/gi1/ci1/access 419
"""


def minors() -> MigMinors:
    """Return the numbers of capability nodes."""
    return mig_minors(MIG_MINORS)


def t4(index: int, *, name: str = "Tesla T4", minor: int | None = None, numa_node: int | None = None) -> Gpu:
    """Return ``GPU-0`` and so on."""
    gpu = hosts.t4(index, numa_node)
    return replace(gpu, name=name, minor=index if minor is None else minor, pci_bus_id="")


def a100(index: int, *profiles: str, on: bool = True) -> Gpu:
    """Return an A100 with these MIG devices: ``MIG-0-0`` and so on."""
    mig = tuple(
        replace(hosts.part(place, profile), uuid=f"MIG-{index}-{place}") for place, profile in enumerate(profiles)
    )
    return replace(hosts.a100(index), pci_bus_id="", mig_enabled=on, mig=mig)


def config(
    *entries: SharedResource,
    strategy: MigStrategy = "none",
    mps: bool = False,
    fail: bool = False,
    rename: bool = False,
) -> PluginConfig:
    """Return a file in which *entries* share cards, by time or by MPS."""
    flags = Flags(mig_strategy=strategy, mps_root="/run/nvidia/mps")
    if not entries:
        return PluginConfig(flags=flags)
    if rename:  # as the checks of a file do it
        entries = tuple(each.model_copy(update={"rename": each.rename or f"{each.name}.shared"}) for each in entries)
    shared = (MpsResources if mps else SharedResources).model_construct(
        rename_by_default=rename, fail_requests_greater_than_one=fail, resources=entries
    )
    # Without the checks of a file: some of these contradict each other, which must harm nothing.
    sharing = Sharing().model_copy(update={"mps" if mps else "time_slicing": shared})
    return PluginConfig.model_construct(flags=flags, sharing=sharing)


def passing(
    *strategies: ListStrategy, index: bool = False, specs: bool = False, root: str = "/", prefix: str = "p/"
) -> Flags:
    """Return flags that say how cards are passed."""
    plugin = PluginFlags(
        device_list_strategy=strategies,
        device_id_strategy="index" if index else "uuid",
        pass_device_specs=specs,
        cdi_annotation_prefix=prefix,
    )
    return Flags(plugin=plugin, nvidia_dev_root=root, mps_root="/run/nvidia/mps/")
