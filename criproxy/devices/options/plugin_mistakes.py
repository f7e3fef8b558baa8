"""Mistakes in the section of the device plugin: cards that are offered twice, or cannot be found or requested."""

from collections.abc import Iterator, Mapping, Sequence

from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import SharedCards, replica_id
from criproxy.devices.options.option_types import class_mistakes, near
from criproxy.devices.options.profiles import profile_mistakes
from criproxy.devices.plugin.plan import PluginPlan
from criproxy.placement.options.policy_options import Misfit, Path

MAX_ID = 63
"""The maximum length of a device's id, according to Kubernetes' documentation."""
_NVIDIA_DOMAIN = "nvidia.com/"

Named = Sequence[tuple[str, str]]
"""The classes to advertise, each with its resource or an empty string."""


def default_resource(kind: DeviceClass) -> str:
    """Return the only resource of a class; empty if it has several, patterns, or NVIDIA's file that sets them."""
    if kind.name == NVIDIA.name or len(kind.resources) != 1 or set("*?") & set(kind.resources[0]):
        return ""
    return kind.resources[0]


def plugin_mistakes(plan: PluginPlan, classes: Mapping[str, DeviceClass], named: Named | None) -> Iterator[Misfit]:
    """Yield the mistakes in the section; paths start there.

    Args:
        plan: the contents of the section.
        classes: the device classes in use, by name.
        named: the classes to advertise in the file; None if the file does not list any.
    """
    wrong = [*_of_classes(named or (), classes)]
    yield from wrong
    if not wrong:  # else there would be mistakes about sharing resources that no class has
        yield from _of_sharing(plan, classes)
        yield from profile_mistakes(plan, classes)
    if plan.nvidia_config and plan.nvidia is None and not wrong:
        yield Misfit(("nvidiaConfig",), "has no effect: advertise has no nvidia")
    yield from _of_health(plan, classes, {name for name, _ in named or ()})


def _of_classes(named: Named, classes: Mapping[str, DeviceClass]) -> Iterator[Misfit]:
    seen: set[str] = set()
    for number, (name, resource) in enumerate(named):
        path = ("advertise", number)
        kind = classes.get(name)
        if kind is None:
            yield Misfit(path, f"there is no class {name!r}{near(name, classes)}; devices.classes can add one")
        elif name in seen:
            yield Misfit(path, f"the class {name!r} is listed twice: its cards are offered as one resource")
        else:
            yield from _of_class(path, kind, resource)
        seen.add(name)


def _of_class(path: Path, kind: DeviceClass, resource: str) -> Iterator[Misfit]:
    has = ", ".join(kind.resources)
    if kind.name == NVIDIA.name:
        if resource:
            yield Misfit((*path, "resource"), "leave it out: resources.gpus of NVIDIA's file names the resources")
        return
    if not resource and not default_resource(kind):
        example = kind.resources[0].translate({ord("*"): None, ord("?"): None})
        yield Misfit(path, f"the class {kind.name!r} has {has}: add the resource to offer, such as {example}")
    if resource and not kind.serves(resource):
        text = f"{resource} is not a resource of the class {kind.name!r}, which has {has}: add it to resources there"
        yield Misfit((*path, "resource"), text)
    if not kind.per_device:
        yield Misfit(path, f"the cards of the class {kind.name!r} cannot be found: it needs nodes.perDevice")
    if kind.id_format == "uuid":
        yield Misfit(path, f"criproxy knows no UUIDs of {kind.name!r}: give the class an idFormat of index or minor")
    if kind.id_format == "plugin" and kind.hide_value:
        text = f"the values of {kind.visible_env} are known only to the vendor's plugin"
        yield Misfit(path, f"{text}: give the class {kind.name!r} an idFormat of index, minor or as-is")


def _of_sharing(plan: PluginPlan, classes: Mapping[str, DeviceClass]) -> Iterator[Misfit]:
    for number, entry in enumerate(plan.sharing):
        path = ("sharing", number)
        wrong = [*_of_resource(path, entry, plan, classes)]
        yield from wrong or _of_rename(path, entry, plan, classes)
        yield from _of_ids(path, entry)
        for place, other in enumerate(plan.sharing[:number]):
            yield from _of_both(path, entry, f"sharing[{place}]", other)


def _of_resource(
    path: Path, entry: SharedCards, plan: PluginPlan, classes: Mapping[str, DeviceClass]
) -> Iterator[Misfit]:
    name, place = entry.name, (*path, "resource")
    offered = [each.resource for each in plan.advertised if each.resource]
    kind = next((kind for kind in classes.values() if kind.serves(name)), None)
    if name in offered or (plan.nvidia and ((kind and kind.name == NVIDIA.name) or name.startswith(_NVIDIA_DOMAIN))):
        return
    advertised = kind and next((each for each in plan.advertised if each.kind.name == kind.name), None)
    if kind is None:
        yield Misfit(place, f"{name} belongs to no class{near(name, offered)}")
    elif advertised:
        yield Misfit(place, f"the class {kind.name!r} is offered as {advertised.resource}, and not as {name}")
    else:
        yield Misfit(place, f"the class {kind.name!r}, to which {name} belongs, is not in advertise: add it")


def _of_rename(
    path: Path, entry: SharedCards, plan: PluginPlan, classes: Mapping[str, DeviceClass]
) -> Iterator[Misfit]:
    place = (*path, "rename")
    own = next((each.kind for each in plan.advertised if entry in plan.shared_of(each)), None)
    if entry.rename == entry.name:
        yield Misfit(place, f"is {entry.name} itself: leave it out, or choose another name")
    if not entry.rename or own is None:
        return
    if other := next((kind for kind in classes.values() if kind.name != own.name and kind.serves(entry.rename)), None):
        yield Misfit(place, f"{entry.rename} belongs to the class {other.name!r}: choose a name of {own.name!r}")
    first = next(each.name for each in plan.sharing if each.rename == entry.rename)
    if first != entry.name:
        yield Misfit(place, f"{entry.rename} is also the new name of {first}: choose another one")
    if own.name == NVIDIA.name and not entry.rename.startswith(_NVIDIA_DOMAIN):
        yield Misfit(place, f"a resource of NVIDIA's cards must begin with {_NVIDIA_DOMAIN}, unlike {entry.rename}")


def _of_ids(path: Path, entry: SharedCards) -> Iterator[Misfit]:
    for place, name in enumerate(entry.devices if isinstance(entry.devices, tuple) else ()):
        if len(replica_id(name, entry.replicas - 1)) > MAX_ID:
            text = f"the ids of its replicas have more than {MAX_ID} characters, which the kubelet may not accept"
            yield Misfit((*path, "devices", place), f"{text}: name the card by its index")


def _of_both(path: Path, entry: SharedCards, place: str, other: SharedCards) -> Iterator[Misfit]:
    if entry.target == other.target and entry.only_one != other.only_one:
        text = f"differs from {place}, which also offers {entry.target}: both need the same value"
        yield Misfit((*path, "failRequestsGreaterThanOne"), text)
    if entry.name != other.name or (entry.replicas, entry.target) == (other.replicas, other.target):
        return
    if both := _in_both(entry, other):
        are = "is" if both.startswith("card ") else "are"
        text = f"{both} of {entry.name} {are} also shared by {place}, but with different replicas or rename"
        yield Misfit((*path, "devices"), f"{text}: list different cards in one of them")


def _in_both(one: SharedCards, other: SharedCards) -> str:
    """Return cards that both entries certainly select; an index and an id may also be the same card."""
    named, rest = (one.devices, other.devices) if isinstance(one.devices, tuple) else (other.devices, one.devices)
    if not isinstance(named, tuple):
        return "cards"
    for name in named:
        if rest == "all" or (name in rest if isinstance(rest, tuple) else name.isdecimal() and int(name) < rest):
            return f"card {name}"
    return ""


def _of_health(plan: PluginPlan, classes: Mapping[str, DeviceClass], named: set[str]) -> Iterator[Misfit]:
    advertised = {each.kind.name for each in plan.advertised} | named
    seen: set[str] = set()
    for number, each in enumerate(plan.health_commands):
        path = ("health", "commands", number)
        twice = "already has a command: let one command call the other"
        yield from class_mistakes((*path, "class"), each.kind, seen, advertised, twice)
        if not each.command[0].startswith("/"):
            text = f"must begin with the absolute path of a program, not {each.command[0]!r:.60}"
            yield Misfit((*path, "command"), text)
        if each.timeout_s > each.period_s:
            yield Misfit((*path, "timeout"), "must not be longer than period, after which the command runs again")
