"""The options of a policy whose file has classes: its own ones, and those here."""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Self

from pydantic import Field, create_model

from criproxy.model.controls import Controls
from criproxy.model.machine.controllable import Controllable
from criproxy.model.machine.topology import Topology
from criproxy.placement.classes import build, choose, contradictions, fit
from criproxy.placement.classes.amounts import ClassName
from criproxy.placement.classes.options import ContainerClassOptions, RdtSection
from criproxy.placement.classes.parts import parts_of
from criproxy.placement.classes.table import Parts, Table
from criproxy.placement.classes.values import values_of
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.class_rules import ClassParts, ExplainedControls, named_part
from criproxy.placement.options.policy_options import Misfit, Options, may_use
from criproxy.placement.options.usable import HostReader


class Classes:
    """What the engine and the daemon ask, see `class_rules.ClassRules`."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._parts = parts_of(table)

    def controls_of(self, wishes: Wishes, pool: str) -> ExplainedControls:
        """Return the controls of a container, and why; see `class_rules.ClassRules`."""
        container, chosen = wishes.container, choose.Choice(self.table, pool, wishes).made()
        names = {kind: named_part(each.name) for kind, each in chosen.items()}
        parts = {kind: getattr(self.table.classes[name], kind) for kind, name in names.items() if name}
        values = values_of(Parts(**parts), container, self.table.machine, wishes.node.topology)
        kinds_of: dict[tuple[str, str], list[str]] = {}
        for kind, each in chosen.items():
            kinds_of.setdefault(each, []).append(kind)
        reasons = (
            f"{container.title} has the class {name} for {', '.join(kinds)}: {why}"
            for (name, why), kinds in kinds_of.items()
        )
        classes = tuple(sorted((kind, each.name) for kind, each in chosen.items()))
        return Controls(tuple(sorted(values.items())), classes), (*reasons, *dict.fromkeys(wishes.ignored))

    def desired_parts(self) -> ClassParts:
        """Return what the classes mean for the machine."""
        return self._parts


class WithClasses(Options):
    """The options of a policy whose file defines or names classes."""

    class_options: dict[ClassName, ContainerClassOptions] = Field(default_factory=dict, alias="classes")
    """What containers have beside CPUs and memory nodes, by the names of classes: see "Classes"."""
    rdt: RdtSection = RdtSection()
    """What several classes share of caches and memory bandwidth."""
    idle_cpu_class: str = Field(default="", alias="idleCPUClass")
    """The class of CPUs on which no container runs; only its frequencies and idle states count."""
    shared_pool_cpu_class: str = Field(default="", alias="sharedPoolCPUClass")
    """The class of the CPUs that containers share."""
    reserved_pool_cpu_class: str = Field(default="", alias="reservedPoolCPUClass")
    """The class of the reserved CPUs."""
    default_exclusive_cpu_class: str = Field(default="", alias="defaultExclusiveCPUClass")
    """The class of exclusive CPUs whose container has no class with frequencies or idle states."""

    @cached_property
    def controllable_machine(self) -> Controllable | None:
        """What the machine has; None until `resolved` has read it."""
        return None

    @cached_property
    def was_good(self) -> bool:
        """`HostReader.was_good`, as `resolved` has seen it."""
        return False

    @cached_property
    def classes(self) -> Classes:
        """The classes, ready for containers."""
        return Classes(self._built.table)

    @cached_property
    def _built(self) -> build.Built:
        return build.build(self, self.controllable_machine, was_good=self.was_good)

    def resolved(self, host: HostReader) -> Self:
        """These options with what the host can control."""
        copy = super().resolved(host).model_copy()
        for name in ("classes", "_built"):
            copy.__dict__.pop(name, None)
        copy.__dict__ |= {"controllable_machine": host.controllable(), "was_good": host.was_good}
        return copy

    def contradictions(self) -> Iterator[Misfit]:
        """Yield what these options ask that no machine can give, or that contradicts other options."""
        yield from super().contradictions()
        yield from self._built.mistakes
        pools = build.pools_of(self)
        for name, options in self.class_options.items():
            yield from contradictions.of_class(name, options, ("classes", name))
            if options.for_:
                yield from contradictions.of_pools(options.for_.pools, pools, ("classes", name, "for", "pools"))
        found = contradictions.of_table(self._built.table)
        yield from (each for each in found if not self.was_good or each.path[0] in contradictions.OWN)

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """Yield what these options ask that the machine lacks."""
        yield from super().misfits(topology)
        if self.controllable_machine is not None:
            yield from fit.unfit(self._built.table, topology, every_cpu=build.may_use_every_cpu(self))

    def notes(self) -> Iterator[Misfit]:
        """Yield the options that are understood, and have no effect."""
        yield from super().notes()
        yield from self._built.notes
        yield from contradictions.notes(
            self._built.table, lambda key: bool(self.annotations.allow) and may_use(self, key), every=self.was_good
        )


@cache
def with_classes(model: type[Options]) -> type[Options]:
    """Return the *model* of a policy's options, with those about classes."""
    own = {name: (each.annotation, each) for name, each in model.model_fields.items() if name in Options.model_fields}
    return create_model(model.__name__, __base__=(WithClasses, model), **own)  # type: ignore[call-overload, no-any-return]
