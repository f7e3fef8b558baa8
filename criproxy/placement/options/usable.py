"""Which CPUs of a machine a policy uses and which it reserves: the options availableResources and reservedResources.

Their values are those of CRI-RM and nri-plugins: ``cpuset:4-11``, ``exclude-cpuset:0-1``, a cgroup, or an amount of CPU
such as ``750m``.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from re import fullmatch
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.topology import MemoryKind, Topology

if TYPE_CHECKING:
    from criproxy.model.machine.controllable import Controllable

_CPUSET, _EXCLUDED = "cpuset:", "exclude-cpuset:"
_QUANTITY = r"[0-9]+(\.[0-9]{1,3})?|[0-9]+m"


class HostReader(NamedTuple):
    """Reads what a policy file needs to know of the host."""

    cgroup: Callable[[str], CpuSet | None]
    """The CPUs of a cgroup; None if there is no such one."""
    device: Callable[[str], CpuSet | None] = lambda _: None
    """The CPUs next to a device, by its path in sysfs; None if there is no such one."""
    controllable: "Callable[[], Controllable | None]" = lambda: None
    """What classes can set; None if that is unknown."""
    was_good: bool = False
    """Whether the policy file was in force before. Then mistakes in options of peers leave these without effect: they
    may be from a criproxy to which these options meant nothing."""


class Section(BaseModel):
    """A part of a policy file."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, allow_inf_nan=False)


AS_WRITTEN = PlainSerializer(lambda value: value.text, return_type=str)
"""For values that know their text in the policy file."""


@dataclass(frozen=True, slots=True)
class AvailableCpus:
    """The CPUs that a policy uses, of those that pods may use at all."""

    text: str
    """As in the policy file."""
    cpus: CpuSet | None
    """None: those of a cgroup that has not been read yet."""
    excluded: bool = False
    """All but *cpus*."""

    @property
    def cgroup(self) -> str:
        """The path of the cgroup whose CPUs these are; empty where they were written down."""
        return "" if self.text.startswith((_CPUSET, _EXCLUDED)) else self.text

    @property
    def listed(self) -> CpuSet | None:
        """All CPUs that there can be; None where that depends on the machine."""
        return None if self.excluded or self.cgroup else self.cpus

    def of(self, cpus: CpuSet) -> CpuSet:
        """Those of *cpus* that are available."""
        if self.cpus is None:
            return cpus
        return cpus - self.cpus if self.excluded else cpus & self.cpus


@dataclass(frozen=True, slots=True)
class ReservedCpus:
    """The CPUs that a policy reserves, or how many of them."""

    text: str
    """As in the policy file."""
    cpus: CpuSet | None
    """None where only an amount is given."""
    count: int = 0
    """How many, where *cpus* are not given."""

    def of(self, topology: Topology) -> CpuSet:
        """Which these are: of an amount, the first cores that pods may use, isolated CPUs last."""
        if self.cpus is not None:
            return self.cpus
        quiet = topology.cpus & topology.isolated_cpus
        return _first(topology, topology.cpus - quiet, self.count) or _first(topology, topology.cpus, self.count)


def _first(topology: Topology, cpus: CpuSet, count: int) -> CpuSet:
    """*count* of *cpus*, core by core; none where there are not as many."""
    if count > len(cpus):
        return frozenset()
    core_of = topology.core_of
    first = {cpu: min(core_of[cpu].cpus & cpus) if cpu in core_of else cpu for cpu in cpus}
    return frozenset(sorted(cpus, key=lambda cpu: (first[cpu], cpu))[:count])


def _to_available(value: object) -> AvailableCpus:
    if isinstance(value, AvailableCpus):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ValueError('must be text such as "cpuset:4-11", "exclude-cpuset:0-1" or the path of a cgroup')
    text = value.strip()
    for prefix in (_CPUSET, _EXCLUDED):
        if text.startswith(prefix):
            cpus = parse_cpuset(text.removeprefix(prefix))
            if not cpus:
                raise ValueError(f"names no CPU after {prefix}")
            return AvailableCpus(text, cpus, excluded=prefix == _EXCLUDED)
    if fullmatch(r"[-0-9, ]+", text):
        raise ValueError(f'must be text such as "{_CPUSET}{text}"')
    return AvailableCpus(text, None)


def _to_reserved(value: object) -> ReservedCpus:
    if isinstance(value, ReservedCpus):
        return value
    text = "" if isinstance(value, bool) else str(value).strip()
    if text.startswith(_CPUSET):
        return ReservedCpus(text, parse_cpuset(text.removeprefix(_CPUSET)))
    if not isinstance(value, str | int | float) or not fullmatch(_QUANTITY, text) or len(text) > 10:
        raise ValueError('must be CPUs such as "cpuset:0-1", or an amount of CPU such as 750m or 2')
    milli = int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)
    return ReservedCpus(text, None, -(-milli // 1000))


_AVAILABLE_SCHEMA = {"type": "string", "minLength": 1, "examples": ["cpuset:4-11", "exclude-cpuset:0-1", "/pods"]}
_RESERVED_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": rf"^\s*(({_QUANTITY})|cpuset:[-0-9, ]*)\s*$"},
        {"type": "number", "minimum": 0},
    ],
    "examples": ["cpuset:0-1", "750m", 2],
}

MemoryKindOption = Annotated[
    MemoryKind, BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)
]
"""A kind of memory in a policy file."""
COUNTED = (MemoryKind.DRAM, MemoryKind.PMEM, MemoryKind.HBM)
"""The kinds that count where a policy file names none."""

AvailableOption = Annotated[
    AvailableCpus, BeforeValidator(_to_available), AS_WRITTEN, WithJsonSchema(_AVAILABLE_SCHEMA)
]
ReservedOption = Annotated[ReservedCpus, BeforeValidator(_to_reserved), AS_WRITTEN, WithJsonSchema(_RESERVED_SCHEMA)]


class AvailableResources(Section):
    """What of the machine a policy uses."""

    cpu: AvailableOption | None = None
    """Which of the CPUs that pods may use are available to containers: "cpuset:4-11", "exclude-cpuset:0-1", or the path
    of a cgroup, whose CPUs criproxy reads each time it reads the policy file. Containers that the policy places get
    no other CPUs, and no memory from NUMA nodes whose CPUs are all unavailable. The reserved CPUs must be among the
    available ones. By default, all CPUs are available."""


class ReservedResources(Section):
    """What of the machine a policy reserves."""

    cpu: ReservedOption | None = None
    """The same as reservedCpus, in the form of CRI-RM and nri-plugins: "cpuset:0-1", or an amount such as 750m or 2. An
    amount reserves that many CPUs, rounded up, on the first available cores. Give either this option or
    reservedCpus."""


def narrowed(topology: Topology, available: AvailableCpus | None, kinds: Container[MemoryKind]) -> Topology:
    """The machine as a policy sees it that uses only what is *available*; all CPUs where none of that is there.

    It leaves out the memory of NUMA nodes that have only other CPUs, and keeps that of nodes without CPUs if it is of
    one of these *kinds*. What remains can hold a container, or all memory remains.
    """
    cpus = (available.of(topology.cpus) if available else topology.cpus) or topology.cpus
    nodes = [node for node in topology.nodes if node.id in topology.mems]
    foreign = frozenset(node.id for node in nodes if node.cpus and node.cpus.isdisjoint(cpus) and cpus != topology.cpus)
    other = frozenset(node.id for node in nodes if node.kind not in kinds) - foreign
    if cpus == topology.cpus and not other:
        return topology
    if not topology.can_hold(topology.mems - foreign - other):
        foreign = other = frozenset()
    return replace(topology, cpus=cpus, mems=topology.mems - foreign - other, other_mems=other)
