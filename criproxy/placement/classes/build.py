"""The options of a policy → its table of classes: from ``classes``, and from the options of nri-plugins' policies.

These are ``cpuClasses`` and ``schedulingClasses``, which define classes with one part, and options that give a class of
one kind to some containers, such as ``cpuClass`` of a balloon type.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from pydantic import ValidationError

from criproxy.model.controls import KINDS
from criproxy.model.machine.controllable import ANY, Controllable
from criproxy.placement.classes import contradictions
from criproxy.placement.classes import options as models
from criproxy.placement.classes.fit import unfit_of_peers
from criproxy.placement.classes.peers import CPU, SCHEDULING, Translated, cpu_classes, scheduling_classes
from criproxy.placement.classes.table import NAMESPACE, POOL, QOS, Parts, Rule, Table
from criproxy.placement.options.class_rules import EXCLUSIVE, IDLE, RESERVED, SHARED
from criproxy.placement.options.policy_options import Misfit, Options, Path
from criproxy.placement.options.usable import Section

_ROLES = {
    IDLE: ("idle_cpu_class", "idleCPUClass"),
    SHARED: ("shared_pool_cpu_class", "sharedPoolCPUClass"),
    RESERVED: ("reserved_pool_cpu_class", "reservedPoolCPUClass"),
    EXCLUSIVE: ("default_exclusive_cpu_class", "defaultExclusiveCPUClass"),
}
BALLOON = "balloon/"
"""Before the name of a balloon type with an option about interrupts: its class, which no annotation can name."""
_MODES = {"isolate": "away", "sink": "sink"}


@dataclass(slots=True)
class Built:
    """The table, and what was wrong or without effect in the options."""

    classes: dict[str, Parts] = field(default_factory=dict)
    mistakes: list[Misfit] = field(default_factory=list)
    notes: list[Misfit] = field(default_factory=list)
    table: Table = field(default_factory=Table)
    machine: Controllable | None = None
    every_cpu: bool = False
    """Whether containers may run on all CPUs of the machine."""
    was_good: bool = False
    """As `HostReader.was_good`."""

    def wrong(self, path: Path, text: str) -> None:
        """Add what is wrong with a peer's option."""
        if self.was_good:
            self.notes.append(Misfit(path, f"has no effect: {text}"))
        else:
            self.mistakes.append(Misfit(path, text))

    def add(self, name: str, kind: str, part: Any, path: Path) -> None:  # noqa: ANN401 (of any kind)
        """Add the *part* of a *kind* to a class, a model of that kind; *path* leads to it."""
        has = self.classes.get(name, Parts())
        if getattr(has, kind) is not None:
            self.wrong(path, f"the class {name!r} has {kind} already: give each a name of its own")
            return
        self.classes[name] = replace(has, **{kind: part}, paths={**has.paths, kind: path})

    def add_peers(
        self, kind: str, option: str, found: Iterable[Translated], model: type[Section], names: Mapping[str, str]
    ) -> None:
        """Add the classes that a peer's *option* defines; *names* are its options, each with ours.

        What is wrong in a file that was good before, and what the machine lacks, is left without effect.
        """
        theirs = {ours: name for name, ours in names.items()}
        for name, place, data, lost in found:
            path: Path = (option, *place)
            self.notes += [Misfit((option, *each), f"has no effect: {why}") for each, why in lost]
            if not name:
                self.wrong(path, "needs a name")
                continue
            parsed = self._parsed(kind, model, data, path, theirs)
            if not isinstance(parsed, list):
                self.add(name, kind, self._fitting(parsed, data, path, theirs), path)
                continue
            for where, why in parsed:
                self.wrong(where, why)
            if self.was_good:
                self.add(name, kind, model(), path)

    def _parsed(
        self, kind: str, model: type[Section], data: Mapping[str, Any], path: Path, theirs: Mapping[str, str]
    ) -> Section | list[Misfit]:
        """Return the part of a class that *data* defines, or what is wrong with it."""
        try:
            part = model.model_validate(data)
        except ValidationError as error:
            return [
                Misfit(
                    (*path, *(theirs.get(str(option), option) for option in each["loc"][:1])),
                    each["msg"].removeprefix("Value error, ").replace("Input should", "must"),
                )
                for each in error.errors(include_url=False)
            ]
        return (list(contradictions.of_part(kind, part, path)) if self.was_good else []) or part

    def _fitting(self, part: Section, data: Mapping[str, Any], path: Path, theirs: Mapping[str, str]) -> Section:
        """Return the *part* of a class that *data* defines, without what the machine lacks of it."""
        while self.machine and (lacks := next(unfit_of_peers(part, self.machine, every_cpu=self.every_cpu), None)):
            option, index, *_ = (*map(str, lacks.path), "", "")
            where = (theirs.get(option, option),) if option else ()
            self.notes.append(Misfit((*path, *where), f"has no effect: {lacks.text}"))
            data = {name: value for name, value in data.items() if option and (name != option or index)}
            if index:
                data = {**data, option: [each for number, each in enumerate(data[option]) if str(number) != index]}
            part = type(part).model_validate(data)
        return part


def may_use_every_cpu(options: Options) -> bool:
    """Return whether containers may run on all CPUs of the machine."""
    return getattr(options, "pin_cpu", True) is False


def build(options: Options, machine: Controllable | None, *, was_good: bool) -> Built:
    """Return the table of the classes in the *options* of a policy, for a *machine* if it is known.

    With *was_good*, what is wrong with options of peers is only noted, see `HostReader.was_good`.
    """
    given: Mapping[str, models.ContainerClassOptions] = getattr(options, "class_options", {})
    classes = {name: _of_options(name, each) for name, each in given.items()}
    built = Built(classes, machine=machine, every_cpu=may_use_every_cpu(options), was_good=was_good)
    of_cpus = cpu_classes(getattr(options, "cpu_classes", ()))
    built.add_peers("cpu", "cpuClasses", of_cpus, models.CpuOptions, CPU)
    of_scheduling = scheduling_classes(getattr(options, "scheduling_classes", ()))
    built.add_peers("scheduling", "schedulingClasses", of_scheduling, models.SchedulingOptions, SCHEDULING)
    rules = (*_own_rules(given), *_peer_rules(options, built), *_interrupts(options, built))
    names = {role: (getattr(options, option, ""), (alias,)) for role, (option, alias) in _ROLES.items()}
    built.table = Table(
        built.classes,
        rules,
        {role: named for role, named in names.items() if named[0]},
        getattr(options, "rdt", models.RdtSection()),
        tuple(getattr(options, "controllable_interrupts", ())) or ("*",),
        machine or ANY,
    )
    return built


def _of_options(name: str, options: models.ContainerClassOptions) -> Parts:
    parts = {kind: part for kind in KINDS if (part := options.part(kind)) is not None}
    return Parts(**parts, paths={kind: ("classes", name, kind) for kind in parts})  # type: ignore[arg-type]


def _own_rules(given: Mapping[str, models.ContainerClassOptions]) -> Iterator[Rule]:
    for name, options in given.items():
        if (ways := options.for_) is None:
            continue
        path: Path = ("classes", name, "for")
        for kind in (each for each in KINDS if options.part(each) is not None):
            yield from (Rule(kind, NAMESPACE, each, name, path) for each in ways.namespaces)
            yield from (Rule(kind, POOL, each, name, path) for each in ways.pools)
            yield from (Rule(kind, QOS, each, name, path) for each in ways.qos)


def _peer_rules(options: Options, built: Built) -> Iterator[Rule]:
    known = get_args(models.QosName)
    for by, option, alias in (
        (NAMESPACE, "namespace_scheduling_classes", "namespaceSchedulingClasses"),
        (QOS, "pod_qos_scheduling_classes", "podQoSSchedulingClasses"),
    ):
        for text, name in getattr(options, option, {}).items():
            if by == QOS and text not in known:
                built.wrong((alias, text), f"there is no QoS class {text[:40]!r}; there are: {', '.join(known)}")
                continue
            yield Rule("scheduling", by, _exactly(text) if by == QOS else text, name, (alias, text))
    for index, balloon_type in enumerate(getattr(options, "balloon_types", ())):
        path: Path = ("balloonTypes", index)
        name = _exactly(balloon_type.name)
        if balloon_type.cpu_class:
            yield Rule("cpu", POOL, name, balloon_type.cpu_class, (*path, "cpuClass"))
        if balloon_type.scheduling_class:
            yield Rule("scheduling", POOL, name, balloon_type.scheduling_class, (*path, "schedulingClass"))


def _interrupts(options: Options, built: Built) -> Iterator[Rule]:
    """Yield a rule for each balloon type with interrupts, and add its class."""
    for index, balloon_type in enumerate(getattr(options, "balloon_types", ())):
        path: Path = ("balloonTypes", index)
        given = balloon_type.irq_mode
        if not given and not balloon_type.irq_claim:
            continue
        if given and given not in _MODES:
            built.wrong((*path, "irqMode"), f"must be isolate or sink, not {given[:40]!r}")
            continue
        try:
            mode = {"mode": _MODES[given]} if given else {}
            part = models.IrqOptions.model_validate({**mode, "claim": balloon_type.irq_claim})
        except ValidationError as error:
            text = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            built.wrong((*path, "irqClaim"), text)
            continue
        name = f"{BALLOON}{balloon_type.name}"
        built.add(name, "irq", part, path)
        yield Rule("irq", POOL, _exactly(balloon_type.name), name, path)


def _exactly(text: str) -> str:
    """Return a pattern that only *text* matches; as `glob.escape`, of a module that does I/O."""
    return re.sub(r"[*?[]", r"[\g<0>]", text)


def pools_of(options: Options) -> set[str] | None:
    """Return the names of the pools or balloon types of a policy; None if it has none with names."""
    pools = getattr(options, "balloon_types", getattr(options, "pools", None))
    return None if pools is None else {"reserved", "default", *(each.name for each in pools)}
