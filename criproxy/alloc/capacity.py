"""What is free in each pool: CPUs that its containers share, and how much of them has been granted.

A container that shares counts in its pool and in all around it. CPUs are whole, requests are in milli-CPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from criproxy.alloc.cpus import Taste, take_cpus
from criproxy.alloc.pools import Pool, PoolTree
from criproxy.alloc.resize import resize_cpus
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass


@dataclass(frozen=True, slots=True)
class Load:
    """Who is in a pool and in those under it."""

    granted_milli: int = 0
    """Requests of those that share, what they own not included."""
    sharers: int = 0
    """Containers that share, zero requests included."""
    containers: int = 0
    """All containers."""

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.granted_milli + other.granted_milli,
            self.sharers + other.sharers,
            self.containers + other.containers,
        )


@dataclass(frozen=True)
class Capacity:
    """The pools of one node at one moment."""

    tree: PoolTree
    shared: Sequence[CpuSet]
    """By pool: CPUs of it that nobody owns and everybody may share."""
    loads: Sequence[Load]
    """By pool."""
    kept: int
    """CPUs that stay in the whole machine for containers that share, even if there are none now."""
    watched: CpuSet = NO_CPUS
    """CPUs that are shared as long as others than ours are on them: nobody can own them."""

    def free_milli(self, index: int) -> int:
        """What a further container that shares may be granted in a pool; negative where too much has been."""
        return min(len(self.shared[pool]) * 1000 - self.loads[pool].granted_milli for pool in self._path(index))

    def spare(self, index: int, joining_milli: int = 0) -> int:
        """How many CPUs of a pool can be owned so that all who share, within and around, keep what they were granted.

        Args:
            index: the pool.
            joining_milli: what the owner itself is going to share there.
        """
        around = (len(self.shared[pool]) - self.needed(pool, joining_milli) for pool in self._path(index))
        return max(0, min(self._inside(index), *around))

    def needed(self, index: int, joining_milli: int = 0) -> int:
        """How many CPUs a pool needs for those that share in it; one suffices for any number of zero requests."""
        load = self.loads[index]
        busy = bool(load.sharers or joining_milli)
        return max(-(-(load.granted_milli + joining_milli) // 1000), int(busy), 0 if index else self.kept)

    def ownable(self, index: int) -> CpuSet:
        """CPUs of a pool that can be owned, if those who share need none of them."""
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

    def _path(self, index: int) -> tuple[int, ...]:
        return self.tree.pools[index].path

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
            inside = len(self._loose[index]) + sum(spares[part] for part in self.tree.children[index])
            spares[index] = max(0, min(inside, len(self.shared[index]) - self.needed(index)))
        return spares

    def _inside(self, index: int) -> int:
        return len(self._loose[index]) + sum(self._spares[part] for part in self.tree.children[index])

    def _spare_within(self, index: int, own: CpuSet) -> CpuSet:
        """CPUs of a pool without those that pools under it need, which are others than *own* if there are enough."""
        return self._loose[index].union(*(self._spare_of(part, own) for part in self.tree.children[index]))

    def _spare_of(self, index: int, own: CpuSet) -> CpuSet:
        spare, topology = self._spare_within(index, own), self.tree.topology
        count, others = len(spare) - self._spares[index], spare - own
        kept = take_cpus(topology, others, min(count, len(others)))
        return spare - kept - take_cpus(topology, spare & own, count - len(kept))


def capacity(
    node: Node, tree: PoolTree, sharable: CpuSet, kept: int, ignored: str, watched: CpuSet = NO_CPUS
) -> Capacity:
    """The pools of *node*.

    Args:
        node: its grants say who is where, its containers what they asked for.
        tree: the pools of its machine.
        sharable: CPUs that containers share as long as nobody owns them.
        kept: see `Capacity.kept`.
        ignored: a name of a pool that is not in the tree: who is there does not count.
        watched: see `Capacity.watched`; only owners need to know them.
    """
    free = sharable - node.exclusive_cpus
    direct = _direct(node.grants, node.containers, tree, ignored)
    loads = [direct.get(pool.index, Load()) for pool in tree.pools]
    for pool in reversed(tree.pools[1:]):
        loads[pool.path[1]] += loads[pool.index]
    return Capacity(tree, [free & pool.cpus for pool in tree.pools], loads, kept, watched)


def pool_of(tree: PoolTree, grant: Grant) -> Pool:
    """The pool of a grant.

    If it names none of this tree, because the policy or the machine was another: the smallest that has all its CPUs.
    """
    return tree.by_name.get(grant.pool) or tree.home(grant.cpus)


def _direct(
    grants: Mapping[str, Grant], containers: Mapping[str, Container], tree: PoolTree, ignored: str
) -> dict[int, Load]:
    """By pool, who was placed in it and not in one under it."""
    by_name = {name: [pool.index, 0, 0, 0] for name, pool in tree.by_name.items()}
    for key, grant in grants.items():
        if grant.pool == ignored:
            continue
        # Written out and not by Loads added up: this runs for each of 500 containers at every decision.
        tally = by_name.get(grant.pool) or by_name[tree.home(grant.cpus).name]
        tally[3] += 1
        if not grant.exclusive or grant.shares:
            tally[2] += 1
            tally[1] += shared_milli(containers[key], len(grant.exclusive)) if key in containers else 0
    return {index: Load(*sums) for index, *sums in by_name.values()}


def shared_milli(container: Container, owned: int = 0) -> int:
    """What a container asks for of CPUs that it shares; the least that CRI can say, 2, is none for BestEffort."""
    if container.qos is QosClass.BEST_EFFORT:
        return 0
    return max(0, container.cpu_milli - 1000 * owned)
