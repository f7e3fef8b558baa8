"""The fields of the options of the policy ``balloons``, with their names and values in CRI-RM and nri-plugins.

`options` checks them.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from criproxy.alloc.expressions import OPERATORS, Expression, to_expression
from criproxy.model.cpuset import CpuSet
from criproxy.model.topology import MemoryKind
from criproxy.policy.options import CpuSetOption, Misfit, NamespacePattern, Options, Path
from criproxy.policy.unheeded import option_notes
from criproxy.policy.usable import HostReader

RESERVED, DEFAULT = "reserved", "default"
"""Types that always exist."""
SYSTEM_NAMESPACE = "kube-system"
ANNOTATION = "balloon.balloons"
"""The annotation that names the type of the balloon for a container."""
REFUSED = -1
"""As maxCPUs: no container runs in such a balloon on this node."""

SYSFS = "/sys/"
"""The beginning of the paths of devices."""

PRIORITIES = ("high", "normal", "low", "none")
_FORBIDDEN_IN_NAMES = "[]/"


def _to_priority(value: object) -> object:
    return PRIORITIES[value] if type(value) is int and 0 <= value < len(PRIORITIES) else value


def _checked_name(name: str) -> str:
    if not name or name != name.strip() or any(character in _FORBIDDEN_IN_NAMES for character in name):
        raise ValueError(f"must be a name without {' '.join(_FORBIDDEN_IN_NAMES)} and without spaces around it")
    return name


def _plain(expression: Expression) -> dict[str, object]:
    return {"key": expression.key, "operator": expression.operator, "values": list(expression.values)}


_EXPRESSION_SCHEMA = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "operator": {"enum": list(OPERATORS)},
        "values": {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
    },
    "required": ["operator"],
    "additionalProperties": False,
}
_PRIORITY_SCHEMA = {"enum": [*PRIORITIES, *range(len(PRIORITIES))]}

Name = Annotated[str, AfterValidator(_checked_name)]
ExpressionOption = Annotated[
    Expression,
    BeforeValidator(lambda value: value if isinstance(value, Expression) else to_expression(value)),
    PlainSerializer(_plain, return_type=dict[str, object]),
    WithJsonSchema(_EXPRESSION_SCHEMA),
]
PriorityOption = Annotated[
    Literal["high", "normal", "low", "none"], BeforeValidator(_to_priority), WithJsonSchema(_PRIORITY_SCHEMA)
]
MemoryKindOption = Annotated[
    MemoryKind, BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
]
LevelOption = Literal["system", "package", "die", "numa", "l2cache", "core", "thread"]


def _names(fields: Mapping[str, FieldInfo], key: str, serialized: Mapping[str, object]) -> list[str]:
    """The name of a field in what is serialized: as in files, or as in the source."""
    return [name for name in (fields[key].alias or key, key) if name in serialized][:1]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Only the options that the file gives: most of the thirty options of a balloon type have their defaults."""
        fields = type(self).model_fields
        named: dict[str, object] = serialize(self)
        return {
            name: named[name] for key in fields if key in self.model_fields_set for name in _names(fields, key, named)
        }


class Component(_Group):
    """A part of a composite balloon."""

    balloon_type: Name
    """The name of its type."""


def _to_component(value: object) -> object:
    return {"balloonType": value} if isinstance(value, str) else value


_COMPONENT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"balloonType": {"type": "string"}},
            "required": ["balloonType"],
            "additionalProperties": False,
        },
    ]
}
ComponentOption = Annotated[Component, BeforeValidator(_to_component), WithJsonSchema(_COMPONENT_SCHEMA)]


class LoadClass(_Group):
    """A kind of load that slows down other loads on the same hardware."""

    name: Name
    """Its name in the loads of balloon types."""
    level: Literal["core", "l2cache"]
    """What is shared: balloons with the same load avoid each other's cores or level 2 caches."""
    overloads_level_in_balloon: bool = False
    """Whether two CPUs of one balloon avoid sharing it, too."""


class Preserve(_Group):
    """Containers that criproxy does not place."""

    match_expressions: tuple[ExpressionOption, ...] = ()
    """criproxy does not place a container that matches any of these: it runs on all CPUs of the machine that are not
    exclusive, and its memory stays as the kubelet sent it."""


class BalloonType(_Group):
    """Balloons of one kind."""

    name: Name
    """Its name in annotations and other options. The types `reserved` and `default` always exist; give their options
    here."""
    namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose containers go into such balloons; * and ? stand for anything. The first type that matches a
    container counts."""
    annotation_namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose pods may name this type in an annotation; * and ? stand for anything. criproxy refuses pods of
    other namespaces that name it. By default all that annotations.allow permits; for the type reserved only those whose
    containers go into it anyway, unless annotations.allow is given."""
    match_expressions: tuple[ExpressionOption, ...] = ()
    """A container that matches any of these goes into such a balloon."""
    group_by: str = ""
    """A text such as ${pod/labels/app}: containers with the same values share a balloon."""
    min_balloons: int = Field(0, ge=0)
    """How many balloons there are at least, even without containers."""
    max_balloons: int = Field(0, ge=0)
    """How many balloons there may be; 0: as many as fit."""
    min_cpus: int = Field(0, ge=0, alias="minCPUs")
    """How many CPUs a balloon has at least."""
    max_cpus: int = Field(0, ge=REFUSED, alias="maxCPUs")
    """How many CPUs a balloon has at most; 0: no limit; -1: criproxy refuses such containers on this node."""
    prefer_new_balloons: bool = False
    """Whether a container gets a new balloon rather than one that has room."""
    prefer_per_namespace_balloon: bool = False
    """Whether each namespace has balloons of its own as long as there are CPUs."""
    prefer_spreading_pods: bool = False
    """Whether containers of a pod may be in different balloons; else they are in one if it has room."""
    prefer_spread_on_physical_cores: bool | None = None
    """Whether a balloon takes one thread each of many cores; by default as the option of the policy says."""
    allocator_topology_balancing: bool | None = None
    """Whether balloons are spread over the machine; by default as the option of the policy says."""
    allocator_priority: PriorityOption = "high"
    """Types with a higher priority get the CPUs of their minBalloons first: high, normal, low, none or 0 to 3."""
    share_idle_cpus_in_same: LevelOption | None = Field(None, alias="shareIdleCPUsInSame")
    """Its containers may also run on idle CPUs, those of no balloon, in the same part of the machine as the balloon."""
    hide_hyperthreads: bool = False
    """Whether its containers get one thread of each core only."""
    memory_types: tuple[MemoryKindOption, ...] = ()
    """The kinds of memory for its containers; by default that of the NUMA nodes of their CPUs."""
    pin_memory: bool | None = None
    """Whether memory is kept near the CPUs; by default as the option of the policy says."""
    components: tuple[ComponentOption, ...] = ()
    """Types that a balloon of this type consists of: its CPUs are those of all its parts."""
    component_creation: Literal["all", "balance-balloons"] | None = None
    """Whether a balloon has a part of each component, or one part: of the component with the fewest balloons."""
    loads: tuple[str, ...] = ()
    """Names of loadClasses: the hardware that its containers load heavily."""
    prefer_close_to_devices: tuple[str, ...] = ()
    """Its balloons take CPUs close to these, and all other balloons avoid these CPUs: paths in sysfs of NUMA nodes,
    CPUs, their caches (/sys/devices/system/cpu/cpu0/cache/index3) and devices (/sys/class/net/eth0); or
    podresourceapi:*, the devices of its containers, to which all balloons are close anyway."""
    prefer_isol_cpus: bool = False
    """Whether its balloons take isolated CPUs (isolcpus); all others avoid them."""
    prefer_core_type: Literal["efficient", "performance"] | None = None
    """Which cores its balloons take on a machine that has two kinds; others avoid them."""
    cpu_class: str = ""
    """Not acted on: criproxy sets no frequencies."""
    scheduling_class: str = ""
    """Not acted on: criproxy sets no scheduling classes."""
    irq_mode: str = ""
    """Not acted on: criproxy moves no interrupts."""
    irq_claim: tuple[Any, ...] = ()
    """Not acted on: criproxy moves no interrupts."""
    show_containers_in_nrt: bool | None = None
    """Not acted on: criproxy exports no NodeResourceTopology."""


class BalloonsFields(Options):
    """What a policy file may say for the policy ``balloons``."""

    reserved_cpus: CpuSetOption = frozenset()
    """The CPUs of the reserved balloon, for the containers that keep the node itself alive."""
    balloon_types: tuple[BalloonType, ...] = ()
    """The kinds of balloons. Their order counts: a container gets the first type that matches it."""
    reserved_pool_namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose containers go into the reserved balloon, in addition to kube-system; * and ? stand for
    anything."""
    pin_cpu: bool = Field(default=True, alias="pinCPU")
    """Whether containers run only on the CPUs of their balloon."""
    pin_memory: bool = True
    """Whether the memory of containers may be kept to the NUMA nodes of their balloon."""
    allocator_topology_balancing: bool = False
    """Whether new balloons go where the most CPUs are free, spread over the machine; else they are packed."""
    prefer_spread_on_physical_cores: bool = False
    """Whether a balloon takes one thread each of many cores; else whole cores."""
    load_classes: tuple[LoadClass, ...] = ()
    """Kinds of load that balloon types refer to."""
    preserve: Preserve = Preserve()
    """Containers that criproxy does not place."""
    idle_cpu_class: str = Field("", alias="idleCPUClass")
    """Not acted on: criproxy sets no frequencies."""
    cpu_classes: dict[str, Any] = Field(default_factory=dict, alias="cpuClasses")
    """Not acted on: criproxy sets no frequencies."""
    turbo_domain: str = ""
    """Not acted on: criproxy sets no frequencies."""
    controllable_interrupts: tuple[str, ...] = ()
    """Not acted on: criproxy moves no interrupts."""
    scheduling_classes: tuple[dict[str, Any], ...] = ()
    """Not acted on: criproxy sets no scheduling classes."""
    show_containers_in_nrt: bool = False
    """Not acted on: criproxy exports no NodeResourceTopology."""

    @cached_property
    def device_cpus(self) -> Mapping[str, CpuSet]:
        """The CPUs next to devices that balloon types name, by their paths; empty until `resolved` has read them."""
        return {}

    def resolved(self, host: HostReader) -> Self:
        """These options with the CPUs of the cgroup and the devices that they name, as the host has them."""
        copy = super().resolved(host).model_copy()
        paths = {path for kind in self.balloon_types for path in kind.prefer_close_to_devices if path.startswith(SYSFS)}
        copy.__dict__["device_cpus"] = {path: cpus for path in sorted(paths) if (cpus := host.device(path))}
        return copy

    def notes(self) -> Iterator[Misfit]:
        """The options that are understood, and have no effect."""
        groups: list[tuple[Path, BaseModel]] = [((), self)]
        groups += [(("balloonTypes", index), kind) for index, kind in enumerate(self.balloon_types)]
        yield from option_notes(groups)
