"""The fields of the options of the policy ``balloons``, with their names and values in CRI-RM and nri-plugins.

`options` checks them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_serializer,
)

from criproxy.model.cpuset import CpuSet
from criproxy.placement.alloc.affinity.expressions import OPERATORS, Expression, to_expression
from criproxy.placement.options.policy_options import CpuSetOption, Misfit, NamespacePattern, Options, Path
from criproxy.placement.options.unheeded import option_notes
from criproxy.placement.options.usable import HostReader, MemoryKindOption, Section

RESERVED, DEFAULT = "reserved", "default"
"""Types that always exist."""
ANNOTATION = "balloon.balloons"
"""The annotation that names the type of the balloon for a container."""
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


def _schema(required: str, **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}


_TEXT = {"type": "string"}
_VALUES = {"type": "array", "items": {"type": ["string", "number", "boolean"]}}
_EXPRESSION_SCHEMA = _schema("operator", key=_TEXT, operator={"enum": list(OPERATORS)}, values=_VALUES)
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
LevelOption = Literal["system", "package", "die", "numa", "l2cache", "core", "thread"]


class _Group(Section):
    @model_serializer(mode="wrap")
    def _given(self, serialize: Callable[[Section], dict[str, object]]) -> dict[str, object]:
        """Only the options that the file gives: most of the thirty options of a balloon type have their defaults."""
        fields = type(self).model_fields
        unset = fields.keys() - self.model_fields_set
        left_out = {*unset, *(fields[key].alias for key in unset)}  # by their names in the source and in files
        return {name: value for name, value in serialize(self).items() if name not in left_out}


class Component(_Group):
    """A part of a composite balloon."""

    balloon_type: Name
    """The name of its type."""


_COMPONENT_SCHEMA = {"anyOf": [_TEXT, _schema("balloonType", balloonType=_TEXT)]}
ComponentOption = Annotated[
    Component,
    BeforeValidator(lambda value: {"balloonType": value} if isinstance(value, str) else value),
    WithJsonSchema(_COMPONENT_SCHEMA),
]


class LoadClass(_Group):
    """A kind of load that slows down other loads on the same hardware."""

    name: Name
    """The name of the load class. Balloon types refer to load classes by name, in the option named loads."""
    level: Literal["core", "l2cache"]
    """The hardware for which these loads compete: balloons with the same load class avoid each other's cores or level 2
    caches."""
    overloads_level_in_balloon: bool = False
    """Whether the policy also avoids giving a single balloon several CPUs that share a core or level 2 cache."""


class Preserve(_Group):
    """Containers that criproxy does not place."""

    match_expressions: tuple[ExpressionOption, ...] = ()
    """criproxy does not place containers that match any of these expressions: they run on all CPUs of the machine that
    are not exclusive, and criproxy does not change their memory nodes."""


class BalloonType(_Group):
    """Balloons of one kind."""

    name: Name
    """The name of the type, for use in annotations and other options. The types `reserved` and `default` always exist;
    to set their options, list them here."""
    namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose containers run in balloons of this type; * and ? are wildcards. If several types match a
    container, the first one applies."""
    annotation_namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose pods may select this type with an annotation; * and ? are wildcards. If a pod of another
    namespace selects it, criproxy refuses its containers. By default, all namespaces that annotations.allow permits.
    The type reserved is an exception: unless annotations.allow is set, only pods whose namespace puts them in the
    reserved balloon anyway may select it."""
    match_expressions: tuple[ExpressionOption, ...] = ()
    """Containers that match any of these expressions run in balloons of this type."""
    group_by: str = ""
    """A template such as ${pod/namespace}-${pod/labels/app}: containers with the same values for its keys share a
    balloon. Without the namespace, pods of any namespace can join."""
    min_balloons: int = Field(0, ge=0)
    """The minimum number of balloons; they exist even without containers."""
    max_balloons: int = Field(0, ge=0)
    """The maximum number of balloons. 0: as many as fit."""
    min_cpus: int = Field(0, ge=0, alias="minCPUs")
    """The minimum number of CPUs in a balloon."""
    max_cpus: int = Field(0, ge=-1, alias="maxCPUs")
    """The maximum number of CPUs in a balloon. 0: no limit; -1: criproxy refuses containers of this type on this
    node."""
    prefer_new_balloons: bool = False
    """Whether a container gets a new balloon even if an existing one has room."""
    prefer_per_namespace_balloon: bool = False
    """Whether each namespace gets its own balloons, as long as CPUs are left."""
    prefer_spreading_pods: bool = False
    """Whether containers of a pod may run in different balloons; otherwise, they run in the same one if it has room."""
    prefer_spread_on_physical_cores: bool | None = None
    """Whether a balloon takes one thread from each of many cores; by default, the policy's option with the same name
    applies."""
    allocator_topology_balancing: bool | None = None
    """Whether new balloons are spread over the machine; by default, the policy's option with the same name applies."""
    allocator_priority: PriorityOption = "high"
    """The priority of the type: high, normal, low, none, or 0 to 3. Types with a higher priority get the CPUs of their
    minBalloons first."""
    share_idle_cpus_in_same: LevelOption | None = Field(None, alias="shareIdleCPUsInSame")
    """Containers of this type may also run on idle CPUs (those in no balloon) in the same part of the machine as their
    balloon. This option names the kind of part; for example, numa stands for the balloon's NUMA node."""
    hide_hyperthreads: bool = False
    """Whether the type's containers run on only one thread of each core."""
    memory_types: tuple[MemoryKindOption, ...] = ()
    """The kinds of memory that the type's containers get; by default, the memory of the NUMA nodes of their CPUs."""
    pin_memory: bool | None = None
    """Whether the memory of the type's containers may be restricted to the NUMA nodes of their balloon; by default, the
    policy's option with the same name applies."""
    components: tuple[ComponentOption, ...] = ()
    """The types of the parts of a composite balloon, which has the CPUs of all its parts. With this option, all
    balloons of this type are composite."""
    component_creation: Literal["all", "balance-balloons"] | None = None
    """Whether a composite balloon has one part of each component type (all), or a single part of the component type
    with the fewest balloons (balance-balloons)."""
    loads: tuple[str, ...] = ()
    """The load classes of this type. They describe which hardware its containers use heavily."""
    prefer_close_to_devices: tuple[str, ...] = ()
    """Devices, as paths in sysfs: NUMA nodes, CPUs, their caches (/sys/devices/system/cpu/cpu0/cache/index3) or other
    devices (/sys/class/net/eth0). Balloons of this type take CPUs close to them, and all other balloons avoid these
    CPUs. podresourceapi:* stands for the devices of the type's containers; CPUs close to these are preferred for every
    type anyway."""
    prefer_isol_cpus: bool = False
    """Whether balloons of this type take isolated CPUs (isolcpus); all others avoid them."""
    prefer_core_type: Literal["efficient", "performance"] | None = None
    """The kind of core that balloons of this type take on a machine with two kinds; all other balloons avoid these
    cores."""
    cpu_class: str = ""
    """The class whose `cpu` the type's containers have."""
    scheduling_class: str = ""
    """The class whose `scheduling` the type's containers have."""
    irq_mode: str = ""
    """isolate: the CPUs of the type's containers get only interrupts that irqClaim names. sink: they get all interrupts
    that nobody claims."""
    irq_claim: tuple[Any, ...] = ()
    """Interrupts that go to the CPUs of the type's containers: names as in /proc/interrupts (* and ? are wildcards), or
    numbers."""
    show_containers_in_nrt: bool | None = None
    """No effect: criproxy does not export NodeResourceTopology objects."""


class BalloonsFields(Options):
    """What a policy file may say for the policy ``balloons``."""

    reserved_cpus: CpuSetOption = frozenset()
    """The CPUs of the reserved balloon, in which the containers of kube-system and reservedPoolNamespaces run."""
    balloon_types: tuple[BalloonType, ...] = ()
    """The balloon types. Their order matters: the first type that matches a container applies."""
    reserved_pool_namespaces: tuple[NamespacePattern, ...] = ()
    """Namespaces whose containers run in the reserved balloon, in addition to kube-system; * and ? are wildcards."""
    pin_cpu: bool = Field(default=True, alias="pinCPU")
    """Whether containers run only on the CPUs of their balloon."""
    pin_memory: bool = True
    """Whether the memory of containers may be restricted to the NUMA nodes of their balloon."""
    allocator_topology_balancing: bool = False
    """Whether new balloons are spread over the machine, each where the most CPUs are free. Otherwise, they are
    packed."""
    prefer_spread_on_physical_cores: bool = False
    """Whether a balloon takes one thread from each of many cores; otherwise, it takes whole cores."""
    load_classes: tuple[LoadClass, ...] = ()
    """The kinds of load to which balloon types refer."""
    preserve: Preserve = Preserve()
    """Containers that criproxy does not place."""
    cpu_classes: dict[str, Any] | tuple[dict[str, Any], ...] = Field(default=(), alias="cpuClasses")
    """Classes that only have `cpu`, as in nri-plugins."""
    turbo_domain: str = ""
    """No effect: criproxy does not divide turbo frequencies."""
    controllable_interrupts: tuple[str, ...] = ()
    """The interrupts that criproxy may move: names as in /proc/interrupts; * and ? are wildcards. By default, all."""
    scheduling_classes: tuple[dict[str, Any], ...] = ()
    """Classes that only have `scheduling`, as in nri-plugins."""
    show_containers_in_nrt: bool = False
    """No effect: criproxy does not export NodeResourceTopology objects."""

    @property
    def reserved_namespaces(self) -> tuple[str, ...]:
        """Patterns of the namespaces whose containers run in the reserved balloon."""
        return ("kube-system", *self.reserved_pool_namespaces)

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
