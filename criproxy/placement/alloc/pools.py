"""The machine as a tree of pools: all, sockets, dies, NUMA nodes and level 3 caches, as far as pods may use them.

A level whose only part is as large as what it is a part of is left out: a pool is always more than its parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Box, Level, Topology, nest

MACHINE = "the machine"
_WORDS = {
    Level.MACHINE: MACHINE,
    Level.PACKAGE: "socket {}",
    Level.DIE: "die {}",
    Level.NODE: "NUMA node {}",
    Level.L3: "L3 cache {}",
}
"""By level, from coarse to fine."""
_FINER = 100
"""More than a tree has levels."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A part of the machine in which containers are placed."""

    index: int
    """Its place in the tree, depth first: parents come before their children, and the whole machine is 0."""
    name: str
    """For people, and to find it again: unique, such as ``NUMA node 2``."""
    cpus: CpuSet
    """CPUs that pods may use; never empty but on a machine without any."""
    path: tuple[int, ...]
    """The indexes of itself, of the pool around it, and so on up to the whole machine."""
    levels: frozenset[Level] = frozenset()
    """What it is: a socket of one NUMA node is both."""


@dataclass(frozen=True)
class PoolTree:
    """All pools of one machine."""

    topology: Topology
    pools: tuple[Pool, ...]
    """By index."""

    @cached_property
    def by_name(self) -> Mapping[str, Pool]:
        """The pools by name."""
        return {pool.name: pool for pool in self.pools}

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """For each pool the indexes of the pools right under it."""
        return tuple(tuple(part.index for part in self.pools if part.path[1:2] == (pool.index,)) for pool in self.pools)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """For each pool how many levels are under it; a NUMA node has 0 wherever it is, a socket of one node, too."""
        heights: list[int] = [0] * len(self.pools)
        for pool in reversed(self.pools[1:]):
            around = pool.path[1]
            heights[around] = max(heights[around], heights[pool.index] + 1)
        return tuple(heights)

    @cached_property
    def nodes(self) -> tuple[CpuSet, ...]:
        """By pool, the NUMA nodes of its CPUs."""
        return tuple(self.topology.nodes_of(pool.cpus) for pool in self.pools)

    @cached_property
    def steps_from(self) -> Mapping[Level, tuple[int, ...]]:
        """For each level, by pool: how far it is from pools of that level.

        0 for one of them, 1 for the one around, and so on; smaller ones are further away than all larger ones. Of a
        level that the machine has not, the next larger one counts.
        """
        there = frozenset[Level]().union(*(pool.levels for pool in self.pools))
        found: dict[Level, tuple[int, ...]] = {}
        for level in _WORDS:
            found[level] = self._steps(level) if level in there or not found else [*found.values()][-1]
        return found

    def _steps(self, level: Level) -> tuple[int, ...]:
        steps = [_FINER * 2] * len(self.pools)
        for pool in self.pools:
            above = (distance for distance, index in enumerate(pool.path) if level in self.pools[index].levels)
            if (distance := next(above, None)) is not None:
                steps[pool.index] = distance and _FINER + distance
            if level in pool.levels:
                for distance, index in enumerate(pool.path[1:], 1):
                    steps[index] = min(steps[index], distance)
        return tuple(steps)

    def home(self, cpus: CpuSet) -> Pool:
        """The smallest pool that has all of *cpus*; the whole machine if none has."""
        # Those that have them lie within each other, so the last one is the smallest.
        return next((pool for pool in reversed(self.pools) if cpus and cpus <= pool.cpus), self.pools[0])


def build_pools(topology: Topology, *, caches: bool = True) -> PoolTree:
    """The pools of the machine *topology*; caches that several cores share count unless *caches* is false."""
    pools: list[Pool] = []
    shared = tuple(cpus for cpus in topology.l3_groups if caches and not cpus <= topology.core_of[min(cpus)].cpus)
    _grow(nest(replace(topology, l2_groups=(), l3_groups=shared)), MACHINE, (), topology.cpus, pools)
    return PoolTree(topology, tuple(pools))


def _grow(box: Box, name: str, above: tuple[int, ...], usable: CpuSet, pools: list[Pool]) -> None:
    """Add the pool of *box* and all within it."""
    cpus, levels, innermost = box.cpus & usable, {box.level}, name
    inside = _parts(box, name, usable)
    while len(inside) == 1 and inside[0][0].cpus & usable == cpus:
        box, inner = inside[0]
        levels.add(box.level)
        innermost = innermost if box.level is Level.L3 else inner  # people know nodes, not caches
        inside = _parts(box, innermost, usable)
    name = innermost if above else name  # the machine keeps its name, others have that of the smallest part
    path = (len(pools), *above)
    pools.append(Pool(path[0], name, cpus, path, frozenset(levels)))
    for part, inner in inside:
        _grow(part, inner, path, usable, pools)


def _parts(box: Box, name: str, usable: CpuSet) -> list[tuple[Box, str]]:
    """The boxes right within *box* that pods may use, and their names."""
    return [(part, _name(part, name)) for part in box.inside if part.cpus & usable]


def _name(box: Box, around: str) -> str:
    # Dies are numbered within their socket, and a group may be cut by the one around it.
    word = _WORDS[box.level].format(box.id)
    return word if box.whole and box.level is not Level.DIE else f"{word} in {around}"
