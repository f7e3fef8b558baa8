"""Choosing CPUs from a set of free ones. Each choice is a sort by a tuple that ends in ids: same input, same answer."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import or_

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology

Groups = Sequence[CpuSet]
"""The free CPUs of a part of the machine, NUMA node by NUMA node, none empty."""


@dataclass(frozen=True, slots=True)
class Taste:
    """How to choose CPUs, beside their number."""

    first: CpuSet = frozenset()
    """CPUs to take before all others, such as the fast ones: only these if there are enough, else all of these that are
    in the part of the machine that is chosen."""
    across_cores: bool = False
    """A thread of each core before the second one of any; otherwise whole cores."""
    evenly: bool = False
    """The same from each of several NUMA nodes, as far as they have it; otherwise all that the first one has."""
    one_package: bool = False
    """From one package where one has enough, even if more NUMA nodes are needed there."""


PLAIN = Taste()


def take_cpus(topology: Topology, free: CpuSet, count: int, taste: Taste = PLAIN) -> CpuSet:
    """Pick CPUs from as few NUMA nodes as possible, in them from as few caches as possible, whole cores first.

    1. Of the machine's parts (a NUMA node, a die, a package, everything) that have enough, take the one that needs
       the fewest NUMA nodes; of these the one where the least is left over.
    2. Within it, go from the NUMA node with the most free CPUs to the next, and end in the tightest that fits.
    3. Within each node do the same with its dies, level 3 and level 2 caches: so wholly idle ones go first.
    4. There take whole cores while they fit, then threads of cores that are in use already.

    Args:
        topology: the machine; read only.
        free: CPUs that may be taken.
        count: how many of them (CPUs, not milli-CPUs).
        taste: which are liked better.

    Returns:
        Exactly *count* members of *free*.

    Raises:
        NotEnough: *free* is smaller than *count*; the text says only how many there are.
    """
    if count > len(free):
        raise NotEnough(f"{count} CPUs wanted, {len(free)} free")
    if count <= 0:
        return frozenset()
    free, liked = _preferred(topology, free, count, taste)
    chosen = _chosen(topology, free, count, taste, liked)
    if taste.evenly and len(chosen) > 1:
        return _evenly(topology, chosen, count, taste)
    if len(liked) >= count:
        return frozenset(_take(topology, chosen, count, taste))
    liked &= frozenset().union(*chosen)
    rest = [group - liked for group in chosen]
    return liked.union(_take(topology, rest, count - len(liked), taste))


def parts_for(topology: Topology, free: CpuSet, count: int, taste: Taste = PLAIN) -> list["Part"]:
    """The parts of the machine among which `take_cpus` chooses, NUMA nodes first; parts with the same CPUs are one."""
    free, liked = _preferred(topology, free, count, taste)
    found: dict[CpuSet, Part] = {}
    for name, groups in _parts(topology, free):
        cpus = frozenset[int]().union(*groups)
        found.setdefault(cpus, Part(name, cpus, _part_order(groups, count, liked)))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the machine from which CPUs could be taken."""

    name: str
    cpus: CpuSet
    """The free ones."""
    order: tuple[int, int, int, int]
    """The smaller the better: the NUMA nodes that are needed, less the CPUs that are liked; the free ones; the first
    CPU."""


def _preferred(topology: Topology, free: CpuSet, count: int, taste: Taste) -> tuple[CpuSet, CpuSet]:
    """Those of *free* to take *count* from, and those that are liked."""
    liked = free & taste.first
    if len(liked) >= count:
        free = liked
    if taste.one_package:
        enough = (package.cpus & free for package in topology.packages if len(package.cpus & free) >= count)
        free = min(enough, key=lambda part: (len(part), min(part)), default=free)
    return free, liked


def _evenly(topology: Topology, groups: Groups, count: int, taste: Taste) -> CpuSet:
    """*count* of several groups: a core of each in turn, as long as it has any."""
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    shares = [0] * len(groups)
    while (left := count - sum(shares)) > 0:
        for index in sorted(range(len(groups)), key=lambda index: (shares[index], index)):
            more = min(threads, len(groups[index]) - shares[index], left)
            shares[index] += more
            left -= more
    parts = (_take(topology, [group], share, taste) for group, share in zip(groups, shares, strict=True))
    return frozenset().union(*parts)


def take_in_order(
    topology: Topology, free: CpuSet, count: int, parts: Iterable[CpuSet], taste: Taste = PLAIN
) -> CpuSet:
    """Pick CPUs in the first of *parts*, what it lacks in the next one, and so on; in the end, anywhere.

    Raises:
        NotEnough: *free* is smaller than *count*.
    """
    if count > len(free):
        raise NotEnough(f"{count} CPUs wanted, {len(free)} free")
    picked: CpuSet = frozenset()
    for part in (*parts, free):
        left = (free & part) - picked
        picked |= take_cpus(topology, left, min(len(left), count - len(picked)), taste)
    return picked


def one_per_core(topology: Topology, cpus: CpuSet, first: CpuSet = frozenset()) -> CpuSet:
    """One CPU of each core that *cpus* are on: the lowest, those that are in *first* before all others."""
    core_of = topology.core_of
    cores = (core_of[cpu].cpus & cpus if cpu in core_of else (cpu,) for cpu in cpus)
    return frozenset(min(core, key=lambda cpu: (cpu not in first, cpu)) for core in cores)


def surroundings(topology: Topology, free: CpuSet, count: int, near: CpuSet) -> CpuSet:
    """The CPUs of *free* on the NUMA nodes *near*, and on others only as far from them as it takes for *count*."""
    parts = (free & circle for circle in circles(topology, near))
    return next((part for part in parts if len(part) >= count), free)


def rings(topology: Topology, near: CpuSet) -> list[CpuSet]:
    """The CPUs of the nodes *near*, then of those at each further distance."""
    found: dict[int, CpuSet] = {}
    for node in topology.nodes:
        distance = min((topology.distance(one, node.id) for one in near), default=0)
        found[distance] = found.get(distance, frozenset()) | node.cpus
    return [found[distance] for distance in sorted(found)]


def circles(topology: Topology, near: CpuSet) -> list[CpuSet]:
    """The CPUs of the nodes *near*, then also those at the next distance, and so on up to all of them."""
    return list(accumulate(rings(topology, near), or_))


def _chosen(topology: Topology, free: CpuSet, count: int, taste: Taste, liked: CpuSet) -> Groups:
    """The free CPUs of the NUMA nodes to take *count* from, in this order."""
    enough = (groups for _, groups in _parts(topology, free) if sum(map(len, groups)) >= count)
    left = [*min(enough, key=lambda groups: _part_order(groups, count, liked))]
    chosen: list[CpuSet] = []
    while (missing := count - sum(map(len, chosen))) > 0:
        chosen.append(left.pop(_next_group(left, missing)))
    return chosen


def _parts(topology: Topology, free: CpuSet) -> Iterator[tuple[str, Groups]]:
    """The parts of the machine with free CPUs, by name."""
    ids = [f"NUMA node {node.id}" for node in topology.nodes if not free.isdisjoint(node.cpus)]
    everything = _groups(topology, free)
    for place, group in enumerate(everything):
        yield ids[place] if place < len(ids) else "no NUMA node", [group]
    for die in topology.dies:
        if groups := _groups(topology, free & die.cpus):
            yield f"die {die.id} of socket {die.package}", groups
    for package in topology.packages:
        if groups := _groups(topology, free & package.cpus):
            yield f"socket {package.id}", groups
    yield "the machine", everything


def _part_order(part: Groups, count: int, liked: CpuSet) -> tuple[int, int, int, int]:
    size = sum(map(len, part))
    like = sum(len(group & liked) for group in part) if liked else 0
    return _nodes_needed(part, count), -like, size, min(map(min, part), default=0)


def _groups(topology: Topology, free: CpuSet) -> Groups:
    groups = [node.cpus & free for node in topology.nodes]
    groups.append(free.difference(*groups))  # CPUs that sysfs puts in no node count as one more
    return [group for group in groups if group]


def _nodes_needed(groups: Iterable[CpuSet], count: int) -> int:
    """How many of *groups*, the largest first, it takes for *count* CPUs; all of them where they have too few."""
    sizes = sorted(map(len, groups), reverse=True)
    return sum(before < count for _, before in zip(sizes, accumulate(sizes, initial=0), strict=False))


def _next_group(groups: Sequence[CpuSet] | Sequence[list[int]], count: int) -> int:
    """Which group holds *count* most tightly, else is the largest."""

    def order(index: int) -> tuple[bool, int, int]:
        spare = len(groups[index]) - count
        return spare < 0, abs(spare), min(groups[index])

    return min(range(len(groups)), key=order)


def _take(topology: Topology, groups: Groups, count: int, taste: Taste) -> list[int]:
    """At most *count* CPUs of *groups*, in their order: whole cores, then threads."""
    cores = [core for place, group in enumerate(groups) for core in _cores(topology, group, place)]
    if taste.across_cores:
        return _across(cores)[:count]
    picked: list[int] = []
    for place in range(len(groups)):
        idle = sorted(cpu for core in cores if core.whole and core.place == place for cpu in core.cpus)
        picked += _pack(topology, idle, count - len(picked), topology.group_of)
    if len(picked) < count:
        picked += _threads(topology, cores, frozenset(picked))
    return picked[:count]


@dataclass(frozen=True, slots=True)
class _Free:
    """What is free of a core."""

    whole: bool
    """All its threads are."""
    place: int
    """Of its NUMA node in the order in which they are to be used."""
    cpus: list[int]


def _cores(topology: Topology, free: CpuSet, place: int) -> list[_Free]:
    """The cores with free CPUs in one NUMA node."""
    core_of, threads = topology.core_of, dict[int, list[int]]()
    for cpu in sorted(free):
        threads.setdefault(core_of[cpu].id if cpu in core_of else cpu, []).append(cpu)
    return [
        _Free(cpus[0] not in core_of or len(cpus) == len(core_of[cpus[0]].cpus), place, cpus)
        for cpus in threads.values()
    ]


def _pack(topology: Topology, cpus: list[int], count: int, levels: Sequence[Mapping[int, int]]) -> list[int]:
    """Whole groups and whole cores of *cpus*, at most *count*: fewer if the rest is less than a core."""
    if count >= len(cpus):
        return cpus
    if not levels:
        return _whole_cores(topology, cpus, count)
    groups = list(_split(cpus, levels[0]).values())
    picked: list[int] = []
    while (missing := count - len(picked)) > 0:
        group = groups.pop(_next_group(groups, missing))
        picked += _pack(topology, group, missing, levels[1:])
        if len(group) > missing:  # what is missing still is less than a core
            break
    return picked


def _whole_cores(topology: Topology, cpus: list[int], count: int) -> list[int]:
    picked: list[int] = []
    core_of = topology.core_of
    for core in _split(cpus, {cpu: core_of[cpu].id for cpu in cpus if cpu in core_of}).values():
        if len(core) <= count - len(picked):
            picked += core
    return picked


def _split(cpus: Iterable[int], group_of: Mapping[int, int]) -> dict[int, list[int]]:
    """*cpus* by group; one that is in none is alone."""
    groups: dict[int, list[int]] = {}
    for cpu in cpus:
        groups.setdefault(group_of.get(cpu, -1 - cpu), []).append(cpu)
    return groups


def _threads(topology: Topology, cores: Iterable[_Free], picked: CpuSet) -> list[int]:
    """The CPUs that are not *picked*: of cores that are used already first, the fullest of them first.

    Of several those close to what is picked, then those in the caches with the least room.
    """
    left = [_without(core, picked) for core in cores if not picked.issuperset(core.cpus)]
    rooms = [Counter(of.get(cpu, -1) for core in left for cpu in core.cpus) for of in topology.group_of]
    known = [{of.get(cpu, -1) for cpu in picked} for of in topology.group_of]

    def order(core: _Free) -> tuple[object, ...]:
        where = [of.get(core.cpus[0], -1) for of in topology.group_of]
        far = [group not in near for group, near in zip(where, known, strict=True)] if picked else []
        room = [room[group] for group, room in zip(where, rooms, strict=True)]
        return core.whole, len(core.cpus), core.place, far, room, core.cpus

    return [cpu for core in sorted(left, key=order) for cpu in core.cpus]


def _without(core: _Free, picked: CpuSet) -> _Free:
    """What is left of a core; a cache may have only some of its threads, as the kernel reports it."""
    if picked.isdisjoint(core.cpus):
        return core
    return _Free(False, core.place, [cpu for cpu in core.cpus if cpu not in picked])


def _across(cores: Sequence[_Free]) -> list[int]:
    """The first free thread of each core, idle cores first, then the second ones, and so on; node by node in each."""
    order = sorted(cores, key=lambda core: (not core.whole, core.place, core.cpus))
    rounds = max((len(core.cpus) for core in order), default=0)
    return [core.cpus[turn] for turn in range(rounds) for core in order if turn < len(core.cpus)]
