"""What is free in each pool: CPUs that its containers share, and how much of them has been granted.

A container that shares counts in its pool and in all around it. CPUs are whole, requests are in milli-CPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node
from criproxy.model.remembered import remembered
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.cpus import Taste, take_cpus
from criproxy.placement.alloc.near import resize_cpus
from criproxy.placement.alloc.pools import Pool, PoolTree
from criproxy.placement.alloc.sums import Change, Sums

RESERVED = "the reserved CPUs"
"""The name of the pool beside the tree: containers there count in none of it."""


@dataclass(frozen=True, slots=True)
class Load:
    """The containers in a pool and in those under it, and what they were granted."""

    granted_milli: int = 0
    """Requests of shared containers, without their exclusive CPUs."""
    sharers: int = 0
    """Shared containers, also those without requests."""
    containers: int = 0
    """All containers."""

    def plus(self, other: "Load", times: int = 1) -> "Load":
        """Both together; without the other one with -1 *times*."""
        milli = self.granted_milli + times * other.granted_milli
        return Load(milli, self.sharers + times * other.sharers, self.containers + times * other.containers)


@dataclass(frozen=True)
class Capacity:
    """The pools of one node at one moment."""

    tree: PoolTree
    shared: Sequence[CpuSet]
    """By pool: its shared CPUs."""
    loads: Sequence[Load]
    """By pool."""
    kept: int
    """CPUs that stay in the whole machine for containers that share, even if there are none now."""
    watched: CpuSet = NO_CPUS
    """CPUs that cannot become exclusive as long as unmanaged containers are on them."""

    def spare(self, index: int, joining_milli: int = 0) -> int:
        """How many CPUs of a pool can become exclusive so that shared containers, within and around, keep their grants.

        Args:
            index: the pool.
            joining_milli: what the container with the exclusive CPUs is going to share there.
        """
        path = self.tree.pools[index].path
        around = (len(self.shared[pool]) - self.needed(pool, joining_milli) for pool in path)
        return max(0, min(self._inside(index, self._spares), *around))

    def needed(self, index: int, joining_milli: int = 0) -> int:
        """How many CPUs a pool needs for its shared containers; one suffices for any number of zero requests."""
        load = self.loads[index]
        busy = bool(load.sharers or joining_milli)
        return max(-(-(load.granted_milli + joining_milli) // 1000), int(busy), 0 if index else self.kept)

    def ownable(self, index: int) -> CpuSet:
        """CPUs of a pool that can become exclusive, if shared containers need none of them."""
        return self.shared[index] - self.watched

    def take(self, index: int, count: int, own: CpuSet = NO_CPUS, liked: CpuSet = NO_CPUS) -> CpuSet:
        """Choose *count* CPUs of a pool to be owned, of them as many as possible from *own*, and then from *liked*.

        What pools under it need is left to them while it suffices otherwise; whether all CPUs that can be had suffice
        is for the caller to know.
        """
        topology, everything = self.tree.topology, self.ownable(index)
        own &= everything
        spare, taste = self._spare_within(index, own | liked), Taste(first=liked)
        taken = resize_cpus(topology, own, spare, min(count, len(spare)), taste)
        return taken | take_cpus(topology, everything - spare, count - len(taken), taste)

    def spare_cpus(self, index: int, count: int) -> CpuSet:
        """CPUs of a pool to choose *count* from: those that pools under it do not need, all if these are too few."""
        spare = self._spare_within(index, NO_CPUS)
        return spare if len(spare) >= count else self.ownable(index)

    @cached_property
    def free_milli(self) -> Sequence[int]:
        """By pool, what a further container that shares may be granted; negative where too much has been.

        No pool has more than the one around it.
        """
        found: list[int] = []
        for pool in self.tree.pools:
            free = len(self.shared[pool.index]) * 1000 - self.loads[pool.index].granted_milli
            found.append(min(free, found[pool.path[1]]) if found else free)
        return found

    @cached_property
    def _loose(self) -> Sequence[CpuSet]:
        """By pool: its ownable CPUs that are in no pool under it."""
        shared = self.shared
        return [
            self.ownable(index).difference(*(shared[part] for part in parts))
            for index, parts in enumerate(self.tree.children)
        ]

    @cached_property
    def _spares(self) -> Sequence[int]:
        """By pool: what can be owned in it, as far as those in it and under it are concerned."""
        spares = [0] * len(self.shared)
        for index in reversed(range(len(spares))):
            spares[index] = max(0, min(self._inside(index, spares), len(self.shared[index]) - self.needed(index)))
        return spares

    def _inside(self, index: int, spares: Sequence[int]) -> int:
        return len(self._loose[index]) + sum(spares[part] for part in self.tree.children[index])

    def _spare_within(self, index: int, own: CpuSet) -> CpuSet:
        """CPUs of a pool without those that pools under it need, which are others than *own* if there are enough."""
        return self._loose[index].union(*(self._spare_of(part, own) for part in self.tree.children[index]))

    def _spare_of(self, index: int, own: CpuSet) -> CpuSet:
        spare, topology = self._spare_within(index, own), self.tree.topology
        count, others = len(spare) - self._spares[index], spare - own
        kept = take_cpus(topology, others, min(count, len(others)))
        return spare - kept - take_cpus(topology, spare & own, count - len(kept))


class _Part(NamedTuple):
    """What one container adds."""

    pool: int
    load: Load


class Loads:
    """The load of each pool of a tree, for one node after the other: cheap where little differs between them."""

    def __init__(self, tree: PoolTree) -> None:
        self.tree = tree
        self._loads = Sums(self._part, self._seen, (Load(),) * len(tree.pools), self._changed)

    def of(self, node: Node) -> Sequence[Load]:
        """By pool, the load of it and of those under it, by the grants and the requests of containers."""
        return self._loads.of(node, node.grants)

    def _seen(self, grant: Grant) -> object:
        """What a part follows from: in a known pool, a shared container counts the same on any CPUs."""
        if grant.pool in self.tree.by_name and not grant.exclusive:
            return grant.pool
        return grant.pool, grant.cpus, grant.exclusive

    def _part(self, node: Node, key: str, grant: Grant) -> _Part | None:
        if grant.pool == RESERVED or grant.is_preserved:
            return None
        shares, container = not grant.exclusive or grant.shares, node.containers.get(key)
        milli = shared_milli(container, len(grant.exclusive)) if container and shares else 0
        return _Part(pool_of(self.tree, grant).index, Load(milli, int(shares), 1))

    def _changed(self, loads: Sequence[Load], changes: Sequence[Change[_Part]]) -> tuple[Load, ...]:
        found = list(loads)
        for _, old, new in changes:
            for part, times in ((old, -1), (new, 1)):
                if part:
                    for index in self.tree.pools[part.pool].path:
                        found[index] = found[index].plus(part.load, times)
        return tuple(found)


@remembered(4)
def shared_cpus(tree: PoolTree, sharable: CpuSet, owned: CpuSet) -> Sequence[CpuSet]:
    """By pool, those of the *sharable* CPUs that are not *owned*: the same sets until an owner comes or goes."""
    free = sharable - owned
    return [free & pool.cpus for pool in tree.pools]


def pool_of(tree: PoolTree, grant: Grant) -> Pool:
    """The pool of a grant.

    If it names none of this tree, because the policy or the machine was another: the smallest that has all its CPUs.
    """
    return tree.by_name.get(grant.pool) or tree.home(grant.cpus)


def shared_milli(container: Container, owned: int = 0) -> int:
    """What a container asks for of CPUs that it shares; the least that CRI can say, 2, is none for BestEffort."""
    if container.qos is QosClass.BEST_EFFORT:
        return 0
    return max(0, container.cpu_milli - 1000 * owned)
