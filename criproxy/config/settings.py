"""What a policy file says, checked: the options that do not depend on the policy, and those of the policy.

Policies are found by name: those of this package, and those of others with the entry-point group `GROUP`. An entry
point's name is what the policy file says after ``policy:``; it leads to a `criproxy.placement.policies.Entry`. Packages
are only listed here; one is imported when a policy file names its policy.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.alias_generators import to_camel

from criproxy.config.document import Document
from criproxy.config.mistakes import Mistake, did_you_mean, shown
from criproxy.config.predecessors import instead_of_policy, recognised
from criproxy.config.validation_errors import dotted, explain, names_of
from criproxy.errors import ConfigError, CriproxyError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.placement.options.class_rules import classes_of
from criproxy.placement.options.policy_options import Misfit, Options
from criproxy.placement.options.usable import HostReader
from criproxy.placement.policies import BUILTIN, Entry
from criproxy.placement.policies.api import Policy

if TYPE_CHECKING:
    from criproxy.devices.options.options import DeviceOptions
else:
    DeviceOptions = NoneType  # see `with_devices`

GROUP = "criproxy.policies"


def names() -> list[str]:
    """The names of all policies: ours, then those of other packages."""
    external = {point.name for point in entry_points(group=GROUP)}
    return [*BUILTIN, *sorted(external - BUILTIN.keys())]


def find(name: str) -> Entry:
    """The policy *name*.

    Raises:
        ConfigError: there is none of that name or more than one, or its package is broken.
    """
    points = list({(point.value, _package(point)): point for point in entry_points(group=GROUP, name=name)}.values())
    if name not in BUILTIN and not points:
        known = names()
        hint = instead_of_policy(name) or did_you_mean(name, known)
        raise ConfigError(f"unknown policy {shown(name)}; policies are: {', '.join(known)}{hint}")
    if (name in BUILTIN) + len(points) > 1:
        owners = ["criproxy itself"] * (name in BUILTIN) + sorted(_package(point) for point in points)
        raise ConfigError(f"the policy {name!r} is in {' and in '.join(owners)}: uninstall all but one")
    return BUILTIN[name] if name in BUILTIN else _load(points[0])


def _load(point: EntryPoint) -> Entry:
    who = f"the policy {point.name!r} of {_package(point)} cannot be used"
    try:
        entry = point.load()
    except Exception as error:
        raise ConfigError(f"{who}: {point.value} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(entry, Entry):
        raise ConfigError(
            f"{who}: {point.value} must be a criproxy.placement.policies.Entry, but is of type {type(entry).__name__}"
        )
    options: object = entry.options  # whatever its author put there
    if not (isinstance(options, type) and issubclass(options, Options) and callable(entry.build)):
        raise ConfigError(
            f"{who}: its Entry needs a class of options that derives from "
            "criproxy.placement.options.policy_options.Options, "
            "and a callable that builds the policy"
        )
    return entry


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown package"


class Common(BaseModel):
    """Options beside those of the policy."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    policy: str = Field(examples=[*BUILTIN])
    """The name of the policy that decides where containers run: one of criproxy's own, or an installed one."""
    on_error: Literal["shared", "pass", "refuse"] = "shared"
    """What criproxy does with a new container when criproxy itself fails (because of an error in the policy, a disk
    failure or a handler that hangs). shared: run it on the CPUs that are not exclusive. pass: create it as the kubelet
    requested, and give it its CPUs before it starts. refuse: refuse it, and the kubelet retries. The container never
    starts on CPUs that are exclusive to another container."""
    adopt: Literal["pin", "watch"] = "pin"
    """What criproxy does with a running container that it did not place. pin: keep it on its CPUs, except those that
    are exclusive to other containers. watch: leave it alone; its CPUs do not become exclusive to others while it
    runs."""
    promote: Literal["off", "when-free"] | None = None
    """Which Guaranteed containers with shared CPUs get the exclusive CPUs that the policy would give them, as soon as
    there is room. off: none. when-free: all. By default: containers that were created while criproxy was failing,
    bypassed or not asked, and those for which there was no place when criproxy placed all containers again; but not
    those from before criproxy placed the first container of the node, or those that already shared CPUs before the
    policy changed. Unless promote is off, shared containers without a place for the same reasons also get their place
    in a pool or balloon."""
    apply: Literal["new", "all"] = "new"
    """The containers to which a changed policy file applies: only new ones (new), or all. With all, criproxy also
    places running containers again: they keep their CPUs if possible, or move to CPUs near their memory. Their memory
    does not move."""
    devices: DeviceOptions | None = None
    """Which containers see which accelerators, under every policy. Without this section, criproxy leaves devices alone;
    with {}, it hides every card from containers to which no card is allocated."""


@cache
def with_devices() -> type[Common]:
    """`Common` for files with the section ``devices``, whose models take 0.05 s of a start: others do without them."""
    from criproxy.devices.options.options import DeviceOptions

    return create_model(Common.__name__, __base__=Common, devices=(DeviceOptions | None, None))


_CLASS_OPTIONS = frozenset(
    (
        *("classes", "rdt", "cpuClasses", "schedulingClasses", "controllableInterrupts"),
        *("idleCPUClass", "sharedPoolCPUClass", "reservedPoolCPUClass", "defaultExclusiveCPUClass"),
        *("namespaceSchedulingClasses", "podQoSSchedulingClasses"),
    )
)
_OF_BALLOON_TYPES = frozenset(("cpuClass", "schedulingClass", "irqMode", "irqClaim"))


def options_model(entry: Entry, data: Mapping[str, Any]) -> type[Options]:
    """Return the model of the options of a policy; for a file with classes one that has these.

    The models of classes take 0.05 s of a start: other files do without them.
    """
    types = data.get("balloonTypes")
    listed = (kind.keys() for kind in types if isinstance(kind, dict)) if isinstance(types, list) else ()
    if data.keys() & _CLASS_OPTIONS or any(keys & _OF_BALLOON_TYPES for keys in listed):
        from criproxy.placement.classes.section import with_classes

        return with_classes(entry.options)
    return entry.options


@dataclass(frozen=True, slots=True)
class Settings:
    """One checked policy file."""

    common: Common
    options: Options
    """Those of the policy that `common` names."""
    entry: Entry
    """That policy."""
    source: Path

    def build_policy(self) -> Policy:
        """A policy with these options.

        Raises:
            ConfigError: its own code cannot make one of them.
        """
        try:
            return self.entry.build(self.options)
        except Exception as error:
            who = f"{self.source}: the policy {self.common.policy!r}"
            raise ConfigError(f"{who} cannot be built from these options: {error!r}") from error

    def notes(self) -> Iterator[Misfit]:
        """Yield the options that are understood, and have no effect."""
        yield from self.options.notes()
        if self.common.policy == "none" and classes_of(self) is not None:
            yield Misfit(("classes",), "has no effect: the policy none places no containers")

    @property
    def external(self) -> bool:
        """Whether the policy is of another package."""
        return self.common.policy not in BUILTIN

    def explicit(self) -> set[str]:
        """The names of the options that the file gives; all others have their default."""
        return {
            type(model).model_fields[name].alias or name
            for model in (self.common, self.options)
            for name in model.model_fields_set
        }

    def digest(self) -> str:
        """A word that changes whenever an option of the file changes; comments and formatting do not count.

        Nor does ``devices.plugin``: it says what the device plugin offers, and places no container.
        """
        explicit = self.explicit()
        said = {name: value for name, value in self.values().items() if name in explicit}
        if isinstance(devices := said.get("devices"), dict):
            said["devices"] = {name: value for name, value in devices.items() if name != "plugin"}
        if (available := self.options.available_resources.cpu) and available.cgroup:
            said["cgroup"] = format_cpuset(available.cpus or frozenset())  # the CPUs that were read there count, too
        return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def values(self) -> Mapping[str, Any]:
        """Every option in force by its name in the file, as plain data."""
        return {
            name: value
            for model in (self.common, self.options)
            for name, value in model.model_dump(mode="json", by_alias=True).items()
        }


@dataclass(frozen=True, slots=True)
class Contents:
    """The result of reading a document."""

    settings: Settings | None
    """None if something is *wrong*."""
    wrong: list[Mistake]
    """Mistakes on any machine."""
    unfit: list[Mistake]
    """What it asks for and this machine lacks."""


def read_settings(
    document: Document,
    source: Path,
    topology: Topology | None = None,
    host: HostReader | None = None,
) -> Contents:
    """The settings, if nothing is wrong on any machine, and all mistakes; arguments as for `load.load`."""
    mistakes, unfit = list(document.mistakes), list[Mistake]()
    data = document.data
    if not isinstance(data, dict):
        return Contents(None, mistakes or [Mistake(1, 1, _not_options(data))], [])
    if predecessor := recognised(data):
        mistakes.append(Mistake(0, 0, predecessor))
    common_names = set(names_of(Common))
    described = Common if data.get("devices") is None else with_devices()
    common = _validate(described, {k: v for k, v in data.items() if k in common_names}, document, mistakes)
    if isinstance(common, Common) and common.devices is not None:
        mistakes += _placed(
            (Misfit(("devices", *path), text) for path, text in common.devices.contradictions()), document
        )
    entry = _entry(data.get("policy"), document, mistakes)
    rest = {name: value for name, value in data.items() if name not in common_names}
    model = options_model(entry, rest) if entry else _common_options(rest)
    options = _validate(model, rest, document, mistakes)
    if isinstance(options, Options):
        options, of_options, unfit = _held_to(options, document, topology, host)
        mistakes += of_options
    if mistakes or not isinstance(common, Common) or not isinstance(options, Options) or entry is None:
        return Contents(None, mistakes, unfit)
    return Contents(Settings(common, options, entry, source), [], unfit)


def _held_to(
    options: Options, document: Document, topology: Topology | None, host: HostReader | None
) -> tuple[Options, list[Mistake], list[Mistake]]:
    """The options resolved on the host, their contradictions, and, if there are none, what does not fit the machine."""
    try:
        options = options.resolved(host) if host else options
        if found := list(_placed(options.contradictions(), document)):
            return options, found, []
        return options, [], list(_placed(options.misfits(topology), document)) if topology is not None else []
    except Exception as error:  # noqa: BLE001 (a policy of another package may raise anything; criproxy does not use it then)
        if isinstance(error, CriproxyError):
            return options, [Mistake(0, 0, str(error))], []
        text = f"policy: its package failed with these options: {type(error).__name__}: {error}"
        return options, [Mistake(*document.place(("policy",), of_key=False), text)], []


def _entry(name: object, document: Document, mistakes: list[Mistake]) -> Entry | None:
    if not isinstance(name, str):
        return None  # already a mistake of the common options
    try:
        return find(name)
    except ConfigError as error:
        mistakes.append(Mistake(*document.place(("policy",), of_key=False), f"policy: {error}"))
        return None


def _common_options(data: dict[str, Any]) -> type[Options]:
    """The options to check by when the policy is not known; takes out of *data* what only some policies have."""
    for entry in BUILTIN.values():
        for name in set(names_of(entry.options)) - set(names_of(Options)):
            data.pop(name, None)
    return options_model(BUILTIN["none"], data)


def _validate(
    model: type[BaseModel], data: dict[str, Any], document: Document, mistakes: list[Mistake]
) -> BaseModel | None:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # A value that is already a mistake as YAML is not reported again for having no value.
        reported = {(mistake.line, mistake.column) for mistake in document.mistakes}
        also = () if issubclass(model, Common) else (*names_of(Common), "classes", "rdt")
        found = (explain(detail, model, document, also) for detail in error.errors(include_url=False))
        mistakes += [mistake for mistake in found if (mistake.line, mistake.column) not in reported]
        return None


def _placed(found: Iterable[Misfit], document: Document) -> Iterator[Mistake]:
    for path, text in found:
        yield Mistake(*document.place(path, of_key=False), f"{dotted(path)}: {text}")


def _not_options(data: object) -> str:
    example = f"'policy: NAME' with one of {', '.join(BUILTIN)}"
    if data is None:
        return f"the file is empty; it needs at least {example}"
    return f"must be options such as {example}: a name, ':', a space and the value"
