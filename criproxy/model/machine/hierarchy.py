"""The machine as nested boxes, for output and for code that traverses it from coarse to fine.

The nesting of hardware differs: a level 3 cache is a part of one NUMA node, or spans two; a node is a part of a
package, or covers several. So levels are ordered by the size of their groups on the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import NumaNode, Topology


class Level(StrEnum):
    """The kind of a box; if groups have the same size, the earlier kind is outside."""

    MACHINE = "machine"
    PACKAGE = "package"
    DIE = "die"
    NODE = "node"
    L3 = "l3"
    L2 = "l2"


@dataclass(frozen=True, slots=True)
class Box:
    """A group of online CPUs, and the groups within it."""

    level: Level
    id: int
    """The id of the package, die or node; a running number for caches."""
    cpus: CpuSet
    whole: bool = True
    """False if only a part of the group is in the surrounding box."""
    inside: tuple["Box", ...] = ()
    """The boxes in it, sorted by first CPU. CPUs without a NUMA node or a cache may be in none."""


Group = tuple[int, CpuSet]


def nest(topology: Topology) -> Box:
    """Return the nested packages, dies, NUMA nodes with CPUs, and caches that more than one core shares."""
    groups: dict[Level, Sequence[Group]] = {
        Level.PACKAGE: [(package.id, package.cpus) for package in topology.packages],
        Level.DIE: [(die.id, die.cpus) for die in topology.dies],
        Level.NODE: [(node.id, node.cpus) for node in topology.nodes if node.cpus],
        Level.L3: list(enumerate(topology.l3_groups)),
        Level.L2: [group for group in enumerate(topology.l2_groups) if _is_shared(topology, group)],
    }
    order = sorted((level for level in groups if groups[level]), key=lambda level: -_mean_size(groups[level]))
    inside = _inside(topology.online_cpus, order, groups)
    return Box(Level.MACHINE, 0, topology.online_cpus, inside=inside)


def _is_shared(topology: Topology, group: Group) -> bool:
    return not group[1] <= topology.core_of[min(group[1])].cpus


def _mean_size(groups: Sequence[Group]) -> float:
    return sum(len(cpus) for _, cpus in groups) / len(groups)


def _inside(cpus: CpuSet, order: Sequence[Level], groups: Mapping[Level, Sequence[Group]]) -> tuple[Box, ...]:
    if not order or not cpus:
        return ()
    level, *finer = order
    boxes, rest = [], cpus
    for number, members in groups[level]:
        if part := members & rest:
            boxes.append(Box(level, number, part, part == members, _inside(part, finer, groups)))
            rest -= part  # groups of a level do not overlap on a real machine
    boxes += _inside(rest, finer, groups)
    return tuple(sorted(boxes, key=lambda box: min(box.cpus)))


def home(root: Box, cpus: CpuSet) -> Box:
    """Return the smallest package, die or NUMA node under *root* that has all of *cpus*, else *root*."""
    for box in root.inside:
        if cpus and cpus <= box.cpus and box.level not in (Level.L3, Level.L2):
            return home(box, cpus)
    for cache in root.inside:
        if cpus and cpus <= cache.cpus and (deeper := home(cache, cpus)) is not cache:
            return deeper
    return root


def nearest_cpus(topology: Topology, node: NumaNode) -> CpuSet:
    """Return the CPUs of *node*; for a memory-only node those of the closest nodes, or all if no distance is known."""
    if node.cpus:
        return node.cpus
    others = [other for other in topology.nodes if other.cpus]
    if not topology.distances or not others:
        return topology.online_cpus
    closest = min(topology.distance(other.id, node.id) for other in others)
    near = (other.cpus for other in others if topology.distance(other.id, node.id) == closest)
    return frozenset().union(*near)
