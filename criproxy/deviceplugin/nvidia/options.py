"""NVIDIA's file ``version: v1``: its keys, their defaults, and which values are valid.

Names follow NVIDIA's keys, and so do the messages about values, with what would be right behind them. A key whose value
is null counts as absent. Source: NVIDIA/k8s-device-plugin v0.20.0, ``api/config/v1``.
"""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from criproxy.devices.classes.offers import MAX_REPLICAS, SHARED_SUFFIX, Selector, SharedCards

MigStrategy = Literal["none", "single", "mixed"]
SharingStrategy = Literal["none", "time-slicing", "mps"]
INFINITE = "infinite"
PREFIX = "nvidia.com/"
GPU_RESOURCE = "nvidia.com/gpu"
MAX_NAME = 63
"""In bytes, for a resource's name with its domain."""
MIN_REPLICAS = 2

_KEYS = {
    "channel_ids": "channelIDs",
    "device_id_strategy": "deviceIDStrategy",
    "nvidia_ctk_path": "nvidiaCTKPath",
    "use_node_feature_api": "useNodeFeatureAPI",
}
"""The keys whose capitals do not follow from the name of the field."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INDEX = "[0-9]{1,9}"
_CARD = re.compile(rf"{_INDEX}(:{_INDEX})?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/{_INDEX}/{_INDEX}")
"""``1``, ``1:0``, ``GPU-<uuid>``, ``MIG-<uuid>`` or, for drivers before R470, ``MIG-GPU-<uuid>/3/0``."""
_DURATION = re.compile(r"[-+]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)")


class Section(BaseModel):
    """A mapping in the file."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: _KEYS.get(name) or to_camel(name),
        validate_by_name=True,
        validate_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:  # noqa: ANN401 (YAML)
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


def _one_of(message: str, words_of: object) -> BeforeValidator:
    """Return a check for a text that must be one of the words of the literal *words_of*."""
    words = get_args(words_of)

    def check(value: object) -> object:
        if isinstance(value, str) and value not in words:
            raise ValueError(f"{message}{value}; it can be {', '.join(words[:-1])} or {words[-1]}")
        return value

    return BeforeValidator(check)


def _version(value: object) -> object:
    if value != "v1":
        raise ValueError(f"unknown version: {value}; write 'version: v1'")
    return value


def _strategies(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _interval(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{int(value)}ns"
    if isinstance(value, str) and (value == INFINITE or _DURATION.fullmatch(value)):
        return value
    raise ValueError("invalid duration; write a number with a unit, such as 60s or 1h30m, or infinite")


def _channels(numbers: tuple[int, ...]) -> tuple[int, ...]:
    if numbers not in ((), (0,)):
        found = " ".join(map(str, numbers))
        raise ValueError(
            f"invalid IMEX channel IDs: invalid IMEX config: channelIDs must be [] or [0]; found [{found}]"
        )
    return numbers


def resource_name(name: str) -> str:
    """Return *name* with its domain.

    Raises:
        ValueError: The name is invalid; the message is NVIDIA's.
    """
    full = name if name.startswith(PREFIX) else f"{PREFIX}{name}"
    if len(full.encode()) > MAX_NAME:
        raise ValueError(f"fully-qualified resource name must be {MAX_NAME} characters or less: {full}")
    if not _SUBDOMAIN.fullmatch(full.removeprefix(PREFIX)):
        raise ValueError(
            f"incorrect format for resource name '{full}': behind {PREFIX} there may be lower-case letters, digits, "
            "'-' and '.', and the name and each part between dots begin and end with a letter or a digit"
        )
    return full


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a whole number, not {str(value).lower()}")  # noqa: TRY004 (pydantic's way)
    return value


def _replicas(count: int) -> int:
    if count < MIN_REPLICAS:
        advice = f"it is {count}; leave the resource out if its cards are not to be shared"
        raise ValueError(f"number of replicas must be >= {MIN_REPLICAS}; {advice}")
    if count > MAX_REPLICAS:
        advice = "NVIDIA's plugin has no limit, but the kubelet has to list them all"
        raise ValueError(f"{count} replicas of a card are too many: it can have {MAX_REPLICAS}; {advice}")
    return count


def _devices(value: object) -> object:
    """Read a selection: all cards, the first so many, or those listed."""
    if isinstance(value, str):
        if value != "all":
            raise _wrong_devices(f"devices set as '{value}' but the only valid string input is 'all'")
        return value
    if isinstance(value, list | tuple):
        if not value:
            raise _wrong_devices("devices set as '[]', which shares no card")
        return tuple(map(_device, value))
    count = _whole(value)
    if count is None:
        raise _wrong_devices(f"unrecognized type for devices spec: {str(value).lower()}")
    if count <= 0:
        raise _wrong_devices(f"devices set as '{count}' but a count of devices must be > 0")
    return count


def _device(value: object) -> str:
    index = _whole(value)
    text = str(index) if index is not None else value if isinstance(value, str) else ""
    if not _CARD.fullmatch(text):
        raise _wrong_devices(f"unsupported type for device in devices list: {text}, string")
    return text


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def _wrong_devices(message: str) -> ValueError:
    right = "write all, a count, or a list of indexes (1), MIG indexes (1:0) and UUIDs (GPU-\u2026, MIG-\u2026)"
    return ValueError(f"{message}; {right}")


ResourceName = Annotated[str, AfterValidator(resource_name)]
_ListWord = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
_IdWord = Literal["uuid", "index"]
_PolicyWord = Literal["distributed", "packed"]
_DiscoveryWord = Literal["auto", "nvml", "tegra"]
ListStrategy = Annotated[_ListWord, _one_of("invalid --device-list-strategy option: invalid strategy: ", _ListWord)]


class PluginFlags(Section):
    """``flags.plugin``."""

    pass_device_specs: bool = False
    device_list_strategy: Annotated[tuple[ListStrategy, ...], BeforeValidator(_strategies)] = ("envvar",)
    device_id_strategy: Annotated[_IdWord, _one_of("invalid --device-id-strategy option: ", _IdWord)] = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    nvidia_ctk_path: str = "/usr/bin/nvidia-ctk"
    container_driver_root: str = "/driver-root"
    shared_devices_allocation_policy: Annotated[
        _PolicyWord, _one_of("invalid --shared-devices-allocation-policy option: ", _PolicyWord)
    ] = "distributed"


class GfdFlags(Section):
    """``flags.gfd``: GPU feature discovery, which writes labels."""

    oneshot: bool = False
    no_timestamp: bool = False
    sleep_interval: Annotated[str, BeforeValidator(_interval)] = "60s"
    """Only ``infinite`` has an effect."""
    output_file: str = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    machine_type_file: str = "/sys/class/dmi/id/product_name"

    @property
    def outlives_program(self) -> bool:
        """Whether the labels stay when the program ends: NVIDIA's writes them once then, and exits."""
        return self.oneshot or self.sleep_interval == INFINITE


class Flags(Section):
    """``flags``."""

    mig_strategy: Annotated[MigStrategy, _one_of("unknown MIG strategy: ", MigStrategy)] = "none"
    fail_on_init_error: bool = True
    mps_root: str = ""
    nvidia_driver_root: str = "/"
    nvidia_dev_root: str = Field(default="", validate_default=True)
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    use_node_feature_api: bool | None = None
    device_discovery_strategy: Annotated[
        _DiscoveryWord, _one_of("invalid --device-discovery-strategy option ", _DiscoveryWord)
    ] = "auto"
    plugin: PluginFlags = PluginFlags()
    gfd: GfdFlags = GfdFlags()

    @field_validator("nvidia_dev_root")
    @classmethod
    def _dev_root(cls, root: str, info: ValidationInfo) -> str:
        return root or str(info.data.get("nvidia_driver_root", ""))


class ResourcePattern(Section):
    """An entry of ``resources.gpus`` or ``resources.mig``: cards whose product matches get this resource."""

    pattern: str
    """``*`` matches anything."""
    name: ResourceName
    """Includes the domain, for example ``nvidia.com/gpu``."""


class Resources(Section):
    """``resources``."""

    gpus: tuple[ResourcePattern, ...] = ()
    """Empty for the default, ``*`` as ``nvidia.com/gpu``."""
    mig: tuple[ResourcePattern, ...] = ()


class SharedResource(Section):
    """An entry of ``sharing.*.resources``: each card of one resource is offered *replicas* times.

    Its fields are among those of `SharedCards`.
    """

    name: ResourceName
    """Includes the domain."""
    rename: Annotated[str, AfterValidator(lambda name: name and resource_name(name))] = ""
    """The resource for the shared cards, including its domain; empty if they keep that of whole cards."""
    devices: Annotated[Selector, BeforeValidator(_devices)] = "all"
    """The cards of the resource: all, the first so many, or those listed by index, UUID or MIG index."""
    replicas: Annotated[int, BeforeValidator(_number), AfterValidator(_replicas)]


class SharedResources(Section):
    """``sharing.timeSlicing``."""

    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False
    resources: tuple[SharedResource, ...] = Field(default=(), validate_default=True)

    @field_validator("resources")
    @classmethod
    def _renamed(cls, resources: tuple[SharedResource, ...], info: ValidationInfo) -> tuple[SharedResource, ...]:
        if not resources:
            raise ValueError("no resources specified; list them, each with a name and replicas")
        if not info.data.get("rename_by_default"):
            return resources
        return tuple(
            each.model_copy(update={"rename": each.rename or f"{each.name}{SHARED_SUFFIX}"}) for each in resources
        )


class MpsResources(SharedResources):
    """``sharing.mps``."""

    fail_requests_greater_than_one: bool = True


class Sharing(Section):
    """``sharing``; if both are set, MPS takes precedence."""

    time_slicing: SharedResources | None = None
    mps: MpsResources | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:  # noqa: ANN401 (YAML)
        if isinstance(data, dict) and data.get("timeSlicing", "") is None:
            raise ValueError("timeSlicing: no resources specified; list them below 'timeSlicing.resources'")
        return data

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

    @property
    def entries(self) -> tuple[SharedCards, ...]:
        """The shared cards."""
        return tuple(SharedCards(**dict(each)) for each in (self.shared.resources if self.shared else ()))

    @property
    def only_one(self) -> bool:
        """Whether a container can get at most one replica."""
        return self.shared is not None and self.shared.fail_requests_greater_than_one


class Imex(Section):
    """``imex``."""

    channel_ids: Annotated[tuple[int, ...], AfterValidator(_channels)] = ()
    required: bool = False


class PluginConfig(Section):
    """A whole file, combined with flags of the command line and environment variables."""

    version: Annotated[Literal["v1"], BeforeValidator(_version)] = "v1"
    flags: Flags = Flags()
    resources: Resources = Resources()
    sharing: Sharing = Sharing()
    imex: Imex = Imex()

    @field_validator("sharing")
    @classmethod
    def _possible(cls, sharing: Sharing, info: ValidationInfo) -> Sharing:
        flags = info.data.get("flags")
        if sharing.mps is None or flags is None:
            return sharing
        if flags.mig_strategy == "mixed":
            raise ValueError(
                "using --mig-strategy=mixed is not supported with MPS; use another strategy, or timeSlicing"
            )
        if not flags.mps_root:
            usual = "flags.mpsRoot, or the variable MPS_ROOT, is usually /run/nvidia/mps"
            raise ValueError(f"using MPS requires --mps-root to be specified; {usual}")
        return sharing


PLACES = {
    **{
        name: f"{section}.{name}"
        for section, model in (
            ("flags", Flags),
            ("flags.plugin", PluginFlags),
            ("flags.gfd", GfdFlags),
            ("sharing", Sharing),
        )
        for name in (field.alias or "" for field in model.model_fields.values())
    },
    **{name: name for name in PluginConfig.model_fields},
}
"""Where the keys at the top of the file, and those that people write there by mistake, belong."""
