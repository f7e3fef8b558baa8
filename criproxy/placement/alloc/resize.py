"""Choosing CPUs for a container that has some already."""

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology
from criproxy.placement.alloc.cpus import PLAIN, Taste, rings, take_cpus, take_in_order


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
    if count > len(own | free):
        raise NotEnough(f"{count} CPUs wanted, {len(own | free)} free")
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
