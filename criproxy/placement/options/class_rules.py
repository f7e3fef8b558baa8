"""What the engine and the daemon know of the classes of a policy file, without importing their models.

The models take time of a start, so that files without classes do without them: see `config.settings.options_model`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from re import sub
from typing import Protocol

from criproxy.model.controls import BlockIo, Controls, CpuTuning, Rdt, Scheduling
from criproxy.placement.options.annotation_keys import matches_one
from criproxy.placement.options.annotation_parsing import Wishes
from criproxy.placement.options.policy_options import Options, options_of


@dataclass(frozen=True, slots=True, kw_only=True)
class IrqRule:
    """What a class says about the interrupts of its containers' CPUs."""

    mode: str = ""
    """away: these CPUs get no interrupts but those that are claimed, as exclusive CPUs without a class. sink: they get
    all that nobody claims. Empty: as if there were no class."""
    claim: tuple[str, ...] = ()
    """As `model.controls.IrqClaim.names`."""


IDLE, SHARED, RESERVED, EXCLUSIVE = "idle", "shared", "reserved", "exclusive"
"""What CPUs are for: the roles in `ClassParts.roles`."""
ALL_STATES_US = (1 << 31) - 1
"""`model.controls.CpuTuning.max_latency_us` with which no idle state is disabled."""
CPU_QUOTA, C_STATES, GOVERNOR, IRQ_BALANCING = "cpu-quota", "cpu-c-states", "cpu-freq-governor", "irq-load-balancing"
"""Settings of anonymous classes: CRI-O's annotations without their domain."""
_MARK, _IS = "+", "="
"""In names of classes: before each setting of an anonymous class, and before its value."""


def anonymous(name: str, settings: Mapping[str, str]) -> str:
    """Return the name of the anonymous class with all of the class *name* (may be empty), and *settings* beside it."""
    return name + "".join(f"{_MARK}{key}{_IS}{value}" for key, value in sorted(settings.items()))


def named_part(name: str) -> str:
    """Return the class of the policy file that is a part of the class *name*; empty if there is none."""
    return name.partition(_MARK)[0]


def anonymous_settings(name: str) -> dict[str, str]:
    """Return the settings in the name of a class; none if it is a class of the policy file."""
    parts = (part.partition(_IS) for part in name.split(_MARK)[1:])
    return {key: value for key, _, value in parts}


def type_of(pool: str) -> str:
    """Return the name in the policy file of a pool or balloon, which may be one of several, and have chosen parts."""
    return sub(r"\[[0-9]+\](/.*)?$", "", pool)


def lifts_quota(controls: Controls) -> bool:
    """Return whether an annotation of its pod lifts the CFS quota of a container on exclusive CPUs."""
    return anonymous_settings(controls.class_of("cpu")).get(CPU_QUOTA) == "disable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassParts:
    """The classes of a policy file as values. A node gives them CPUs and cgroups; that is `model.controls.Desired`."""

    tunings: Mapping[str, CpuTuning] = field(default_factory=dict)
    """Class → what it sets on its CPUs; only those that set anything there."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Class of CPUs by what they are for: idle, shared, reserved or exclusive. A container's own class comes before its
    role; a CPU in several roles is reserved, or else exclusive, or else shared."""
    scheduling: Mapping[str, Scheduling] = field(default_factory=dict)
    block_io: Mapping[str, BlockIo] = field(default_factory=dict)
    """Without what the runtime writes: with cgroup v2, the weight."""
    rdt: Rdt | None = None
    bursts: Mapping[str, int] = field(default_factory=dict)
    """With cgroup v1: class → hundredths of a percent of the CPU limit by which a container may exceed it for a
    moment."""
    idle_bursts: frozenset[str] = frozenset()
    """Classes whose containers have no CPU limit while CPUs are idle: see `rules.attributes.idle_burst`."""
    irqs: Mapping[str, IrqRule] = field(default_factory=dict)
    controllable: tuple[str, ...] = ("*",)
    """As `model.controls.Irqs.controllable`."""
    pools: tuple[tuple[str, str, str], ...] = ()
    """Kind, pattern for a pool or a type of balloons (* and ?), and the class that its containers have."""

    def of_pool(self, kind: str, pool: str) -> str:
        """Return the class of a *kind* that containers of *pool* have by that, as in `Grant.pool`; empty if none."""
        found = (name for each, pattern, name in self.pools if each == kind and matches_one(type_of(pool), (pattern,)))
        return next(found, "")

    def tuning(self, name: str) -> CpuTuning | None:
        """Return what a class sets on its CPUs, also an anonymous one; None if nothing."""
        known, own = self.tunings.get(named_part(name)), anonymous_settings(name)
        if not own.keys() & {C_STATES, GOVERNOR}:
            return known
        made = known or CpuTuning()
        if GOVERNOR in own:
            made = replace(made, governor=own[GOVERNOR])
        if C_STATES in own:
            made = replace(made, disabled_c_states=(), max_latency_us=_latency_us(own[C_STATES]))
        return made

    def irq(self, name: str) -> IrqRule | None:
        """Return what a class says about interrupts, also an anonymous one; None if nothing."""
        known, own = self.irqs.get(named_part(name)), anonymous_settings(name)
        return replace(known or IrqRule(), mode="away") if own.get(IRQ_BALANCING) == "disable" else known


def _latency_us(word: str) -> int:
    """Return the highest exit latency of ``enable``, ``disable`` or ``max_latency:N`` as in CRI-O's annotation."""
    return {"enable": ALL_STATES_US, "disable": 0}.get(word) or int(word.partition(":")[2] or 0)


ExplainedControls = tuple[Controls, tuple[str, ...]]
"""The controls of a container, and why they are as they are: sentences."""


class ClassRules(Protocol):
    """The classes of a policy file: which ones a container has, and what they mean."""

    def controls_of(self, wishes: Wishes, pool: str) -> ExplainedControls:
        """Return the controls of a container, and sentences: for each class that it has, and each ignored annotation.

        Args:
            wishes: the container with its present sizes, and the annotations of its pod; nothing has been read yet.
            pool: `Grant.pool`: the name of its pool or balloon.

        Raises:
            BadAnnotation: an annotation of a container that is being created names no class, or has a bad value. For
                one that exists, the annotation is ignored.
        """
        ...

    def desired_parts(self) -> ClassParts:
        """Return what the classes mean for the machine, before containers and CPUs have them; the same each time."""
        ...


def classes_of(policy: object) -> ClassRules | None:
    """Return the classes in the options of a policy; None if its file has none."""
    options = options_of(policy)
    if not _may_have_classes(type(options)):
        return None
    found: ClassRules | None = getattr(options, "classes", None)
    return found


@lru_cache(16)  # a model that is asked for what it has not takes as long as all else here; a reload may make new ones
def _may_have_classes(options: type[Options]) -> bool:
    return hasattr(options, "classes")
