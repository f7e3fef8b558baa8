"""How pools compare by their memory: room for a request, room for what may be used beyond it, and kinds."""

from collections.abc import Sequence

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.memory.huge_pages import are_missing, promised_bytes
from criproxy.placement.alloc.memory.memory import rooms_bytes, with_attached
from criproxy.placement.alloc.pools import PoolTree
from criproxy.placement.alloc.rank import Criterion, Unit

ByPool = Sequence[Sequence[Criterion]]


def room_criteria(tree: PoolTree, others: Node, container: Container, *, by_limit: bool) -> ByPool:
    """Whether the memory that a container asks for can be promised there beside what others have.

    Args:
        tree: the pools.
        others: the node without the container.
        container: none is needed for one that asks for nothing.
        by_limit: whether a Burstable container counts with its limit (CRI-RM) and not with its request (nri-plugins).
    """
    size = _asked_bytes(container, by_limit=by_limit)
    if not size:
        return [()] * len(tree.pools)
    rooms = rooms_bytes(others, tree.nodes, pessimistic=by_limit)
    return [(Criterion("its memory fits", int(room is not None and size > room)),) for room in rooms]


def _asked_bytes(container: Container, *, by_limit: bool) -> int:
    request = container.memory_request_bytes
    if container.qos is QosClass.BEST_EFFORT:
        return 0
    if container.qos is QosClass.GUARANTEED or (by_limit and container.memory_limit_bytes):
        return container.memory_limit_bytes or 0
    return request.low if request else 0


def burst_criteria(sizes_bytes: Sequence[int], container: Container) -> ByPool:
    """Whether the memory of a pool is as large as what a Burstable container may use beyond its request.

    Without a limit that is all there is: the larger, the better.

    Args:
        sizes_bytes: by pool, see `Division.memory_bytes`.
        container: none is needed for one that is not Burstable, or asks for nothing.
    """
    request, limit = container.memory_request_bytes, container.memory_limit_bytes
    if container.qos is not QosClass.BURSTABLE or not (limit or (request and request.low)):
        return [()] * len(sizes_bytes)
    if limit:
        return [(Criterion("its memory limit fits", int(limit > size)),) for size in sizes_bytes]
    return [(Criterion("it has more memory", -size, Unit.MORE_BYTES),) for size in sizes_bytes]


def kind_criteria(tree: PoolTree, kinds: frozenset[MemoryKind]) -> ByPool:
    """Whether a pool has the *kinds* of memory that are asked for; nothing if none are."""
    if not kinds:
        return [()] * len(tree.pools)
    return [
        (Criterion("it has the memory that it asks for", int(not kinds <= _kinds(tree.topology, near))),)
        for near in tree.nodes
    ]


def page_criteria(tree: PoolTree, others: Node, container: Container) -> ByPool:
    """Whether a pool has the huge pages that are asked for; nothing if none are."""
    if not container.huge_pages:
        return [()] * len(tree.pools)
    promised = promised_bytes(others, container)
    missing = (are_missing(promised, container, with_attached(tree.topology, near)) for near in tree.nodes)
    return [(Criterion("it has the huge pages that it asks for", int(each)),) for each in missing]


def _kinds(topology: Topology, near: CpuSet) -> frozenset[MemoryKind]:
    mems = with_attached(topology, near) & (topology.mems | topology.other_mems)
    return frozenset(topology.node_by_id[mem].kind for mem in mems)
