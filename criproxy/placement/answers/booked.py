"""How much of the memory and huge pages of each NUMA node is taken, and how much is left for schedulers.

What a container may use counts on the NUMA nodes where it may be, in proportion to their memory; `alloc.booked_cpus`
has the same of CPUs. CRI does not say how much memory a Burstable container requests, only an interval
(`Container.memory_request_bytes`): its middle counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.hardware import HugePages
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.alloc.booked_cpus import split


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedMemory:
    """The memory, or the huge pages of one size, of one NUMA node."""

    capacity_bytes: int
    allocatable_bytes: int
    """What pods may use."""
    requested_bytes: int = 0
    """What containers that may use it ask for."""
    free_bytes: int | None = None
    """For huge pages: those that nobody uses now."""

    @property
    def available_bytes(self) -> int:
        """What containers can still have; 0 where they ask for more than there is."""
        left = max(0, self.allocatable_bytes - self.requested_bytes)
        return left if self.free_bytes is None else min(left, self.free_bytes)


def booked_memory(node: Node) -> Mapping[int, BookedMemory]:
    """Return the memory by NUMA node, by the requests of the containers of *node*."""
    topology = node.topology
    booked = _booked_bytes(node, {key: _requested_bytes(each) for key, each in _placed(node).items()})
    return {
        numa.id: BookedMemory(
            capacity_bytes=numa.memory_bytes,
            allocatable_bytes=numa.memory_bytes if numa.id in topology.mems else 0,
            requested_bytes=booked[numa.id],
        )
        for numa in topology.nodes
    }


def booked_pages(node: Node, pages: Sequence[HugePages]) -> Mapping[int, Mapping[int, BookedMemory]]:
    """Return the huge pages by NUMA node and size in bytes; sizes of which a node has none are left out.

    Args:
        node: its containers may use some of them.
        pages: those of the machine, as they are now.
    """
    found: dict[int, dict[int, BookedMemory]] = {}
    for size in sorted({each.size_bytes for each in pages if each.total}):
        asked = {
            key: sum(pages.limit_bytes for pages in each.huge_pages if pages.size_bytes == size)
            for key, each in _placed(node).items()
        }
        booked = _booked_bytes(node, asked)
        for each in pages:
            if each.size_bytes == size and each.total:
                total = each.total * size
                found.setdefault(each.node, {})[size] = BookedMemory(
                    capacity_bytes=total,
                    allocatable_bytes=total if each.node in node.topology.mems else 0,
                    requested_bytes=booked[each.node],
                    free_bytes=each.free * size,
                )
    return found


def _placed(node: Node) -> Mapping[str, Container]:
    """Return the containers that have not ended."""
    return {key: each for key, each in node.containers.items() if each.state is not ContainerState.EXITED}


def _requested_bytes(container: Container) -> int:
    """Return the memory that a container requests; its limit where the request is unknown, which may be 0."""
    if (request := container.memory_request_bytes) is not None:
        return (request.low + request.high) // 2
    return container.memory_limit_bytes or 0


def _booked_bytes(node: Node, asked: Mapping[str, int]) -> Counter[int]:
    """Return what is *asked* for, by container, of the memory of each NUMA node."""
    topology, by_place = node.topology, Counter[CpuSet]()
    for key, size_bytes in asked.items():
        grant, applied = node.grants.get(key), node.applied.get(key)
        mems = (grant.mems if grant else NO_CPUS) or (applied.mems if applied else NO_CPUS)
        by_place[mems & topology.mems or topology.mems] += size_bytes
    booked: Counter[int] = Counter()
    for mems, size_bytes in by_place.items():
        booked.update(split(size_bytes, {mem: topology.memory_bytes([mem]) for mem in sorted(mems)}))
    return booked
