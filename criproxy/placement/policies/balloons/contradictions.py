"""What balloon types ask that no machine can give."""

from collections.abc import Iterator, Mapping

from pydantic.alias_generators import to_camel

from criproxy.placement.options.policy_options import Misfit, Path
from criproxy.placement.policies.balloons.fields import RESERVED, BalloonsFields, BalloonType
from criproxy.placement.policies.balloons.kinds import is_device
from criproxy.placement.policies.balloons.reach import unreachable

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


def balloon_contradictions(options: BalloonsFields) -> Iterator[Misfit]:
    """A sentence for each, with the option that it is about."""
    seen: dict[str, int] = {}
    types = {kind.name: kind for kind in options.balloon_types}
    classes = [load.name for load in options.load_classes]
    for index, kind in enumerate(options.balloon_types):
        path = ("balloonTypes", index)
        if seen.setdefault(kind.name, index) != index:
            text = f"is also the name of balloonTypes[{seen[kind.name]}]: give each type a name of its own"
            yield Misfit((*path, "name"), text)
        yield from _sizes(path, kind)
        yield from _components(path, kind, types)
        yield from _names(path, kind, classes)
    yield from unreachable(options)


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
        if not is_device(device):
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
