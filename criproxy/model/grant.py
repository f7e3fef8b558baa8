"""Grants of containers, their applied state, kept CPUs, and what a policy changes of grants, with its reasons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from criproxy.model.controls import NO_CONTROLS, Controls
from criproxy.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a decision."""

    key: str | None
    """The key of the container that it is about; None: the node, or the decision as a whole."""
    text: str
    """One sentence, for people."""


class AboutMemory(str):
    """The text of a reason about memory, to be replaced if memory stays where it was."""

    __slots__ = ()


class AboutQuota(str):
    """The text of a reason about a CFS quota that follows from idle CPUs: the history has it with the update."""

    __slots__ = ()


NO_CPUS: CpuSet = frozenset()
PRESERVED = "(preserved)"
"""The `Grant.pool` of preserved containers: all CPUs of the machine that are not exclusive. Only the engine makes such
grants, and policies ignore this pool."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Exclusive CPUs of containers that have ended, for their next attempts, which may have some of them again."""

    by_name: Mapping[str, CpuSet] = field(default_factory=dict)
    """By container name; those that ended first come first."""

    @property
    def cpus(self) -> CpuSet:
        """All kept CPUs."""
        return frozenset[int]().union(*self.by_name.values())

    def of(self, name: str) -> CpuSet:
        """Return the kept CPUs of the container *name*."""
        return self.by_name.get(name, frozenset())

    def with_last(self, name: str, cpus: CpuSet) -> "Kept":
        """Return a copy after the container *name* has ended on *cpus*."""
        return Kept({**{other: had for other, had in self.by_name.items() if other != name}, name: cpus})

    def less(self, name: str, cpus: CpuSet) -> "Kept":
        """Return a copy without these *cpus* of the container *name*."""
        names = {**self.by_name, name: self.of(name) - cpus}
        return Kept({other: had for other, had in names.items() if had})

    def within(self, cpus: CpuSet) -> "Kept":
        """Return the part that is in *cpus*."""
        parts = ((name, had & cpus) for name, had in self.by_name.items())
        return Kept({name: part for name, part in parts if part})


class CpuQuota(Enum):
    """How criproxy handles the CFS quota of a container, which is its CPU limit."""

    LEFT = "left"
    """criproxy does not change it."""
    LIFTED = "lifted"
    """It is lifted: while the container runs on exclusive CPUs only or, with ``burst: idle``, while CPUs are idle."""
    RESTORED = "restored"
    """It was lifted before, and the quota that the kubelet requested is in force again."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The desired place of one container, from the policy."""

    cpus: CpuSet
    """For ``cpuset.cpus``; never empty."""
    mems: CpuSet
    """For ``cpuset.mems``: all usable nodes if memory is not pinned; empty: do not change the field."""
    exclusive: CpuSet = NO_CPUS
    """CPUs that no other container may use; those that are not in *cpus* are idle threads of the cores of *cpus*."""
    pool: str = ""
    """The policy's name of its pool or balloon, so that it returns there when CPUs change; empty if the policy has
    none."""
    home: CpuSet = NO_CPUS
    """The CPUs of its pool if these differ from *cpus*: it may also use idle CPUs, or not all threads of its cores.
    Empty: they are *cpus*."""
    home_mems: CpuSet = frozenset()
    """The NUMA nodes to which its memory returns when they have enough again: fewer than *mems*; empty if *mems* are
    final."""
    quota: CpuQuota = CpuQuota.LEFT
    """Set by the engine; policies ignore it."""
    controls: Controls = NO_CONTROLS
    """What its classes set; as `quota`."""

    def __hash__(self) -> int:
        # The rest rarely differs, and takes as long.
        return hash((self.cpus, self.mems, self.exclusive, self.pool, self.controls.values))

    def with_memory_of(self, other: "Grant") -> "Grant":
        """Return the grant with the memory of *other*; the same object if it has that already."""
        if (self.mems, self.home_mems) == (other.mems, other.home_mems):
            return self
        return self.with_memory(other.mems, other.home_mems)

    def with_memory(self, mems: CpuSet, home_mems: CpuSet) -> "Grant":
        """Return the grant with memory from *mems*, which returns to *home_mems* if there are any."""
        return Grant(self.cpus, mems, self.exclusive, self.pool, self.home, home_mems, self.quota, self.controls)

    @property
    def is_preserved(self) -> bool:
        """Whether the container is preserved; see `placement.rules.preserved`."""
        return self.pool == PRESERVED

    @property
    def shares(self) -> bool:
        """Whether it may run on CPUs that others may use, too."""
        return not self.cpus <= self.exclusive


@dataclass(frozen=True, slots=True)
class Applied:
    """The applied state of a container, in the kernel or the runtime: the values of `attributes.ATTRIBUTES`."""

    cpus: CpuSet
    mems: CpuSet
    lifted: bool | None = False
    """Whether it has no CFS quota; False if its grant leaves the quota alone, and None if that could not be read."""
    memory_high: str | None = None
    """The content of this file with cgroup v2, as are the next ones; None if its grant leaves it alone, or unknown."""
    memory_low: str | None = None
    memory_min: str | None = None
    memory_swap_max: str | None = None
    memory_oom_group: str | None = None
    cpu_weight: str | None = None
    cpu_idle: str | None = None
    cpu_uclamp_min: str | None = None
    cpu_uclamp_max: str | None = None
    cpu_max_burst: str | None = None
    io_weight: str | None = None
    io_bfq_weight: str | None = None


@lru_cache(maxsize=1024)
def alike(grant: Grant) -> Grant:
    """Return one shared object for all equal grants.

    Hundreds of containers have few distinct grants: their maps are smaller then, and faster to copy and to iterate.
    """
    return grant


@dataclass(frozen=True, slots=True)
class Change:
    """The answer of a policy: what it changes in the grants of a node, and why."""

    grants: Mapping[str, Grant]
    """New grants by container key: that of the container to place, which is left alone without one, and those of others
    that move. Grants that stay the same may be among them."""
    reasons: tuple[Reason | str, ...] = ()
    """Sentences for ``explain`` and the log; a plain sentence is about the container that is placed."""

    def reasons_about(self, key: str | None) -> tuple[Reason, ...]:
        """Return the reasons, with plain sentences as reasons about the container *key*; None: about no container."""
        return tuple([Reason(key, each) if isinstance(each, str) else each for each in self.reasons])
