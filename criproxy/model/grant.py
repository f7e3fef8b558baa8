"""What a container has been given, and a whole layout of such grants."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from criproxy.model.cpuset import CpuSet
from criproxy.model.kept import Kept
from criproxy.model.reason import Reason

NO_CPUS: CpuSet = frozenset()

PRESERVED = "(preserved)"
"""The `Grant.pool` of containers that are left alone: all CPUs of the machine that are not exclusive. Only the engine
gives such grants, and no policy counts what is in that pool."""


class CpuQuota(Enum):
    """What is done about the CFS quota of a container, which is its CPU limit."""

    LEFT = "left"
    """Nothing: criproxy leaves it as the kubelet sends it or another program writes it."""
    LIFTED = "lifted"
    """It is lifted, for as long as the container runs on exclusive CPUs only."""
    RESTORED = "restored"
    """It had been lifted: what the kubelet asked for is in force again."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The place of one container, as the policy wants it."""

    cpus: CpuSet
    """For ``cpuset.cpus``; never empty."""
    mems: CpuSet
    """For ``cpuset.mems``: all usable nodes where memory is not pinned; empty: leave the field alone."""
    exclusive: CpuSet = NO_CPUS
    """Those that no other container may use; one that is not in *cpus* is another thread of one of their cores, and
    idle."""
    pool: str = ""
    """The policy's name for what it was placed in, so that it finds its way back there when CPUs come and go; empty
    where the policy has no such thing."""
    home: CpuSet = NO_CPUS
    """The CPUs of its pool where these are others than *cpus*: it is lent idle ones beside them, or does not see all
    threads of them. Empty: they are *cpus*."""
    home_mems: CpuSet = frozenset()
    """The NUMA nodes that it comes back to when their memory suffices again: fewer than *mems*; empty where *mems* are
    those that it shall have."""
    quota: CpuQuota = CpuQuota.LEFT
    """Set by the engine; policies need not care."""

    def with_memory_of(self, other: "Grant") -> "Grant":
        """The same CPUs with the memory of *other*; the very same grant if it has that."""
        if (self.mems, self.home_mems) == (other.mems, other.home_mems):
            return self
        return replace(self, mems=other.mems, home_mems=other.home_mems)

    @property
    def is_preserved(self) -> bool:
        """Whether it follows what is not exclusive, and no policy moves it; see `engine.preserved`."""
        return self.pool == PRESERVED

    @property
    def shares(self) -> bool:
        """Whether it may run on CPUs that others use, too."""
        return not self.cpus <= self.exclusive


@dataclass(frozen=True, slots=True)
class Applied:
    """What the runtime or the kernel has for a container now."""

    cpus: CpuSet
    mems: CpuSet
    lifted: bool = False
    """Whether it has no CFS quota; only known where its grant says something about that."""

    def has_sets_of(self, other: "Applied", named_mems: CpuSet) -> bool:
        """Whether CPUs and memory nodes are those of *other*; the latter only where any are named."""
        return self.cpus == other.cpus and (not named_mems or self.mems == other.mems)


def in_place(grant: Grant, applied: Applied | None) -> bool:
    """Whether a container has exactly what it was granted."""
    if applied is None or applied.cpus != grant.cpus or (grant.mems and applied.mems != grant.mems):
        return False
    return grant.quota is CpuQuota.LEFT or applied.lifted == (grant.quota is CpuQuota.LIFTED)


@lru_cache(maxsize=1024)
def alike(grant: Grant) -> Grant:
    """The same grant, as one object for all equal ones.

    Hundreds of containers share few places: maps of them are smaller then, and quicker to copy and to go through.
    """
    return grant


@lru_cache(maxsize=1024)
def granted(grant: Grant) -> Applied:
    """What a container has that has exactly what it was granted; one object for all of them."""
    return Applied(grant.cpus, grant.mems, grant.quota is CpuQuota.LIFTED)


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of all containers of a node. A container without a grant is not touched at all."""

    grants: Mapping[str, Grant]
    """By container key. Grants that did not change are the very same objects."""
    reasons: tuple[Reason | str, ...] = ()
    """Why, one sentence each, for ``explain`` and the log; a plain sentence is about the container that is placed."""
    kept: Mapping[str, Kept] | None = None
    """Another `Node.kept`. Set by the engine; policies need not care."""

    def reasons_about(self, key: str | None) -> tuple[Reason, ...]:
        """The reasons, with the plain sentences as reasons about the container *key*; None: about none of them."""
        return tuple(Reason(key, each) if isinstance(each, str) else each for each in self.reasons)
