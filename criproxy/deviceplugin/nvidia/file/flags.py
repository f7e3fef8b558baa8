"""Tables of the flags and environment variables of NVIDIA's device plugin and of its GPU feature discovery."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "bool", "texts", "integers", "duration"]
Program = Literal["plugin", "gfd"]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of the command line."""

    names: tuple[str, ...]
    """The name of the flag, followed by its aliases."""
    variables: tuple[str, ...]
    """The first of these variables that is set counts, even if it is empty."""
    key: str
    """The corresponding key of the file, or a word without a dot if there is none; empty for a flag of NVIDIA's that
    criproxy ignores."""
    kind: Kind = "text"
    default: Any = None


MINUTE_NS = 60_000_000_000

_MIG = "mig-strategy"
_DISCOVERY = "device-discovery-strategy"
_CONTAINER_ROOT = Flag(
    ("driver-root-ctr-path", "container-driver-root"),
    ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    "flags.plugin.containerDriverRoot",
    default="/driver-root",
)

PLUGIN: tuple[Flag, ...] = (
    Flag((_MIG,), ("MIG_STRATEGY",), "flags.migStrategy", default="none"),
    Flag(("fail-on-init-error",), ("FAIL_ON_INIT_ERROR",), "flags.failOnInitError", "bool", default=True),
    Flag(("driver-root", "nvidia-driver-root"), ("NVIDIA_DRIVER_ROOT",), "flags.nvidiaDriverRoot", default="/"),
    Flag(("dev-root", "nvidia-dev-root"), ("NVIDIA_DEV_ROOT",), "flags.nvidiaDevRoot", default=""),
    Flag(("pass-device-specs",), ("PASS_DEVICE_SPECS",), "flags.plugin.passDeviceSpecs", "bool", default=False),
    Flag(
        ("device-list-strategy",),
        ("DEVICE_LIST_STRATEGY",),
        "flags.plugin.deviceListStrategy",
        "texts",
        default=("envvar",),
    ),
    Flag(("device-id-strategy",), ("DEVICE_ID_STRATEGY",), "flags.plugin.deviceIDStrategy", default="uuid"),
    Flag(("gdrcopy-enabled",), ("GDRCOPY_ENABLED",), "flags.gdrcopyEnabled", "bool", default=False),
    Flag(("gds-enabled",), ("GDS_ENABLED",), "flags.gdsEnabled", "bool", default=False),
    Flag(("mofed-enabled",), ("MOFED_ENABLED",), "flags.mofedEnabled", "bool", default=False),
    Flag(("kubelet-socket",), ("KUBELET_SOCKET",), "kubelet-socket"),
    Flag(("config-file",), ("CONFIG_FILE",), "config-file", default=""),
    Flag(
        ("cdi-annotation-prefix",),
        ("CDI_ANNOTATION_PREFIX",),
        "flags.plugin.cdiAnnotationPrefix",
        default="cdi.k8s.io/",
    ),
    Flag(
        ("nvidia-cdi-hook-path", "nvidia-ctk-path"),
        ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        "flags.plugin.nvidiaCTKPath",
        default="/usr/bin/nvidia-ctk",
    ),
    _CONTAINER_ROOT,
    Flag(("mps-root",), ("MPS_ROOT",), "flags.mpsRoot", default=""),
    Flag((_DISCOVERY,), ("DEVICE_DISCOVERY_STRATEGY",), "flags.deviceDiscoveryStrategy", default="auto"),
    Flag(("imex-channel-ids",), ("IMEX_CHANNEL_IDS",), "imex.channelIDs", "integers"),
    Flag(("imex-required",), ("IMEX_REQUIRED",), "imex.required", "bool"),
    Flag(("cdi-feature-flags",), ("CDI_FEATURE_FLAGS",), "cdi-feature-flags", "texts"),
    Flag(
        ("shared-devices-allocation-policy",),
        ("SHARED_DEVICES_ALLOCATION_POLICY",),
        "flags.plugin.sharedDevicesAllocationPolicy",
        default="distributed",
    ),
)

GFD: tuple[Flag, ...] = (
    Flag((_MIG,), ("GFD_MIG_STRATEGY", "MIG_STRATEGY"), "flags.migStrategy", default="none"),
    Flag(
        ("fail-on-init-error",),
        ("GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR"),
        "flags.failOnInitError",
        "bool",
        default=True,
    ),
    Flag(("oneshot",), ("GFD_ONESHOT",), "flags.gfd.oneshot", "bool", default=False),
    Flag(("no-timestamp",), ("GFD_NO_TIMESTAMP",), "flags.gfd.noTimestamp", "bool", default=False),
    Flag(("sleep-interval",), ("GFD_SLEEP_INTERVAL",), "flags.gfd.sleepInterval", "duration", default=MINUTE_NS),
    Flag(
        ("output-file", "output", "o"),
        ("GFD_OUTPUT_FILE",),
        "flags.gfd.outputFile",
        default="/etc/kubernetes/node-feature-discovery/features.d/gfd",
    ),
    Flag(
        ("machine-type-file",),
        ("GFD_MACHINE_TYPE_FILE",),
        "flags.gfd.machineTypeFile",
        default="/sys/class/dmi/id/product_name",
    ),
    Flag(("config-file",), ("GFD_CONFIG_FILE", "CONFIG_FILE"), "config-file", default=""),
    Flag(
        ("use-node-feature-api",),
        ("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
        "flags.useNodeFeatureAPI",
        "bool",
        default=True,
    ),
    Flag((_DISCOVERY,), ("DEVICE_DISCOVERY_STRATEGY",), "flags.deviceDiscoveryStrategy", default="auto"),
    _CONTAINER_ROOT,
    Flag(("kubeconfig",), ("KUBECONFIG",), ""),
    Flag(("kube-api-qps",), ("KUBE_API_QPS",), ""),
    Flag(("kube-api-burst",), ("KUBE_API_BURST",), ""),
    Flag(("node-name",), ("NODE_NAME",), ""),
    Flag(("namespace",), ("NAMESPACE",), ""),
)

FLAGS: Mapping[Program, tuple[Flag, ...]] = {"plugin": PLUGIN, "gfd": GFD}
VARIABLES: Mapping[Program, frozenset[str]] = {
    program: frozenset(name for flag in flags for name in flag.variables) for program, flags in FLAGS.items()
}
"""By program."""
