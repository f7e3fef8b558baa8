"""Which NUMA nodes have the huge pages that a container asks for, beside what others may use.

The kernel gives huge pages only of the nodes that a container is kept to. How many of them are free was read when the
container was created; others that came just before may not have used theirs yet.
"""

from collections import Counter
from collections.abc import Mapping

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.huge_pages import HugePageRequest
from criproxy.model.machine.topology import LOCAL_DISTANCE, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container

Promised = Mapping[tuple[int, CpuSet], int]
"""By the size of a page and the NUMA nodes to which containers are kept, how many bytes these may use."""


def promised_bytes(node: Node, container: Container) -> Promised:
    """What other containers of *node* may use of huge pages; empty if *container* asks for none."""
    found: Counter[tuple[int, CpuSet]] = Counter()
    if container.huge_pages:
        containers = node.containers
        for key, grant in node.grants.items():
            if key != container.key and grant.mems and key in containers:
                for each in containers[key].huge_pages:
                    found[each.size_bytes, grant.mems] += each.limit_bytes
    return found


def are_missing(promised: Promised, container: Container, mems: CpuSet) -> bool:
    """Whether the NUMA nodes *mems* lack huge pages that *container* asks for, beside what is *promised*."""
    return any(_room_bytes(promised, each, mems) < each.limit_bytes for each in container.huge_pages)


def with_huge_pages(topology: Topology, promised: Promised, container: Container, mems: CpuSet) -> CpuSet:
    """Return *mems* and the nearest NUMA nodes that it takes for the huge pages of *container*.

    Where too few are free on all nodes together, every node that has some is added; where it is unknown how many there
    are, every node. Where no node has any, none is added.

    Args:
        topology: the machine.
        promised: what others may use.
        container: the one that asks.
        mems: where its other memory comes from.
    """
    for asked in container.huge_pages:
        mems = _reaching(topology, promised, asked, mems)
    return mems


def _reaching(topology: Topology, promised: Promised, asked: HugePageRequest, mems: CpuSet) -> CpuSet:
    open_nodes = topology.mems | mems
    have = {each.node: each.free for each in asked.there if each.total and each.node in open_nodes}

    def order(other: int) -> tuple[int, int, int]:
        near = (topology.distance(one, other) for one in mems)
        return min(near, default=LOCAL_DISTANCE), -have[other], other

    found = mems
    for more in sorted((each for each in have.keys() - mems if have[each]), key=order):
        if _room_bytes(promised, asked, found) >= asked.limit_bytes:
            return found
        found |= {more}
    if _room_bytes(promised, asked, found) >= asked.limit_bytes:
        return found
    return open_nodes if not asked.there else found | frozenset(have)


def _room_bytes(promised: Promised, asked: HugePageRequest, mems: CpuSet) -> int:
    """How much of its pages *mems* have: what is free, and not more than others, who need not use theirs yet, leave."""
    there = [each for each in asked.there if each.node in mems]
    free = sum(each.free for each in there)
    total = sum(each.total for each in there)
    taken = sum(limit for (size, kept), limit in promised.items() if size == asked.size_bytes and kept <= mems)
    return min(free * asked.size_bytes, total * asked.size_bytes - taken)
