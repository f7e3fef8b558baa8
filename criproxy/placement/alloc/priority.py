"""Which CPUs of a machine are the better and which the lesser ones: the words high, normal and low of our peers."""

from enum import StrEnum

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology


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
