"""Hyperthreads that are hidden: of each core, one thread."""

from criproxy.model.cpuset import CpuSet
from criproxy.model.topology import Topology


def one_thread_each(topology: Topology, cpus: CpuSet, first: CpuSet = frozenset()) -> CpuSet:
    """One CPU of each core that *cpus* are on: the lowest, those that are in *first* before all others."""
    seen: dict[int, int] = {}
    for cpu in (*sorted(cpus & first), *sorted(cpus - first)):
        core = topology.core_of.get(cpu)
        seen.setdefault(core.id if core else cpu, cpu)
    return frozenset(seen.values())
