"""Cutting a machine into fixed parts, one after the other: each in the first place that has room for it."""

from collections.abc import Iterator

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.placement.alloc.cpus import take_cpus


def cut(topology: Topology, free: CpuSet, count: int) -> CpuSet:
    """*count* of *free* in the first NUMA node that has as many, else the first die, package or the whole machine.

    Of the places of a kind those come first where the part consists of whole cores. What follows in order of number
    stays together, and leaves the rest of the machine in one piece; `take_cpus` would choose the tightest place.

    Raises:
        NotEnough: *free* is smaller than *count*.
    """
    whole = free.difference(*(core.cpus for core in topology.cores if not core.cpus <= free))
    for places in _places(topology):
        roomy = [place & free for place in places if len(place & free) >= count]
        tidy = (part for part in roomy if len(part & whole) >= count - count % _threads(topology))
        part = next(tidy, roomy[0] if roomy else None)
        if part is not None:
            return take_cpus(topology, part, count)
    raise NotEnough(f"{count} CPUs wanted, {len(free)} free")


def _places(topology: Topology) -> Iterator[list[CpuSet]]:
    yield [node.cpus for node in topology.nodes]
    yield [die.cpus for die in topology.dies]
    yield [package.cpus for package in topology.packages]
    yield [topology.cpus]


def _threads(topology: Topology) -> int:
    return max((len(core.cpus) for core in topology.cores), default=1)
