"""Growing and shrinking a set of CPUs so that it stays together: the rules by which nri-plugins' balloons do it.

The machine is a tree: packages, dies, NUMA nodes, level 2 caches, cores, threads. More CPUs come from the smallest part
of it that has enough, next to those that are there already; which of several parts alike depends on whether free CPUs
shall be packed or balanced.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.placement.alloc.cpus import Taste, take_cpus

CpuSets = tuple[CpuSet, ...]


@dataclass(frozen=True, slots=True)
class Wants:
    """Which CPUs a balloon prefers."""

    near: CpuSets = ()
    """Those in the first of these, of them those in the second, and so on; a set that has too few free ones is passed
    over."""
    away: CpuSets = ()
    """After that, those that are in none of these, in the same way."""
    rather: CpuSets = ()
    """After that, those in these, in the same way."""
    balanced: bool = False
    """From the part with the most free CPUs, so that they stay balanced; else from that with the fewest: packed."""
    spread: bool = False
    """On as many cores as possible, one thread of each; else on as few as possible."""
    first: CpuSet = frozenset()
    """Where CPUs of a part are alike, these first."""
    alone: tuple[str, ...] = ()
    """Levels: away from the groups of these that its own CPUs are in."""

    def sets(self) -> Iterator[tuple[CpuSet, bool]]:
        """All sets in the order in which they count, and whether their CPUs are wanted."""
        yield from ((cpus, True) for cpus in self.near)
        yield from ((cpus, False) for cpus in self.away)
        yield from ((cpus, True) for cpus in self.rather)


@dataclass(frozen=True)
class Tree:
    """The CPUs of a machine, grouped level by level."""

    topology: Topology
    levels: tuple[str, ...]
    paths: Mapping[int, tuple[int, ...]]
    """By CPU the groups that it is in, one of each level; ids are unique in the tree and ordered by their CPUs."""
    members: Sequence[CpuSet]
    """By group."""
    by_level: Sequence[Sequence[int]]
    """The groups of each level."""
    path_of: Sequence[tuple[int, ...]]
    """By group the groups around it, and itself as the last."""

    def around(self, level: str, cpus: CpuSet) -> CpuSet:
        """All CPUs of the groups of *level* (or ``system``) that some of *cpus* are in."""
        if level == "system":
            return self.topology.online_cpus
        depth = self.levels.index(level)
        groups = {self.paths[cpu][depth] for cpu in cpus if cpu in self.paths}
        return frozenset().union(*(self.members[group] for group in groups))

    def count(self, cpus: CpuSet) -> list[int]:
        """How many of *cpus* each group has."""
        counts = [0] * len(self.members)
        for cpu in cpus:
            for group in self.paths.get(cpu, ()):
                counts[group] += 1
        return counts


def build_tree(topology: Topology, *, by_thread: bool = False) -> Tree:
    """The tree of a machine; with *by_thread* the first threads of all cores of a NUMA node are a group, and so on."""
    levels = ("package", "die", "numa", *(("threads",) if by_thread else ()), "l2cache", "core", "thread")
    labels = _labels(topology)
    ids: dict[tuple[int, ...], int] = {}
    members: list[set[int]] = []
    paths: dict[int, tuple[int, ...]] = {}
    for cpu in sorted(topology.online_cpus):
        core = topology.core_of.get(cpu)
        turn = sorted(core.cpus).index(cpu) if core else 0
        label = [of.get(cpu, -1) for of in labels]
        label = [*label[:3], *((turn,) if by_thread else ()), *label[3:], cpu]
        prefixes = [tuple(label[: depth + 1]) for depth in range(len(levels))]
        for prefix in prefixes:
            if prefix not in ids:
                ids[prefix] = len(members)
                members.append(set())
            members[ids[prefix]].add(cpu)
        paths[cpu] = tuple(ids[prefix] for prefix in prefixes)
    path_of = [tuple(ids[prefix[: depth + 1]] for depth in range(len(prefix))) for prefix in ids]
    by_level = [[group for prefix, group in ids.items() if len(prefix) == depth + 1] for depth in range(len(levels))]
    return Tree(topology, levels, paths, [frozenset(group) for group in members], by_level, path_of)


def _labels(topology: Topology) -> list[Mapping[int, int]]:
    """For package, die, NUMA node, level 2 cache and core: a number for each CPU, the same for those of one group."""
    packages, dies, nodes, cores = (
        [part.cpus for part in parts] for parts in (topology.packages, topology.dies, topology.nodes, topology.cores)
    )
    levels = (packages, dies, nodes, topology.l2_groups, cores)
    return [{cpu: number for number, group in enumerate(groups) for cpu in group} for groups in levels]


def grow(tree: Tree, own: CpuSet, free: CpuSet, count: int, wants: Wants = Wants()) -> CpuSet:
    """*own* with *count* CPUs more.

    Args:
        tree: of the machine; one made *by_thread* if they shall be spread.
        own: what is there already.
        free: what may be taken, without *own*.
        count: how many CPUs.
        wants: which would be best.

    Raises:
        NotEnough: *free* is smaller than *count*; the text says only how many there are.
    """
    if count > len(free):
        raise NotEnough(f"{count} CPUs wanted, {len(free)} free")
    if count <= 0:
        return own
    if count == len(free):
        return own | free
    if wants.alone or wants.spread:
        return _grow_singly(tree, own, free, count, wants)
    best = _wanted(free, count, wants)
    return own | take_cpus(tree.topology, _part(tree, own, best, count, wants), count, Taste(first=wants.first))


def _grow_singly(tree: Tree, own: CpuSet, free: CpuSet, count: int, wants: Wants) -> CpuSet:
    """One CPU after the other: each changes which is the best to be next."""
    best = _wanted(free, count, wants)
    for missing in range(count, 0, -1):
        mine = tuple(tree.around(level, own) for level in wants.alone)
        left = _wanted(best - own, missing if not own else 1, replace(wants, near=(), away=mine))
        whole = count if missing == count and not wants.spread else 1
        part = _part(tree, own, left, min(whole, len(left)), wants)
        own |= {min(part)}
    return own


def _wanted(free: CpuSet, count: int, wants: Wants) -> CpuSet:
    """The CPUs of *free* that are wanted most, at least *count*."""
    for cpus, wanted in wants.sets():
        left = free & cpus if wanted else free - cpus
        if len(left) >= count:
            free = left
    return free


def _part(tree: Tree, own: CpuSet, free: CpuSet, count: int, wants: Wants) -> CpuSet:
    """The free CPUs of the smallest group that has *count* of them, as close to *own* as possible."""
    has, mine = tree.count(free), tree.count(own) if own else None
    enough = ([group for group in groups if has[group] >= count] for groups in reversed(tree.by_level))
    if not (found := next(filter(None, enough), [])):
        return free
    depths = range(len(tree.path_of[found[0]]))
    if mine:
        for depth in depths:
            found = _largest(found, lambda group, depth=depth: mine[tree.path_of[group][depth]])  # type: ignore[misc]
    sign = 1 if wants.balanced else -1
    for depth in depths:
        found = _largest(found, lambda group, depth=depth: sign * has[tree.path_of[group][depth]])  # type: ignore[misc]
    return free & tree.members[min(found, key=lambda group: min(tree.members[group]))]


def _largest(groups: list[int], value: Callable[[int], int]) -> list[int]:
    """Those of *groups* with the largest value."""
    if len(groups) == 1:
        return groups
    values = [value(group) for group in groups]
    top = max(values)
    return [group for group, found in zip(groups, values, strict=True) if found == top]


def shrink(tree: Tree, own: CpuSet, free: CpuSet, count: int, wants: Wants = Wants()) -> CpuSet:
    """*count* CPUs of *own*: those go first that are wanted least, then those of the parts with the fewest."""
    left = set(own)
    has, mine = tree.count(free), tree.count(own)
    worth = _worth(own, wants)
    for _ in range(len(own) - max(count, 0)):
        least = min(worth[cpu] for cpu in left)
        found = [cpu for cpu in sorted(left, reverse=True) if worth[cpu] == least]
        for counts in (mine, has):
            for depth in range(len(tree.levels)):
                found = _largest(found, lambda cpu, c=counts, d=depth: -c[tree.paths[cpu][d]])  # type: ignore[misc]
        gone = found[0]
        left.remove(gone)
        for group in tree.paths[gone]:
            mine[group] -= 1
            has[group] += 1
    return frozenset(left)


def _worth(own: CpuSet, wants: Wants) -> dict[int, int]:
    """How much each CPU is liked: the sets that come first count more than all after them."""
    sets = list(wants.sets())
    return {
        cpu: sum(1 << (len(sets) - place) for place, (cpus, wanted) in enumerate(sets) if (cpu in cpus) is wanted)
        for cpu in own
    }
