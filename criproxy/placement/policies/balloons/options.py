"""The options of the policy ``balloons`` and what is wrong with them, by themselves or on a machine."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from pydantic.alias_generators import to_camel

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.text.amounts import are
from criproxy.placement.alloc.affinity.expressions import keys_of
from criproxy.placement.options.match_keys import KEYS, is_key
from criproxy.placement.options.policy_options import Misfit, Path, may_use
from criproxy.placement.policies.balloons.balloon_choice import keys_in
from criproxy.placement.policies.balloons.balloon_cpus import smallest, with_parts
from criproxy.placement.policies.balloons.fields import (
    ANNOTATION,
    DEFAULT,
    RESERVED,
    SYSFS,
    BalloonsFields,
    BalloonType,
)
from criproxy.placement.policies.balloons.kinds import POD_RESOURCES, Kind, catalogue, device_cpus
from criproxy.placement.policies.balloons.state import State, read

EVERYTHING = "*"
Taken = list[tuple[str, str]]
"""Patterns of namespaces, each with the type that takes them."""
Types = Mapping[str, BalloonType]
_FOR_SIMPLE_TYPES = (
    "prefer_spread_on_physical_cores",
    "allocator_topology_balancing",
    "prefer_close_to_devices",
    "prefer_isol_cpus",
    "prefer_core_type",
    "loads",
)
"""Options about the choice of CPUs, which the components of a composite type make."""


class BalloonsOptions(BalloonsFields):
    """Options of the policy ``balloons``."""

    def held(self, node: Node) -> CpuSet:
        """Those of the balloons with containers, without idle ones that are lent to them."""
        in_balloons = (grant for grant in node.grants.values() if grant.pool and not grant.is_preserved)
        return NO_CPUS.union(*(grant.home or grant.cpus for grant in in_balloons))

    def contradictions(self) -> Iterator[Misfit]:
        """What these options ask that no machine can give."""
        yield from super().contradictions()
        seen: dict[str, int] = {}
        types = {kind.name: kind for kind in self.balloon_types}
        classes = [load.name for load in self.load_classes]
        for index, kind in enumerate(self.balloon_types):
            path = ("balloonTypes", index)
            if seen.setdefault(kind.name, index) != index:
                text = f"is also the name of balloonTypes[{seen[kind.name]}]: give each type a name of its own"
                yield Misfit((*path, "name"), text)
            yield from _sizes(path, kind)
            yield from _components(path, kind, types)
            yield from _names(path, kind, classes)
        yield from unreachable(self)

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """Balloons and devices that the machine *topology* cannot have."""
        yield from super().misfits(topology)
        for index, each in enumerate(self.balloon_types):
            for place, path in enumerate(each.prefer_close_to_devices):
                if not path.startswith(POD_RESOURCES) and not device_cpus(path, topology, self):
                    where = ("balloonTypes", index, "preferCloseToDevices", place)
                    yield Misfit(where, f"{path} is not in this machine, or has no CPUs")
        types = catalogue(self, self.usable(topology))
        state = read(types, Node(types.topology), {})
        index_of = {each.name: index for index, each in enumerate(self.balloon_types)}
        for kind in types.kinds:
            yield from _too_large(state, kind, index_of.get(kind.name))


def _too_large(state: State, kind: Kind, index: int | None) -> Iterator[Misfit]:
    """Whether the machine has not enough CPUs for the smallest balloon, or for all that have to be there."""
    cpus = state.catalogue.topology.cpus
    least, there = sum(smallest(with_parts(kind))), len(state.of(kind))
    machine, free = f"{len(cpus)} ({format_cpuset(cpus)})", len(state.free)
    left = f"{free} {are(free)} left of {machine}"
    others = ", ".join(f"{b.name} has {format_cpuset(b.home)}" for b in state.balloons.values() if b.home)
    if kind in state.catalogue.created and there < kind.type.min_balloons:
        path: tuple[str | int, ...] = ("reservedCpus",) if index is None else ("balloonTypes", index, "minBalloons")
        text = f"{kind.type.min_balloons} balloons of type {kind.name} need {least} CPUs each, but {left}"
        text += f": {others}" if others else ""
        yield Misfit(path, text)
    elif index is not None and not there and not kind.refused and least > len(state.free):
        has = f"{left}: {others}" if others else f"there are {machine}"
        text = f"a balloon of type {kind.name} needs {least} CPUs, but {has}"
        yield Misfit(("balloonTypes", index, "minCPUs"), text)


def unreachable(options: BalloonsFields) -> Iterator[Misfit]:
    """A sentence for each type into which no container can come as its author means it, and for each unknown key."""
    types = options.balloon_types
    parts = {part.balloon_type for kind in types for part in kind.components}
    named = may_use(options, ANNOTATION)
    taken: Taken = []
    if RESERVED not in {kind.name for kind in types}:
        taken += _taken_by_reserved(options)
    for index, kind in enumerate(types):
        path = ("balloonTypes", index)
        yield from _unknown_keys(path, kind)
        if kind.name not in {*parts, RESERVED, DEFAULT}:
            yield from _unreached(path, kind, taken, named=named)
        taken += [(pattern, kind.name) for pattern in kind.namespaces]
        taken += _taken_by_reserved(options) if kind.name == RESERVED else []
        if any(expression.operator == "AlwaysTrue" for expression in kind.match_expressions):
            taken.append((EVERYTHING, kind.name))
    for place, expression in enumerate(options.preserve.match_expressions):
        yield from _unknown(("preserve", "matchExpressions", place), keys_of(expression.key), expression.operator)


def _taken_by_reserved(options: BalloonsFields) -> Taken:
    return [(pattern, RESERVED) for pattern in options.reserved_namespaces]


def _unreached(path: Path, kind: BalloonType, taken: Taken, *, named: bool) -> Iterator[Misfit]:
    """Whether earlier types take every container of this one, or it has no condition and no pod may name it."""
    if not (kind.namespaces or kind.match_expressions):
        if not named:
            text = "no container can get this type: give namespaces or matchExpressions, or permit"
            yield Misfit((*path, "name"), f"{text} {ANNOTATION} in annotations.allow")
        return
    first = [_first(pattern, taken) for pattern in kind.namespaces]
    all_taken_by = _first(EVERYTHING, taken)
    if not all(first) or (kind.match_expressions and not all_taken_by):
        return
    by = next(filter(None, first), all_taken_by)
    what = ", ".join(kind.namespaces) or "the containers"
    option = "namespaces" if kind.namespaces else "matchExpressions"
    yield Misfit((*path, option), f"has no effect: {by} comes first and takes all of {what}; put {kind.name} before it")


def _first(pattern: str, taken: Taken) -> str:
    """The type that takes all namespaces of *pattern*; empty where none does."""
    return next((name for earlier, name in taken if _covers(earlier, pattern)), "")


def _covers(earlier: str, pattern: str) -> bool:
    """Whether *earlier* stands for every namespace that *pattern* does."""
    if "*" in pattern and "?" in earlier:  # what is any text is not any character
        return earlier == pattern
    return fnmatchcase(pattern, earlier)


def _unknown_keys(path: Path, kind: BalloonType) -> Iterator[Misfit]:
    for place, expression in enumerate(kind.match_expressions):
        yield from _unknown((*path, "matchExpressions", place), keys_of(expression.key), expression.operator)
    for key in keys_in(kind.group_by):
        yield from _unknown((*path, "groupBy"), keys_of(key))


def _unknown(path: Path, keys: Sequence[str], operator: str = "") -> Iterator[Misfit]:
    for key in keys if operator != "AlwaysTrue" else ():
        if not is_key(key):
            yield Misfit(path, f"no container has the key {key!r}; keys are: {KEYS}")


def _sizes(path: Path, kind: BalloonType) -> Iterator[Misfit]:
    if kind.max_cpus > 0 and kind.min_cpus > kind.max_cpus:
        yield Misfit((*path, "minCPUs"), f"is {kind.min_cpus}, which is more than maxCPUs ({kind.max_cpus})")
    if kind.max_balloons and kind.min_balloons > kind.max_balloons:
        text = f"is {kind.min_balloons}, which is more than maxBalloons ({kind.max_balloons})"
        yield Misfit((*path, "minBalloons"), text)
    if kind.name == RESERVED:
        for option, value in (("minBalloons", kind.min_balloons), ("maxBalloons", kind.max_balloons)):
            if value > 1:
                yield Misfit((*path, option), "must be 1: there is exactly one reserved balloon")


def _components(path: Path, kind: BalloonType, types: Types) -> Iterator[Misfit]:
    for place, part in enumerate(kind.components):
        if part.balloon_type not in types:
            text = f"there is no balloon type {part.balloon_type!r}; types are: {', '.join(types)}"
            yield Misfit((*path, "components", place), text)
    if kind.name in _reached(kind, types):
        yield Misfit((*path, "components"), f"{kind.name} contains itself")
    if kind.component_creation and not kind.components:
        yield Misfit((*path, "componentCreation"), "has no effect without components")
    for name in _FOR_SIMPLE_TYPES if kind.components else ():
        if getattr(kind, name) not in (None, False, ()):
            text = "has no effect in a type with components: set it in the types of these"
            yield Misfit((*path, to_camel(name)), text)


def _names(path: Path, kind: BalloonType, classes: list[str]) -> Iterator[Misfit]:
    for place, load in enumerate(kind.loads):
        if load not in classes:
            text = f"there is no load class {load!r}; load classes are: {', '.join(classes) or 'none'}"
            yield Misfit((*path, "loads", place), text)
    for place, device in enumerate(kind.prefer_close_to_devices):
        if not device.startswith((POD_RESOURCES, SYSFS)) or ".." in device:
            text = f"{device!r} is neither a path below /sys nor podresourceapi:NAME"
            yield Misfit((*path, "preferCloseToDevices", place), text)


def _reached(kind: BalloonType, types: Types) -> set[str]:
    """The names of all that *kind* is made of, its own if it is made of itself."""
    found: set[str] = set()
    left = [part.balloon_type for part in kind.components]
    while left:
        name = left.pop()
        if name not in found and name in types:
            found.add(name)
            left += [part.balloon_type for part in types[name].components]
    return found
