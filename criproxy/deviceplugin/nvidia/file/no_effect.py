"""Settings of a configuration that have no effect in criproxy, or another effect than their names suggest."""

from collections.abc import Collection, Iterator

from criproxy.deviceplugin.nvidia.allocation import CDI_VENDOR
from criproxy.deviceplugin.nvidia.mps import MAX_CLIENTS, MAX_CLIENTS_BEFORE
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResources

_FOR_CDI = ("cdi-feature-flags", "flags.plugin.nvidiaCTKPath", "flags.plugin.containerDriverRoot")


def without_effect(config: PluginConfig, set_keys: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each such setting.

    Args:
        config: The resulting configuration.
        set_keys: The keys that file, flags and variables set; all others have their defaults.
    """
    if "flags.failOnInitError" in set_keys and config.flags.fail_on_init_error:
        yield (
            "flags.failOnInitError: true does not make criproxy exit while NVML does not work: it keeps running, and "
            "until NVML has answered, it offers no NVIDIA card"
        )
    yield from (f"{key} has no effect: criproxy writes no CDI specification" for key in _FOR_CDI if key in set_keys)
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
