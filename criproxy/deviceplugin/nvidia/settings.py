"""Flags and environment variables of NVIDIA's programs: they override the file, and a flag overrides a variable.

A variable that is set but empty stands for an empty text, for false, or for a list of one empty text; for numbers and
durations, it counts as not set.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "bool", "texts", "integers", "duration"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its flags and variables."""

    key: str
    """The key of the file; one without a dot is not in the file."""
    flag_names: str
    """The name of the flag and its aliases; empty for a setting of GPU feature discovery, which is no program here."""
    variable_names: str
    """The first of these that is set counts, even if it is empty."""
    kind: Kind = "text"

    @property
    def flags(self) -> list[str]:
        """The name of the flag, followed by its aliases."""
        return self.flag_names.split()

    @property
    def variables(self) -> list[str]:
        """The names of the variable, the most important first."""
        return self.variable_names.split()


_PLUGIN = "flags.plugin"
_GFD = "flags.gfd"
CDI_FEATURES = "cdi-feature-flags"
KUBELET_SOCKET = "kubelet-socket"
SETTINGS = (
    Setting("flags.migStrategy", "mig-strategy", "MIG_STRATEGY"),
    Setting("flags.failOnInitError", "fail-on-init-error", "FAIL_ON_INIT_ERROR", "bool"),
    Setting("flags.nvidiaDriverRoot", "driver-root nvidia-driver-root", "NVIDIA_DRIVER_ROOT"),
    Setting("flags.nvidiaDevRoot", "dev-root nvidia-dev-root", "NVIDIA_DEV_ROOT"),
    Setting(f"{_PLUGIN}.passDeviceSpecs", "pass-device-specs", "PASS_DEVICE_SPECS", "bool"),
    Setting(f"{_PLUGIN}.deviceListStrategy", "device-list-strategy", "DEVICE_LIST_STRATEGY", "texts"),
    Setting(f"{_PLUGIN}.deviceIDStrategy", "device-id-strategy", "DEVICE_ID_STRATEGY"),
    Setting("flags.gdrcopyEnabled", "gdrcopy-enabled", "GDRCOPY_ENABLED", "bool"),
    Setting("flags.gdsEnabled", "gds-enabled", "GDS_ENABLED", "bool"),
    Setting("flags.mofedEnabled", "mofed-enabled", "MOFED_ENABLED", "bool"),
    Setting(KUBELET_SOCKET, "kubelet-socket", "KUBELET_SOCKET"),
    Setting(f"{_PLUGIN}.cdiAnnotationPrefix", "cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX"),
    Setting(f"{_PLUGIN}.nvidiaCTKPath", "nvidia-cdi-hook-path nvidia-ctk-path", "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH"),
    Setting(
        f"{_PLUGIN}.containerDriverRoot",
        "driver-root-ctr-path container-driver-root",
        "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
    ),
    Setting("flags.mpsRoot", "mps-root", "MPS_ROOT"),
    Setting("flags.deviceDiscoveryStrategy", "device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY"),
    Setting("imex.channelIDs", "imex-channel-ids", "IMEX_CHANNEL_IDS", "integers"),
    Setting("imex.required", "imex-required", "IMEX_REQUIRED", "bool"),
    Setting(CDI_FEATURES, "cdi-feature-flags", "CDI_FEATURE_FLAGS", "texts"),
    Setting(
        f"{_PLUGIN}.sharedDevicesAllocationPolicy",
        "shared-devices-allocation-policy",
        "SHARED_DEVICES_ALLOCATION_POLICY",
    ),
    Setting("flags.useNodeFeatureAPI", "", "GFD_USE_NODE_FEATURE_API USE_NODE_FEATURE_API", "bool"),
    Setting(f"{_GFD}.oneshot", "", "GFD_ONESHOT", "bool"),
    Setting(f"{_GFD}.noTimestamp", "", "GFD_NO_TIMESTAMP", "bool"),
    Setting(f"{_GFD}.sleepInterval", "", "GFD_SLEEP_INTERVAL", "duration"),
    Setting(f"{_GFD}.outputFile", "", "GFD_OUTPUT_FILE"),
    Setting(f"{_GFD}.machineTypeFile", "", "GFD_MACHINE_TYPE_FILE"),
)
VARIABLES = frozenset(name for setting in SETTINGS for name in setting.variables)


@dataclass(frozen=True, slots=True)
class Override:
    """A value that a flag or a variable sets."""

    key: str
    value: Any
    source: str
    """The flag or variable, as users write it: ``MIG_STRATEGY=mixed``."""


def overrides(flags: Mapping[str, str], env: Mapping[str, str]) -> Iterator[Override]:
    """Yield what *flags*, or else variables of *env*, set; flags have no dashes and are named by their first name."""
    for setting in SETTINGS:
        flag = next((name for name in setting.flags if name in flags), None)
        variable = next((name for name in setting.variables if name in env), None)
        if flag is not None:
            yield Override(setting.key, _value(flags[flag], setting.kind), f"--{flag}={flags[flag]}")
        elif variable is not None and (env[variable] or setting.kind not in ("integers", "duration")):
            yield Override(setting.key, _value(env[variable], setting.kind), f"{variable}={env[variable]}")


def _value(text: str, kind: Kind) -> Any:  # noqa: ANN401 (the model of the file checks it)
    if kind in ("texts", "integers"):
        return [item.strip() for item in text.split(",")]
    return bool(text) and text if kind == "bool" else text
