"""Choosing CPUs beyond `cpus`: of a kind, next to devices, next to those that a container has, and by whole cores."""

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import LOCAL_DISTANCE, Core, Topology
from criproxy.placement.alloc.cpus import PLAIN, Taste, rings, take_cpus, take_in_order


class Priority(StrEnum):
    """Which kind of CPUs is preferred."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    NONE = "none"


def cpus_of_priority(topology: Topology, priority: Priority) -> CpuSet:
    """The CPUs to take first for a *priority*; none where it makes no difference.

    On a machine with different kinds of cores, efficiency cores are low and performance cores normal. Of cores that
    differ in their frequency alone, the fastest are high. High without high ones means normal ones.
    """
    kinds = topology.cpu_kinds
    if priority is Priority.NONE or len(kinds) < 2:
        return frozenset()
    largest = max(kind.capacity for kind in kinds)
    low = frozenset[int]().union(*(kind.cpus for kind in kinds if kind.capacity < largest))
    fast = [kind for kind in kinds if kind.capacity == largest]
    high = fast[-1].cpus if len(fast) > 1 else frozenset()
    normal = frozenset[int]().union(*(kind.cpus for kind in fast)) - high
    return {Priority.HIGH: high or normal, Priority.NORMAL: normal, Priority.LOW: low}[priority]


def take_near(topology: Topology, free: CpuSet, count: int, hints: Sequence[CpuSet]) -> CpuSet:
    """Pick CPUs next to each of several things, the same number for each; where that cannot be, as `take_cpus`.

    Args:
        topology: the machine; read only.
        free: CPUs that may be taken.
        count: how many of them.
        hints: for each thing the NUMA nodes next to it. If their number does not divide *count*, each gets one CPU, and
            the rest come from anywhere.

    Raises:
        NotEnough: *free* is smaller than *count*.
    """
    each, rest = divmod(count, len(hints)) if hints else (0, 0)
    taken: CpuSet = frozenset()
    for hint in hints if each else ():
        near = (topology.cpus_of(hint) & free) - taken
        wanted = 1 if rest else each
        if len(near) < wanted:
            return take_cpus(topology, free, count)
        taken |= take_cpus(topology, near, wanted)
    return taken | take_cpus(topology, free - taken, count - len(taken))


def take_beside(topology: Topology, free: CpuSet, count: int, hints: Sequence[CpuSet], taste: Taste = PLAIN) -> CpuSet:
    """Pick CPUs next to several things, as many beside each as beside the others; what is missing, as near as it gets.

    Args:
        topology: the machine; read only.
        free: CPUs that may be taken.
        count: how many of them.
        hints: for each thing the NUMA nodes next to it; things on the same nodes count together.
        taste: which CPUs of a node are liked better.

    Raises:
        NotEnough: *free* is smaller than *count*.
    """
    taken: CpuSet = frozenset()
    for hint, share in _shares(hints, count):
        near = (topology.cpus_of(hint) & free) - taken
        taken |= take_cpus(topology, near, min(share, len(near)), taste)
    nodes = frozenset[int]().union(*hints)
    return taken | take_in_order(topology, free - taken, count - len(taken), rings(topology, nodes), taste)


def _shares(hints: Sequence[CpuSet], count: int) -> Iterator[tuple[CpuSet, int]]:
    """How many of *count* CPUs go to each place, by the number of things there; the first ones get what is over."""
    seen = given = 0
    for place, number in Counter(hints).items():
        seen += number
        upto = -(-count * seen // len(hints))
        yield place, upto - given
        given = upto


def resize_cpus(topology: Topology, own: CpuSet, free: CpuSet, count: int, taste: Taste = PLAIN) -> CpuSet:
    """Pick *count* CPUs for a container that has *own* ones, of which as many as possible stay.

    More come from the cores that it uses already, then from its NUMA nodes, then from the next ones by distance.

    Args:
        topology: the machine.
        own: what it has; with none, this is `take_cpus`.
        free: CPUs that it may have; whether *own* ones are among them makes no difference.
        count: how many it shall have.
        taste: what it likes, of those that stay and of those that come; `Taste.across_cores` leaves its cores for last
            within a node, `Taste.first` goes before what is near if there are enough.

    Raises:
        NotEnough: *own* and *free* together are smaller than *count*.
    """
    if count <= len(own):
        return take_cpus(topology, own, count, taste)
    if not own:
        return take_cpus(topology, free, count, taste)
    more, free = count - len(own), free - own
    if len(free & taste.first) >= more:
        free &= taste.first
    cores = own.union(*(topology.core_of[cpu].cpus for cpu in own if cpu in topology.core_of))
    parts = rings(topology, topology.nodes_of(own))
    if taste.across_cores:
        parts = [part for ring in parts for part in (ring - cores, ring)]
    else:
        parts.insert(0, cores)
    return own | take_in_order(topology, free, more, parts, taste)


def whole_cores(topology: Topology, whole: CpuSet, chosen: CpuSet) -> CpuSet | None:
    """As many CPUs as *chosen*, but of whole cores only, those of *chosen* and near them first; None: impossible.

    Args:
        topology: the machine; its cores may have different numbers of threads.
        whole: CPUs of whole cores that may be taken.
        chosen: some of them, perhaps only a part of a core.
    """
    if not any(core.cpus & chosen and not core.cpus <= chosen for core in topology.cores):
        return chosen
    cores = [core for core in topology.cores if core.cpus <= whole]
    near = topology.nodes_of(chosen)

    def order(core: Core) -> tuple[object, ...]:
        distances = [topology.distance(one, node) for one in near for node in topology.nodes_of(core.cpus)]
        part = len(core.cpus & chosen) / len(core.cpus)
        return -part, min(distances, default=LOCAL_DISTANCE), core.id

    return _exactly(sorted(cores, key=order), len(chosen))


def _exactly(cores: Sequence[Core], count: int) -> CpuSet | None:
    """The CPUs of cores with *count* CPUs in total, the first ones preferred; None where none have exactly as many."""
    sums = [1]  # bit n of sums[k]: some of the last k cores have n CPUs in total
    for core in reversed(cores):
        sums.append(sums[-1] | sums[-1] << len(core.cpus))
    if not sums[-1] >> count & 1:
        return None
    taken: CpuSet = frozenset()
    for core, of_rest in zip(cores, reversed(sums[:-1]), strict=True):
        left = count - len(taken) - len(core.cpus)
        if left >= 0 and of_rest >> left & 1:
            taken |= core.cpus
    return taken
