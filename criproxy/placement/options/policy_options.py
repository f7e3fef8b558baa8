"""Options that every policy has, and the types that options are made of. Each policy's own are in its file."""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from re import fullmatch
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from criproxy.model.cpuset import MAX_ID, CpuSet, format_cpuset, interned, numbered, parse_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.remembered import remembered
from criproxy.model.text.amounts import are, only_are
from criproxy.placement.options.annotation_keys import KEYS, matches_one
from criproxy.placement.options.usable import (
    COUNTED,
    AvailableCpus,
    AvailableResources,
    HostReader,
    MemoryKindOption,
    ReservedResources,
    Section,
    narrowed,
)


def _to_cpuset(value: object) -> CpuSet:
    """A set as a text in kernel notation, one number, or a list of numbers."""
    if isinstance(value, frozenset):
        return value
    if isinstance(value, str):
        return parse_cpuset(value)
    numbers = value if isinstance(value, list) else [value]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError('must be CPUs such as "0-3,8"')
    return parse_cpuset(",".join(map(str, numbers)))


_ID = {"type": "integer", "minimum": 0, "maximum": MAX_ID}
_CPUSET_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": r"^\s*([0-9]+\s*(-\s*[0-9]+\s*)?(,\s*[0-9]+\s*(-\s*[0-9]+\s*)?)*)?$"},
        _ID,
        {"type": "array", "items": _ID},
    ],
    "examples": ["0", "0-3", "0-1,64-65"],
}

CpuSetOption = Annotated[
    CpuSet, BeforeValidator(_to_cpuset), PlainSerializer(format_cpuset), WithJsonSchema(_CPUSET_SCHEMA)
]
"""CPUs in a policy file."""


Path = tuple[str | int, ...]
"""Names, as in the policy file, and indexes that lead to an option."""


class Misfit(NamedTuple):
    """Something that options ask for and a machine lacks, or that contradicts other options."""

    path: Path
    text: str
    """What is wrong, and what would be right."""


def _checked_key(pattern: str) -> str:
    if not any(matches_one(key, (pattern,)) for key in KEYS):
        near = get_close_matches(pattern, KEYS, n=1)
        mean = f"; did you mean {near[0]!r}?" if near else f"; annotations are: {', '.join(KEYS)}"
        raise ValueError(f"no policy reads an annotation {pattern!r}{mean}")
    return pattern


_NAMESPACES = "[a-z0-9*?-]+"


def _checked_namespace(pattern: str) -> str:
    if not fullmatch(_NAMESPACES, pattern):
        raise ValueError("must be a namespace (a-z, 0-9 and -), in which * and ? stand for anything")
    return pattern


NamespacePattern = Annotated[
    str, AfterValidator(_checked_namespace), WithJsonSchema({"type": "string", "pattern": f"^{_NAMESPACES}$"})
]
"""Namespaces in a policy file."""
KeyPattern = Annotated[str, AfterValidator(_checked_key), WithJsonSchema({"type": "string", "examples": ["*", *KEYS]})]
"""Keys of annotations in a policy file."""


class AnnotationOptions(Section):
    """The annotations that pods may use."""

    allow: dict[NamespacePattern, tuple[KeyPattern, ...]] = Field(default_factory=dict)
    """For each namespace (* and ? are wildcards), the keys of the annotations that its pods may use, written without
    domain and scope; * allows all of them. criproxy ignores all other annotations. By default, pods of every namespace
    may use all annotations except prefer-reserved-cpus, cpu.preserve and those that name classes."""
    deny: dict[NamespacePattern, tuple[KeyPattern, ...]] = Field(default_factory=dict)
    """For each namespace, in the same form, the annotations that its pods may not use, even if `allow` lists them."""


class _View(NamedTuple):
    """A machine as options make a policy see it."""

    usable: Topology
    reserved: CpuSet


class Options(Section):
    """Options of any policy; a policy with more of them derives from this."""

    reserved_cpus: CpuSetOption = frozenset()
    """CPUs that never become exclusive, such as "0-1,8": they stay shared, so that the node's own processes always have
    CPUs to run on."""
    available_resources: AvailableResources = AvailableResources()
    """The part of the machine that containers get; by default everything that pods may use."""
    reserved_resources: ReservedResources = ReservedResources()
    """The same as reservedCpus, in the form of CRI-RM and nri-plugins: a list of CPUs, or only how many."""
    memory_types: tuple[MemoryKindOption, ...] = COUNTED
    """The kinds of memory that count as room for containers: dram, pmem (persistent memory and CXL), hbm, and device
    (memory of accelerators). Containers get NUMA nodes with memory of other kinds only if their pods request it."""
    cpu_quota: Literal["keep", "lift"] = "keep"
    """What criproxy does with the CPU limit (the CFS quota) of a container that runs only on exclusive CPUs: keep it,
    or lift it for as long as the container runs there. See "CPU limits of exclusive containers"."""
    annotations: AnnotationOptions = AnnotationOptions()
    """Which pods may use which annotations."""
    rules: Literal["nri", "crirm"] = "nri"
    """Which project's rules apply where nri-plugins and CRI-RM differ."""

    def usable(self, topology: Topology) -> Topology:
        """The machine as far as a policy with these options uses it; the same object for the same machine."""
        return _view(self, topology).usable

    def within(self, node: Node) -> Node:
        """The node on the part of its machine that is `usable`: what a policy looks at."""
        usable = self.usable(node.topology)
        return node if usable is node.topology else node.replace(topology=usable)

    def reserved(self, topology: Topology) -> CpuSet:
        """The CPUs that may not become exclusive on a machine, or on its usable part."""
        return _view(self, topology).reserved

    def held(self, node: Node) -> CpuSet:
        """The CPUs that groups of containers have on *node*: not exclusive, but no other container gets them."""
        return NO_CPUS

    def resolved(self, host: HostReader) -> Self:
        """These options with the CPUs of the cgroup that they name, if they do and it is there.

        A policy whose options name other things of the host adds these.
        """
        available = self.available_resources.cpu
        if available is None or not available.cgroup or (cpus := host.cgroup(available.cgroup)) is None:
            return self
        resources = self.available_resources.model_copy(update={"cpu": replace(available, cpus=cpus)})
        return self.model_copy(update={"available_resources": resources})

    def contradictions(self) -> Iterator[Misfit]:
        """What these options ask for that no machine can have; a policy with more options adds its own."""
        if self.reserved_cpus and self.reserved_resources.cpu is not None:
            yield Misfit(("reservedCpus",), "means the same as reservedResources.cpu: set only one of them")
        elif (available := self.available_resources.cpu) and available.listed is not None:
            yield from self._reserved_beyond(available.listed)

    def notes(self) -> Iterator[Misfit]:
        """Options that are given and have no effect; a policy with such options reports them."""
        return iter(())

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """What these options ask for that the machine *topology* lacks; a policy with more options adds its own."""
        path, reserved = self._reserved_path, self.reserved(topology)
        yield from missing_cpus(path, reserved, topology)
        available = self.available_resources.cpu
        if available is not None:
            yield from _unavailable(available, topology)
        usable = self.usable(topology).cpus
        yield from self._reserved_beyond(usable, online=topology.cpus)
        if usable and reserved >= usable:
            yield Misfit(path, f"reserves every CPU that pods may use ({format_cpuset(usable)}): leave at least one")

    def rest(self, topology: Topology) -> CpuSet:
        """The available CPUs of a machine that are not reserved: without any, no container can be placed."""
        available, asked = self.available_resources.cpu, self.reserved_resources.cpu
        if available is not None and available.cpus is None:
            return frozenset()
        cpus = topology.cpus if available is None else available.of(topology.cpus)
        if asked is not None and asked.cpus is None and asked.count >= len(cpus):
            return frozenset()
        return cpus - self.reserved(topology)

    @property
    def _reserved_path(self) -> tuple[str, ...]:
        return ("reservedCpus",) if self.reserved_resources.cpu is None else ("reservedResources", "cpu")

    def _reserved_beyond(self, available: CpuSet, online: CpuSet | None = None) -> Iterator[Misfit]:
        """The reserved CPUs that are not *available*; where the CPUs that are *online* are known, only of these."""
        asked = self.reserved_resources.cpu
        if asked is not None and asked.cpus is None and asked.count > len(available):
            text = f"reserves {asked.count} CPUs, but {only_are(len(available))} available ({format_cpuset(available)})"
            yield Misfit(self._reserved_path, text)
        reserved = self.reserved_cpus if asked is None else asked.cpus or frozenset()
        if beyond := (reserved if online is None else reserved & online) - available:
            text = f"{_counted(beyond)} not among the available ones, {format_cpuset(available)}"
            yield Misfit(self._reserved_path, text)


@remembered(16)
def _view(options: Options, topology: Topology) -> _View:
    """What *options* make of a machine; what is usable of it is the very same where they are asked about that."""
    available, reserved = options.available_resources.cpu, options.reserved_resources.cpu
    usable = narrowed(topology, available, options.memory_types or COUNTED)
    return _View(usable, options.reserved_cpus if reserved is None else interned(reserved.of(usable)))


def _unavailable(available: AvailableCpus, topology: Topology) -> Iterator[Misfit]:
    path = ("availableResources", "cpu")
    if available.cpus is None:
        yield Misfit(path, f"there is no cgroup {available.cgroup!r} with a cpuset")
    elif not available.excluded and not available.cgroup:
        yield from missing_cpus(path, available.cpus, topology)
    if topology.cpus and not available.of(topology.cpus):
        text = f"leaves none of the CPUs that pods may use, {format_cpuset(topology.cpus)}: name some of these"
        yield Misfit(path, text)


def options_of(policy: object) -> Options:
    """The options of a policy; the defaults where it shows none."""
    options = getattr(policy, "options", None)
    return options if isinstance(options, Options) else Options()


def may_use(options: Options, key: str) -> bool:
    """Whether some namespace may use the annotation *key*."""
    allowed, denied = options.annotations.allow, options.annotations.deny
    if matches_one(key, denied.get("*", ())):
        return False
    return not allowed or any(matches_one(key, patterns) for patterns in allowed.values())


def missing_cpus(path: tuple[str | int, ...], cpus: CpuSet, topology: Topology) -> Iterator[Misfit]:
    """Those of *cpus* that the machine has not, and those that its pods must not use."""
    if absent := cpus - topology.online_cpus:
        online = format_cpuset(topology.online_cpus)
        yield Misfit(path, f"{_counted(absent)} not online in this machine, which has {online}")
    if forbidden := (cpus & topology.online_cpus) - topology.cpus:
        allowed = format_cpuset(topology.cpus)
        yield Misfit(path, f"{_counted(forbidden)} not for pods: their cgroup allows {allowed}")


def _counted(cpus: CpuSet) -> str:
    return f"{numbered('CPU', cpus)} {are(len(cpus))}"


class Exclusive(Section):
    """What happens to exclusive CPUs."""

    keep: Literal["pod", "none"] = "pod"
    """What happens to exclusive CPUs when their container ends and its pod does not. pod: the pod keeps them, up to its
    total request, so that a container that crashes gets them back. none: other containers may get them."""


def exclusive_of(policy: object) -> Exclusive | None:
    """The options of a policy about such CPUs; None for one that gives none, or by other rules."""
    found = getattr(options_of(policy), "exclusive", None)
    return found if isinstance(found, Exclusive) else None
