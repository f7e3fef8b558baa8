"""The resources and IDs under which NVIDIA's cards are offered.

The rules and the texts of errors are those of NVIDIA's device plugin, except that ``resources``, ``rename`` and
``devices`` take effect, which NVIDIA's plugin reads and drops, and that no card is offered both whole and shared.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from re import fullmatch

from criproxy.deviceplugin.nvidia.gpus import WSL_NODE, Gpu, MigDevice, MigMinors, Platform, gpu_paths, mig_paths
from criproxy.deviceplugin.nvidia.options import GPU_RESOURCE, PluginConfig, ResourcePattern
from criproxy.devices.classes.mig_profiles import MIG_NAME, mixed_resource
from criproxy.devices.classes.offers import PART, Offered, Offers, SelectionError, SharedCards, in_order, share

DISPLAYS = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""Cards of workstations that only drive monitors."""
_ANY_GPU = ResourcePattern(pattern="*", name=GPU_RESOURCE)
_WSL_ID = "all"
_TEGRA = Offered(id="tegra", index="0")
"""The one GPU of a Tegra chip, which has no UUID and no nodes for containers."""
_FROM_RESOURCES = "error building device map from config.resources"
_FROM_SHARING = "error updating device map with replicas from replicatedResources config"
_VISITING_MIG = "error visiting devices: error visiting device: error visiting MIG device"


class ResourceError(ValueError):
    """Cards that cannot be offered according to the configuration; the text is that of NVIDIA's plugin."""

    def __init__(self, text: str, kind: str = "") -> None:
        """Create the error with *text* about the class *kind*, if known."""
        super().__init__(text)
        self.kind = kind


def offers(
    gpus: Sequence[Gpu],
    config: PluginConfig,
    *,
    minors: MigMinors | None = None,
    platform: Platform = "nvml",
    shared: Iterable[SharedCards] | None = None,
) -> Offers:
    """Return what the machine's cards are offered as.

    Args:
        gpus: In the order of NVML.
        config: NVIDIA's file.
        minors: Minor numbers of the capability nodes of MIG devices; nodes without a known number are left out.
        platform: How the cards are found.
        shared: The shared cards; None: as in the file.

    Raises:
        ResourceError: The cards and the file contradict each other.
    """
    cards = _unshared(gpus, config, minors or {}, platform)
    try:
        return share(cards, config.sharing.entries if shared is None else shared)
    except SelectionError as error:
        which = f"unable to get IDs of devices to replicate for '{error.resource}' resource"
        raise ResourceError(f"{_FROM_SHARING}: {which}: {error}") from error


def counted_gpus(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the GPUs that count: all except those that only drive monitors."""
    return [gpu for gpu in gpus if gpu.name not in DISPLAYS]


def empty_parents(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return GPUs with MIG that have no MIG device, or none that is known: worth a warning."""
    return [gpu for gpu in counted_gpus(gpus) if gpu.mig_enabled and not gpu.mig]


def matches(pattern: str, name: str) -> bool:
    """Whether *pattern* matches the whole *name*; ``*`` matches anything, and nothing else is special."""
    return _expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _unshared(gpus: Iterable[Gpu], config: PluginConfig, minors: MigMinors, platform: Platform) -> Offers:
    if platform == "tegra":
        return {_gpu_resource(_TEGRA.id, config): {_TEGRA.id: _TEGRA}}
    counted = counted_gpus(gpus)
    strategy = config.flags.mig_strategy
    whole = [gpu for gpu in counted if strategy == "none" or not gpu.mig_enabled]
    found = [(_gpu_resource(gpu.name, config), whole_gpu(gpu, platform)) for gpu in whole]
    if strategy != "none":
        parts = [
            (_mig_resource(device, config), mig_part(gpu, device, minors)) for gpu, device in _mig_devices(counted)
        ]
        if strategy == "single":
            _check_single(counted)
            check_all_divided(counted, parts=bool(parts))
        found += parts
    return _by_resource(found)


def check_all_divided(gpus: Iterable[Gpu], *, parts: bool = True) -> None:
    """Check that with the strategy ``single``, all GPUs have MIG if any MIG device is offered.

    Args:
        gpus: Whether they have MIG is enough to know.
        parts: Whether any MIG device is offered.

    Raises:
        ResourceError: Only some of them have.
    """
    if parts and len({gpu.mig_enabled for gpu in counted_gpus(gpus)}) > 1:
        text = "all devices on the node must be configured with the same migEnabled value"
        raise ResourceError(f"{_FROM_RESOURCES}: {text}")


def _by_resource(found: Iterable[tuple[str, Offered]]) -> Offers:
    resources: dict[str, list[Offered]] = {}
    for resource, offered in found:
        resources.setdefault(resource, []).append(offered)
    return {resource: in_order(offered) for resource, offered in resources.items()}


def _mig_devices(gpus: Iterable[Gpu]) -> Iterator[tuple[Gpu, MigDevice]]:
    return ((gpu, device) for gpu in gpus if gpu.mig_enabled for device in gpu.mig)


def _gpu_resource(name: str, config: PluginConfig) -> str:
    return _first_match((*config.resources.gpus, _ANY_GPU), name) or GPU_RESOURCE


def _mig_resource(device: MigDevice, config: PluginConfig) -> str:
    if named := _first_match(config.resources.mig, device.profile):
        return named
    default = GPU_RESOURCE if config.flags.mig_strategy == "single" else mixed_resource(device.profile)
    if default is None:
        text = f"MIG profile '{device.profile}' does not match any resource patterns"
        raise ResourceError(f"{_FROM_RESOURCES}: error building MIG device map: {_VISITING_MIG}: {text}")
    return default


def _first_match(patterns: Iterable[ResourcePattern], name: str) -> str | None:
    return next((each.name for each in patterns if matches(each.pattern, name)), None)


def _check_single(gpus: Sequence[Gpu]) -> None:
    """Check that all MIG devices are of one kind, and that each GPU with MIG has one."""
    invalid = f"{_FROM_RESOURCES}: invalid MIG configuration"
    if empty := next((gpu for gpu in gpus if gpu.mig_enabled and not gpu.mig), None):
        text = "at least one device with migEnabled=true was not configured correctly: error visiting device"
        raise ResourceError(f"{invalid}: {text}: device {empty.index} has no MIG devices configured")
    if len({_kind_of_mig(device) for _, device in _mig_devices(gpus)}) > 1:
        raise ResourceError(f"{invalid}: {_VISITING_MIG}: more than one MIG device type present on node")


def _kind_of_mig(device: MigDevice) -> tuple[object, ...]:
    """Return the properties that must be equal for all instances with the strategy ``single``.

    The size in a profile's name is relative to the GPU, and therefore less exact than the memory.
    """
    found = fullmatch(MIG_NAME, device.profile)
    slices = (found[1] or found[2], found[2], found[4]) if found else (device.profile,)
    return (*slices, device.memory_mib, *sorted(device.attributes))


def whole_gpu(gpu: Gpu, platform: Platform = "nvml") -> Offered:
    """Return how a GPU is offered under its own ID."""
    if platform == "wsl":  # Windows has one node for all GPUs: containers get all or none
        return Offered(id=_WSL_ID, index=_WSL_ID, paths=(WSL_NODE,))
    return Offered(
        id=gpu.uuid,
        index=str(gpu.index),
        paths=gpu_paths(gpu),
        numa_node=gpu.numa_node,
        related=tuple(device.uuid for device in gpu.mig),
    )


def mig_part(gpu: Gpu, device: MigDevice, minors: MigMinors) -> Offered:
    """Return how a MIG device is offered under its own ID."""
    return Offered(
        id=device.uuid,
        index=f"{gpu.index}{PART}{device.index}",
        paths=mig_paths(gpu, device, minors),
        numa_node=gpu.numa_node,
        related=(gpu.uuid,),
    )
