"""Choosing CPUs next to things, such as devices."""

from collections import Counter
from collections.abc import Iterator, Sequence

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.placement.alloc.cpus import PLAIN, Taste, rings, take_cpus, take_in_order


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
