"""Which NUMA nodes have the huge pages that a container asks for, beside what others may use.

The kernel gives huge pages only of the nodes that a container is kept to. How many of them are free was read when the
container was created; others that came just before may not have used theirs yet.
"""

from collections.abc import Mapping

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Grant
from criproxy.model.huge_pages import HugePageRequest
from criproxy.model.node import Node
from criproxy.model.topology import LOCAL_DISTANCE
from criproxy.model.workload import Container


def are_missing(node: Node, container: Container, mems: CpuSet) -> bool:
    """Whether the NUMA nodes *mems* lack huge pages that *container* asks for."""
    return any(_room_bytes(node, container, each, mems) < each.limit_bytes for each in container.huge_pages)


def with_huge_pages(node: Node, container: Container, mems: CpuSet) -> CpuSet:
    """Return *mems* and the nearest NUMA nodes that it takes for the huge pages of *container*.

    Where too few are free on all nodes together, every node that has some is added; where none is known, every node.

    Args:
        node: with the grants of all others.
        container: the one that asks.
        mems: where its other memory comes from.
    """
    for asked in container.huge_pages:
        mems = _reaching(node, container, asked, mems)
    return mems


def _reaching(node: Node, container: Container, asked: HugePageRequest, mems: CpuSet) -> CpuSet:
    open_nodes = node.topology.mems | mems
    have = {each.node: each.free for each in asked.there if each.total and each.node in open_nodes}

    def order(other: int) -> tuple[int, int, int]:
        near = (node.topology.distance(one, other) for one in mems)
        return min(near, default=LOCAL_DISTANCE), -have[other], other

    found = mems
    for more in sorted((each for each in have.keys() - mems if have[each]), key=order):
        if _room_bytes(node, container, asked, found) >= asked.limit_bytes:
            return found
        found |= {more}
    if _room_bytes(node, container, asked, found) >= asked.limit_bytes:
        return found
    return found | frozenset(have) if have else open_nodes


def _room_bytes(node: Node, container: Container, asked: HugePageRequest, mems: CpuSet) -> int:
    """How much of its pages *mems* have: what is free, and not more than others, who need not use theirs yet, leave."""
    there = [each for each in asked.there if each.node in mems]
    free = sum(each.free for each in there)
    total = sum(each.total for each in there)
    return min(free * asked.size_bytes, total * asked.size_bytes - _promised_bytes(node, container, asked, mems))


def _promised_bytes(node: Node, container: Container, asked: HugePageRequest, mems: CpuSet) -> int:
    """What other containers that are kept to some of *mems* may use of the same pages."""
    return sum(
        each.limit_bytes
        for key, other in _askers(node.containers, node.grants, container.key).items()
        if (kept := node.grants[key].mems) and kept <= mems
        for each in other.huge_pages
        if each.size_bytes == asked.size_bytes
    )


def _askers(containers: Mapping[str, Container], grants: Mapping[str, Grant], without: str) -> dict[str, Container]:
    there = (key for key in grants if key != without and key in containers)
    return {key: containers[key] for key in there if containers[key].huge_pages}
