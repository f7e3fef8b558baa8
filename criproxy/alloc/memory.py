"""Choosing NUMA nodes for memory: the interim rule, until zones of memory are accounted for.

A container that is pinned to nodes whose memory runs out is killed while other nodes have plenty. So
memory is pinned only where limits promise that this cannot happen.
"""

from collections.abc import Iterable

from criproxy.model.cpuset import CpuSet
from criproxy.model.node import Node
from criproxy.model.workload import Container

FILL_PERCENT = 90
"""Up to this share of the nodes' memory, limits of pinned containers are accepted."""


def memory_nodes(node: Node, container: Container, cpus: CpuSet) -> tuple[CpuSet, str]:
    """NUMA nodes for the memory of a *container* on *cpus*, and the reason in one sentence.

    All usable nodes, unless the container has a memory limit and the limits of everybody pinned to any of the
    nodes of its CPUs, its own included, sum up to at most 90 % of their memory. Nodes without normal memory (none,
    or movable only) do not become the whole set. Who has a place already keeps the nodes that it has: memory in use
    is not moved.
    """
    topology = node.topology
    had = node.grants.get(container.key)
    if had and had.mems in (topology.mems, frozenset()):
        return had.mems, "memory from where it came before"
    nodes = topology.nodes_of(cpus) | (had.mems if had else frozenset())
    near = frozenset(mem for mem in nodes & topology.mems if topology.node_by_id[mem].memory_bytes)
    if near == topology.mems or not topology.mems:
        return topology.mems, "memory from every node: the CPUs span all that there are"
    if not topology.can_hold(near):
        return topology.mems, "memory from every node: the CPUs' own nodes have no normal memory"
    if not container.memory_limit_bytes:
        return topology.mems, "memory from every node: without a memory limit it cannot be pinned safely"
    limits = container.memory_limit_bytes + _pinned_bytes(node, near, without=container.key)
    if limits * 100 > topology.memory_bytes(near) * FILL_PERCENT:
        return topology.mems, f"memory from every node: limits on the CPUs' nodes would exceed {FILL_PERCENT} %"
    return near, "memory from the CPUs' own nodes"


def _pinned_bytes(node: Node, mems: CpuSet, without: str) -> int:
    """The limits of containers that are pinned to a set of nodes with any of *mems* in it."""
    return sum(_limits(node, mems, without))


def _limits(node: Node, mems: CpuSet, without: str) -> Iterable[int]:
    for key, grant in node.grants.items():
        if key != without and grant.mems != node.topology.mems and not grant.mems.isdisjoint(mems):
            yield (node.containers[key].memory_limit_bytes or 0) if key in node.containers else 0
