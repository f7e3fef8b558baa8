"""Grants of containers, their applied state, and layouts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from criproxy.model.cpuset import CpuSet
from criproxy.model.kept import Kept
from criproxy.model.text.reason import Reason

NO_CPUS: CpuSet = frozenset()

PRESERVED = "(preserved)"
"""The `Grant.pool` of preserved containers: all CPUs of the machine that are not exclusive. Only the engine makes such
grants, and policies ignore this pool."""


class CpuQuota(Enum):
    """How criproxy handles the CFS quota of a container, which is its CPU limit."""

    LEFT = "left"
    """criproxy does not change it."""
    LIFTED = "lifted"
    """It is lifted while the container runs on exclusive CPUs only."""
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

    def with_memory_of(self, other: "Grant") -> "Grant":
        """Return the grant with the memory of *other*; the same object if it has that already."""
        if (self.mems, self.home_mems) == (other.mems, other.home_mems):
            return self
        return replace(self, mems=other.mems, home_mems=other.home_mems)

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
    """The applied state of a container, in the kernel or the runtime."""

    cpus: CpuSet
    mems: CpuSet
    lifted: bool = False
    """Whether it has no CFS quota; only known if its grant handles the quota."""

    def has_sets_of(self, other: "Applied", named_mems: CpuSet) -> bool:
        """Whether the CPUs are those of *other* and, unless *named_mems* is empty, the memory nodes, too."""
        return self.cpus == other.cpus and (not named_mems or self.mems == other.mems)


def in_place(grant: Grant, applied: Applied | None) -> bool:
    """Whether the applied state equals the grant."""
    if applied is None or applied.cpus != grant.cpus or (grant.mems and applied.mems != grant.mems):
        return False
    return grant.quota is CpuQuota.LEFT or applied.lifted == (grant.quota is CpuQuota.LIFTED)


@lru_cache(maxsize=1024)
def alike(grant: Grant) -> Grant:
    """Return one shared object for all equal grants.

    Hundreds of containers have few distinct grants: their maps are smaller then, and faster to copy and to iterate.
    """
    return grant


@lru_cache(maxsize=1024)
def granted(grant: Grant) -> Applied:
    """Return the applied state that equals *grant*; one shared object for equal states."""
    return Applied(grant.cpus, grant.mems, grant.quota is CpuQuota.LIFTED)


@dataclass(frozen=True, slots=True)
class Layout:
    """The grants of all containers of a node. A container without a grant is left alone."""

    grants: Mapping[str, Grant]
    """By container key. Unchanged grants are the same objects."""
    reasons: tuple[Reason | str, ...] = ()
    """Sentences for ``explain`` and the log; a plain sentence is about the container that is placed."""
    kept: Mapping[str, Kept] | None = None
    """A new `Node.kept`. Set by the engine; policies ignore it."""

    def reasons_about(self, key: str | None) -> tuple[Reason, ...]:
        """Return the reasons, with plain sentences as reasons about the container *key*; None: about no container."""
        return tuple(Reason(key, each) if isinstance(each, str) else each for each in self.reasons)
