"""The values of NVIDIA's file ``version: v1``, as its device plugin and its feature discovery load them.

Names follow NVIDIA's keys; ``None`` means not set. Source: NVIDIA/k8s-device-plugin v0.20.0, ``api/config/v1``.
"""

from dataclasses import dataclass, field
from typing import Literal

MigStrategy = Literal["none", "single", "mixed"]
SharingStrategy = Literal["none", "time-slicing", "mps"]
DevicesSelector = Literal["all"] | int | tuple[str, ...]
"""The cards of a sharing entry: all, the first so many, or those listed by index, UUID or MIG index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFlags:
    """``flags.plugin``."""

    pass_device_specs: bool = False
    device_list_strategy: tuple[str, ...] = ("envvar",)
    device_id_strategy: str = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    nvidia_ctk_path: str = "/usr/bin/nvidia-ctk"
    container_driver_root: str = "/driver-root"
    shared_devices_allocation_policy: str = "distributed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GfdFlags:
    """``flags.gfd``: GPU feature discovery, which writes labels."""

    oneshot: bool = False
    no_timestamp: bool = False
    sleep_interval_ns: int | None = 60_000_000_000
    """In nanoseconds; None for ``infinite``."""
    output_file: str = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    machine_type_file: str = "/sys/class/dmi/id/product_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """``flags``."""

    mig_strategy: MigStrategy = "none"
    fail_on_init_error: bool = True
    mps_root: str = ""
    nvidia_driver_root: str = "/"
    nvidia_dev_root: str = "/"
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    use_node_feature_api: bool | None = None
    device_discovery_strategy: str = "auto"
    plugin: PluginFlags = field(default_factory=PluginFlags)
    gfd: GfdFlags = field(default_factory=GfdFlags)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePattern:
    """An entry of ``resources.gpus`` or ``resources.mig``: cards whose product matches get this resource."""

    pattern: str
    """``*`` matches anything."""
    name: str
    """Includes the domain, for example ``nvidia.com/gpu``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResource:
    """An entry of ``sharing.*.resources``: each card of one resource is offered *replicas* times."""

    name: str
    """Includes the domain."""
    rename: str = ""
    """The resource for the shared cards, including its domain; empty if the file does not name one."""
    devices: DevicesSelector = "all"
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResources:
    """``sharing.timeSlicing`` or ``sharing.mps``."""

    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False
    """The effective value: true for MPS unless the file sets it to false."""
    resources: tuple[SharedResource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """``sharing``; if both are set, MPS takes precedence."""

    time_slicing: SharedResources | None = None
    mps: SharedResources | None = None

    @property
    def strategy(self) -> SharingStrategy:
        """The value of the label ``gpu.sharing-strategy`` for shared cards."""
        if self.mps is not None:
            return "mps"
        return "none" if self.time_slicing is None else "time-slicing"

    @property
    def shared(self) -> SharedResources | None:
        """The section that takes effect."""
        return self.mps if self.mps is not None else self.time_slicing


@dataclass(frozen=True, slots=True, kw_only=True)
class Imex:
    """``imex``."""

    channel_ids: tuple[int, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """A whole file, combined with flags of the command line and environment variables."""

    version: str = "v1"
    flags: Flags = field(default_factory=Flags)
    gpu_resources: tuple[ResourcePattern, ...] = ()
    """``resources.gpus``; empty for the default, ``*`` as ``nvidia.com/gpu``."""
    mig_resources: tuple[ResourcePattern, ...] = ()
    """``resources.mig``."""
    sharing: Sharing = field(default_factory=Sharing)
    imex: Imex = field(default_factory=Imex)
