"""The classes of one policy file in one table: what each sets, where the file says it, and which containers have it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from criproxy.model.machine.controllable import ANY, Controllable
from criproxy.placement.classes import options as models
from criproxy.placement.options.policy_options import Path

NAMESPACE, POOL, QOS = "namespace", "pool", "QoS class"
"""What chooses a class without an annotation, in the order of their precedence."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What one class sets, and where the file says it."""

    cpu: models.CpuOptions | None = None
    memory: models.MemoryOptions | None = None
    blockIO: models.BlockIoOptions | None = None  # noqa: N815 (the name of its kind)
    rdt: models.RdtOptions | None = None
    scheduling: models.SchedulingOptions | None = None
    irq: models.IrqOptions | None = None
    paths: Mapping[str, Path] = field(default_factory=dict)
    """By kind."""


class Rule(NamedTuple):
    """One way in which containers get a part of a class without an annotation."""

    kind: str
    by: str
    """NAMESPACE, POOL or QOS."""
    pattern: str
    """With * and ?."""
    name: str
    """The class."""
    path: Path


@dataclass(frozen=True, slots=True)
class Table:
    """All classes of a policy file."""

    classes: Mapping[str, Parts] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    """Of those that apply to a container and a kind, the first one of the first way counts."""
    roles: Mapping[str, tuple[str, Path]] = field(default_factory=dict)
    """Role → the class of CPUs with it, and where the file says so."""
    rdt: models.RdtSection = field(default_factory=models.RdtSection)
    controllable: tuple[str, ...] = ("*",)
    machine: Controllable = ANY

    def having(self, kind: str) -> Iterator[str]:
        """Yield the names of the classes that set anything of a *kind*."""
        return (name for name, parts in self.classes.items() if getattr(parts, kind) is not None)
