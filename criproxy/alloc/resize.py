"""Choosing CPUs for somebody that has some already."""

from criproxy.alloc.cpus import take_cpus
from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet
from criproxy.model.topology import Topology


def resize_cpus(topology: Topology, own: CpuSet, free: CpuSet, count: int) -> CpuSet:
    """Pick *count* CPUs for somebody that has *own* ones, of which as many as possible stay.

    More come from the cores that it uses already, then from its NUMA nodes, then from anywhere in *free*.

    Raises:
        NotEnough: *own* and *free* together are smaller than *count*.
    """
    if count <= len(own):
        return take_cpus(topology, own, count)
    if count > len(own | free):
        raise NotEnough(f"{count} CPUs wanted, {len(own | free)} free")
    cores = own.union(*(topology.core_of[cpu].cpus for cpu in own if cpu in topology.core_of))
    nodes = own.union(*(topology.node_by_id[node].cpus for node in topology.nodes_of(own)))
    picked = own
    for part in (cores, nodes, free):
        near = (free & part) - picked
        picked |= take_cpus(topology, near, min(len(near), count - len(picked)))
    return picked
