"""Loads NVIDIA's whole configuration: flags override variables, the file and defaults; then validates it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from criproxy.deviceplugin.nvidia.file.command_line import set_values
from criproxy.deviceplugin.nvidia.file.flags import FLAGS, Program
from criproxy.deviceplugin.nvidia.file.syntax import FileContent, read_file
from criproxy.deviceplugin.nvidia.file.validation import validate
from criproxy.deviceplugin.nvidia.go.config_error import PluginConfigError
from criproxy.deviceplugin.nvidia.go.durations import INFINITE
from criproxy.deviceplugin.nvidia.options import Flags, GfdFlags, Imex, MigStrategy, PluginConfig, PluginFlags

CONFIG_FILE = "config-file"


def load(
    text: str | None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    program: Program = "plugin",
    has_nvml: bool = True,
    read: Callable[[str], str] | None = None,
) -> PluginConfig:
    """Return the configuration of *program* from the *text* of its file, its arguments and its environment.

    If *text* is None, *read* reads the file that a flag or a variable names, if any. *has_nvml* is whether this machine
    has the NVML library.

    Raises:
        PluginConfigError: The configuration is invalid.
    """
    file, values = loaded_values(text, args, env, program=program, read=read)
    config = PluginConfig(
        flags=_flags(values),
        gpu_resources=file.gpu_resources,
        mig_resources=file.mig_resources,
        sharing=file.sharing,
        imex=Imex(channel_ids=values.get("imex.channelIDs", ()), required=values.get("imex.required", False)),
    )
    validate(config, program=program, has_nvml=has_nvml)
    return config


def loaded_values(
    text: str | None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    program: Program = "plugin",
    read: Callable[[str], str] | None = None,
) -> tuple[FileContent, dict[str, Any]]:
    """Return the content of the file, and the values of all flags by the keys of the file; without those not set."""
    given = set_values(args, env or {}, program)
    name = given.pop(CONFIG_FILE, "")
    if text is None and name and read is not None:
        text = _read(read, name)
    file = read_file(text) if text is not None else FileContent()
    defaults = {flag.key: flag.default for flag in FLAGS[program] if flag.default is not None and flag.key}
    values = defaults | dict(file.flags) | given
    values.pop(CONFIG_FILE, None)
    if not values.get("flags.nvidiaDevRoot"):
        values.pop("flags.nvidiaDevRoot", None)
        if "flags.nvidiaDriverRoot" in values:
            values["flags.nvidiaDevRoot"] = values["flags.nvidiaDriverRoot"]
    return file, values


def _read(read: Callable[[str], str], name: str) -> str:
    try:
        return read(name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PluginConfigError(f"error opening config file: open {name}: {reason}", mistake_class="file") from None
    except UnicodeDecodeError as error:
        raise PluginConfigError(
            f"{name} is not UTF-8 text (byte {error.start})", mistake_class="syntax", advice="store it as UTF-8"
        ) from None


def _flags(values: Mapping[str, Any]) -> Flags:
    plain = Flags()
    return Flags(
        mig_strategy=cast("MigStrategy", values.get("flags.migStrategy", plain.mig_strategy)),
        fail_on_init_error=values.get("flags.failOnInitError", plain.fail_on_init_error),
        mps_root=values.get("flags.mpsRoot", plain.mps_root),
        nvidia_driver_root=values.get("flags.nvidiaDriverRoot", plain.nvidia_driver_root),
        nvidia_dev_root=values.get("flags.nvidiaDevRoot", plain.nvidia_dev_root),
        gdrcopy_enabled=values.get("flags.gdrcopyEnabled", plain.gdrcopy_enabled),
        gds_enabled=values.get("flags.gdsEnabled", plain.gds_enabled),
        mofed_enabled=values.get("flags.mofedEnabled", plain.mofed_enabled),
        use_node_feature_api=values.get("flags.useNodeFeatureAPI"),
        device_discovery_strategy=values.get("flags.deviceDiscoveryStrategy", plain.device_discovery_strategy),
        plugin=_plugin_flags(values),
        gfd=_gfd_flags(values),
    )


def _plugin_flags(values: Mapping[str, Any]) -> PluginFlags:
    plain = PluginFlags()
    section = "flags.plugin"
    return PluginFlags(
        pass_device_specs=values.get(f"{section}.passDeviceSpecs", plain.pass_device_specs),
        device_list_strategy=values.get(f"{section}.deviceListStrategy", plain.device_list_strategy),
        device_id_strategy=values.get(f"{section}.deviceIDStrategy", plain.device_id_strategy),
        cdi_annotation_prefix=values.get(f"{section}.cdiAnnotationPrefix", plain.cdi_annotation_prefix),
        nvidia_ctk_path=values.get(f"{section}.nvidiaCTKPath", plain.nvidia_ctk_path),
        container_driver_root=values.get(f"{section}.containerDriverRoot", plain.container_driver_root),
        shared_devices_allocation_policy=values.get(
            f"{section}.sharedDevicesAllocationPolicy", plain.shared_devices_allocation_policy
        ),
    )


def _gfd_flags(values: Mapping[str, Any]) -> GfdFlags:
    plain = GfdFlags()
    section = "flags.gfd"
    sleep = values.get(f"{section}.sleepInterval", plain.sleep_interval_ns)
    return GfdFlags(
        oneshot=values.get(f"{section}.oneshot", plain.oneshot),
        no_timestamp=values.get(f"{section}.noTimestamp", plain.no_timestamp),
        sleep_interval_ns=None if sleep == INFINITE else sleep,
        output_file=values.get(f"{section}.outputFile", plain.output_file),
        machine_type_file=values.get(f"{section}.machineTypeFile", plain.machine_type_file),
    )
