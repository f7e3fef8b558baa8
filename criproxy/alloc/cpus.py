"""Choosing CPUs from a set of free ones. Each choice is a sort by a tuple that ends in ids: same input, same answer."""

from collections.abc import Iterable, Sequence

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.topology import Topology

Groups = Sequence[CpuSet]
"""The free CPUs of a part of the machine, NUMA node by NUMA node, none empty."""


def take_cpus(topology: Topology, free: CpuSet, count: int) -> CpuSet:
    """Pick CPUs from as few NUMA nodes as possible, whole cores first.

    1. Of the machine's parts (a NUMA node, a package, everything) that have enough, take the one that needs
       the fewest NUMA nodes; of these the one where the least is left over.
    2. Within it, go from the NUMA node with the most free CPUs to the next, and end in the tightest that fits.
    3. From these nodes take whole cores while they fit, then threads of cores that are in use already.

    Args:
        topology: the machine; read only.
        free: CPUs that may be taken.
        count: how many of them (CPUs, not milli-CPUs).

    Returns:
        Exactly *count* members of *free*.

    Raises:
        NotEnough: *free* is smaller than *count*; the text says only how many there are.
    """
    if count > len(free):
        raise NotEnough(f"{count} CPUs wanted, {len(free)} free")
    if count <= 0:
        return frozenset()
    left = list(_best_part(topology, free, count))
    chosen: list[CpuSet] = []
    while (missing := count - sum(map(len, chosen))) > 0:
        chosen.append(_next_group(left, missing))
        left.remove(chosen[-1])
    return _take(topology, chosen, count)


def _best_part(topology: Topology, free: CpuSet, count: int) -> Groups:
    """The NUMA nodes (their free CPUs) of the smallest part of the machine to take *count* CPUs from."""
    everything = _groups(topology, free)
    parts: list[Groups] = [[group] for group in everything]
    parts += [_groups(topology, free & package.cpus) for package in topology.packages]
    parts.append(everything)
    enough = (part for part in parts if sum(map(len, part)) >= count)
    return min(enough, key=lambda part: (_nodes_needed(part, count), sum(map(len, part)), min(map(min, part))))


def _groups(topology: Topology, free: CpuSet) -> Groups:
    groups = [node.cpus & free for node in topology.nodes]
    groups.append(free.difference(*groups))  # CPUs that sysfs puts in no node count as one more
    return [group for group in groups if group]


def _nodes_needed(groups: Iterable[CpuSet], count: int) -> int:
    needed = 0
    for size in sorted(map(len, groups), reverse=True):
        if count <= 0:
            break
        count -= size
        needed += 1
    return needed


def _next_group(groups: Iterable[CpuSet], count: int) -> CpuSet:
    """The group that holds *count* most tightly, else the largest."""

    def order(group: CpuSet) -> tuple[bool, int, int]:
        spare = len(group) - count
        return spare < 0, abs(spare), min(group)

    return min(groups, key=order)


def _take(topology: Topology, groups: Groups, count: int) -> CpuSet:
    """At most *count* CPUs of *groups*, in their order."""
    picked: list[int] = []
    broken: list[tuple[bool, int, int, list[int]]] = []
    for place, group in enumerate(groups):
        for whole, cpus in _cores(topology, group):
            if whole and len(cpus) <= count - len(picked):
                picked.extend(cpus)
            else:
                broken.append((whole, len(cpus), place, cpus))
    # What remains is less than a core: cores that somebody uses already first, the fullest of them first.
    for *_, cpus in sorted(broken):
        picked.extend(cpus)
    return frozenset(picked[:count])


def _cores(topology: Topology, free: CpuSet) -> list[tuple[bool, list[int]]]:
    """The free CPUs of each core, and whether that is the whole core."""
    cores = [(core.cpus <= free, sorted(core.cpus & free)) for core in topology.cores if not core.cpus.isdisjoint(free)]
    known = frozenset().union(*(cpus for _, cpus in cores))
    return cores + [(True, [cpu]) for cpu in sorted(free - known)]  # in no core that sysfs knows
