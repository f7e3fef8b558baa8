"""Notes about NVIDIA's configuration: settings without effect, or with another one than their names suggest."""

from collections.abc import Iterator
from difflib import get_close_matches

from criproxy.deviceplugin.nvidia.allocation import CDI_VENDOR, MAX_CLIENTS, MAX_CLIENTS_BEFORE
from criproxy.deviceplugin.nvidia.options import GPU_RESOURCE, PluginConfig, SharedResources
from criproxy.devices.classes.mig_profiles import MIG_RESOURCES
from criproxy.devices.classes.offers import SharedCards
from criproxy.devices.plugin.plan import PluginPlan

_CLOSE = 0.8
"""All resources have the same domain, so that most names are somewhat similar."""
_FOR_CDI = {"nvidia_ctk_path": "nvidiaCTKPath", "container_driver_root": "containerDriverRoot"}


def notes(config: PluginConfig, plan: PluginPlan) -> Iterator[str]:
    """Yield a sentence for each setting that may not be meant as it stands."""
    if config.sharing.mps and config.sharing.time_slicing:
        yield "sharing.timeSlicing has no effect beside sharing.mps, which takes precedence"
    names = [GPU_RESOURCE, *_pattern_names(config)]
    without_cards = _without_cards(config, names)
    for entry in without_cards:
        near = get_close_matches(entry.name, names, n=1, cutoff=_CLOSE)
        meant = f"; did you mean {near[0]}?" if near else ""
        yield f"sharing: no card is offered as {entry.name}, so this entry shares nothing{meant}"
    if plan.nvidia is None:
        return
    kind, nowhere = plan.nvidia.kind, {each.target for each in without_cards}
    for name in named_resources(config):
        if not kind.serves(name) and name not in nowhere:
            yield f"{name} is not among resources of the class {kind.name!r}: add it there, or its pods see no card"
    yield from _without_effect(config)


def named_resources(config: PluginConfig) -> list[str]:
    """The resources that a file names for cards, each once."""
    return list(dict.fromkeys((*_pattern_names(config), *(each.target for each in config.sharing.entries))))


def _pattern_names(config: PluginConfig) -> list[str]:
    return [each.name for each in (*config.resources.gpus, *config.resources.mig)]


def _without_cards(config: PluginConfig, names: list[str]) -> list[SharedCards]:
    """The sharing entries for resources that no card can have: none of *names*, nor of a MIG profile."""
    is_mixed = config.flags.mig_strategy == "mixed"
    return [
        each
        for each in config.sharing.entries
        if each.name not in names and not (is_mixed and each.name.startswith(MIG_RESOURCES))
    ]


def _without_effect(config: PluginConfig) -> Iterator[str]:
    if "fail_on_init_error" in config.flags.model_fields_set and config.flags.fail_on_init_error:
        yield (
            "flags.failOnInitError: true does not make criproxy exit while NVML does not work: it keeps running, and "
            "until NVML has answered, it offers no NVIDIA card"
        )
    for field, key in _FOR_CDI.items():
        if field in config.flags.plugin.model_fields_set:
            yield f"flags.plugin.{key} has no effect: criproxy writes no CDI specification"
    if any(strategy.startswith("cdi-") for strategy in config.flags.plugin.device_list_strategy):
        yield (
            "flags.plugin.deviceListStrategy: criproxy writes no CDI specification: nvidia-ctk must write one of the "
            f"kind {CDI_VENDOR}/gpu, with {config.flags.plugin.device_id_strategy} as the names of the devices"
        )
    if config.sharing.mps is not None:
        yield from _mps_notes(config.sharing.mps)


def _mps_notes(shared: SharedResources) -> Iterator[str]:
    for each in shared.resources:
        if each.replicas > MAX_CLIENTS:
            yield f"sharing.mps: {each.name} has {each.replicas} replicas, but GPUs serve at most {MAX_CLIENTS} clients"
        elif each.replicas > MAX_CLIENTS_BEFORE:
            yield (
                f"sharing.mps: {each.name} has {each.replicas} replicas, but GPUs below compute capability 7.5 serve "
                f"at most {MAX_CLIENTS_BEFORE} clients"
            )
