"""Choosing CPUs next to things, such as devices."""

from collections.abc import Sequence

from criproxy.alloc.cpus import take_cpus
from criproxy.model.cpuset import CpuSet
from criproxy.model.topology import Topology


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
        cpus = frozenset[int]().union(*(topology.node_by_id[n].cpus for n in hint if n in topology.node_by_id))
        near = (cpus & free) - taken
        wanted = 1 if rest else each
        if len(near) < wanted:
            return take_cpus(topology, free, count)
        taken |= take_cpus(topology, near, wanted)
    return taken | take_cpus(topology, free - taken, count - len(taken))
