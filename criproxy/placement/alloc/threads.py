"""Threads of cores: one of each, where the others are hidden, or all of them."""

from collections.abc import Sequence

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import LOCAL_DISTANCE, Core, Topology


def one_thread_each(topology: Topology, cpus: CpuSet, first: CpuSet = frozenset()) -> CpuSet:
    """One CPU of each core that *cpus* are on: the lowest, those that are in *first* before all others."""
    seen: dict[int, int] = {}
    for cpu in (*sorted(cpus & first), *sorted(cpus - first)):
        core = topology.core_of.get(cpu)
        seen.setdefault(core.id if core else cpu, cpu)
    return frozenset(seen.values())


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
