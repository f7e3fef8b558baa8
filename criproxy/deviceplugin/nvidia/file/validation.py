"""Checks values against each other, in the order and with the messages of NVIDIA's plugin and feature discovery."""

from criproxy.deviceplugin.nvidia.file.flags import Program
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.options import PluginConfig

LIST_STRATEGIES = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
ID_STRATEGIES = ("uuid", "index")
POLICIES = ("distributed", "packed")
MIG_STRATEGIES = ("none", "single", "mixed")
DISCOVERY_STRATEGIES = {"plugin": ("auto", "nvml", "tegra"), "gfd": ("auto", "nvml", "tegra", "vfio")}


def validate(config: PluginConfig, *, program: Program = "plugin", has_nvml: bool = True) -> None:
    """Check *config* as *program* does before it starts.

    Raises:
        PluginConfigError: With the stage ``validate``.
    """
    if program == "plugin":
        _check_plugin(config, has_nvml)
    discovery = config.flags.device_discovery_strategy
    if discovery not in DISCOVERY_STRATEGIES[program]:
        raise _error(f"invalid --device-discovery-strategy option {discovery}", one_of=DISCOVERY_STRATEGIES[program])
    if program == "plugin":
        _check_mig_and_imex(config)


def _check_plugin(config: PluginConfig, has_nvml: bool) -> None:
    flags = config.flags.plugin
    for strategy in flags.device_list_strategy:
        if strategy not in LIST_STRATEGIES:
            raise _error(f"invalid --device-list-strategy option: invalid strategy: {strategy}", one_of=LIST_STRATEGIES)
    if not has_nvml and any(strategy.startswith("cdi-") for strategy in flags.device_list_strategy):
        raise _error("CDI --device-list-strategy options are only supported on NVML-based systems")
    if flags.device_id_strategy not in ID_STRATEGIES:
        raise _error(f"invalid --device-id-strategy option: {flags.device_id_strategy}", one_of=ID_STRATEGIES)
    policy = flags.shared_devices_allocation_policy
    if policy not in POLICIES:
        raise _error(f"invalid --shared-devices-allocation-policy option: {policy}", one_of=POLICIES)
    if config.sharing.strategy == "mps":
        _check_mps(config)


def _check_mps(config: PluginConfig) -> None:
    if config.flags.mig_strategy == "mixed":
        raise _error("using --mig-strategy=mixed is not supported with MPS", "use another strategy, or timeSlicing")
    if not config.flags.mps_root:
        raise _error("using MPS requires --mps-root to be specified", "flags.mpsRoot is usually /run/nvidia/mps")


def _check_mig_and_imex(config: PluginConfig) -> None:
    if config.flags.mig_strategy not in MIG_STRATEGIES:
        raise _error(f"unknown MIG strategy: {config.flags.mig_strategy}", one_of=MIG_STRATEGIES)
    channels = config.imex.channel_ids
    if channels not in ((), (0,)):
        found = " ".join(map(str, channels))
        raise _error(f"invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found [{found}]")


def _error(text: str, advice: str = "", one_of: tuple[str, ...] = ()) -> PluginConfigError:
    choice = f"it can be {', '.join(one_of[:-1])} or {one_of[-1]}" if one_of else ""
    return PluginConfigError(text, stage="validate", advice=advice or choice)
