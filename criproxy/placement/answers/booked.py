"""How much of the CPUs, memory and huge pages of each NUMA node is taken, and how much is left for schedulers.

What a container shares counts on the NUMA nodes where it may be, in proportion to their sizes: to the number of the
CPUs that it may use there, and to their memory. The parts add up to exactly what it asks for. CRI does not say how much
memory a Burstable container requests, only an interval (`Container.memory_request_bytes`): its middle counts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.hardware import HugePages
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.alloc.capacity import shared_milli


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedCpus:
    """The CPUs of one NUMA node."""

    cpus: CpuSet
    """Those that pods may use."""
    reserved: CpuSet = NO_CPUS
    """Of these, the reserved ones."""
    exclusive: CpuSet = NO_CPUS
    """Of these, the exclusive and the kept ones."""
    shared_milli: int = 0
    """What containers ask for of the CPUs that they share, without those that use only reserved CPUs."""

    @property
    def allocatable_milli(self) -> int:
        """What containers can have in all."""
        return 1000 * len(self.cpus - self.reserved)

    @property
    def available_milli(self) -> int:
        """What they can still have; 0 where they ask for more than there is."""
        return max(0, self.allocatable_milli - 1000 * len(self.exclusive - self.reserved) - self.shared_milli)


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


def booked_cpus(node: Node, reserved: CpuSet) -> Mapping[int, BookedCpus]:
    """Return the CPUs by NUMA node.

    Args:
        node: has the grants of its containers.
        reserved: CPUs that containers do not get.
    """
    topology = node.topology
    usable = node.shared_cpus - reserved - topology.isolated_cpus
    booked: Counter[int] = Counter()
    for place, milli in asked_milli(node, usable).items():
        booked.update(_split(milli, _cpus_by_node(topology, place)))
    return {
        numa.id: BookedCpus(
            cpus=(cpus := numa.cpus & topology.cpus),
            reserved=reserved & cpus,
            exclusive=node.exclusive_cpus & cpus,
            shared_milli=booked[numa.id],
        )
        for numa in topology.nodes
    }


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


def free_milli(node: Node, reserved: CpuSet) -> Mapping[int, int]:
    """Return the milli-CPU that no container has requested, by NUMA node; 0 for an overcommitted node.

    Unlike `BookedCpus.available_milli`, without isolated CPUs, which containers that share do not get.

    Args:
        node: has the grants of its containers.
        reserved: CPUs that containers do not get.
    """
    isolated = node.topology.isolated_cpus - reserved - node.exclusive_cpus
    booked = booked_cpus(node, reserved)
    return {number: max(0, each.available_milli - 1000 * len(isolated & each.cpus)) for number, each in booked.items()}


def asked_milli(node: Node, usable: CpuSet) -> Mapping[CpuSet, int]:
    """Return the requests of shared containers by those of their CPUs that are *usable*, without those that have none.

    Hundreds of containers have few distinct sets.
    """
    by_place: Counter[tuple[CpuSet, CpuSet]] = Counter()
    for key, container in _placed(node).items():
        grant = node.grants.get(key)
        cpus = grant.cpus if grant else node.applied[key].cpus if key in node.applied else node.topology.cpus
        exclusive = grant.exclusive if grant else NO_CPUS
        by_place[cpus, exclusive] += shared_milli(container, len(exclusive))
    found: Counter[CpuSet] = Counter()
    for (cpus, _), milli in by_place.items():
        if shared := cpus & usable:
            found[shared] += milli
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
        booked.update(_split(size_bytes, {mem: topology.memory_bytes([mem]) for mem in sorted(mems)}))
    return booked


def _cpus_by_node(topology: Topology, cpus: CpuSet) -> Mapping[int, int]:
    """Return the number of *cpus* by NUMA node; -1 for those of none."""
    counts = {numa.id: len(numa.cpus & cpus) for numa in topology.nodes if numa.cpus & cpus}
    return counts if (left := len(cpus) - sum(counts.values())) == 0 else {**counts, -1: left}


def _split(amount: int, weights: Mapping[int, int]) -> dict[int, int]:
    """Split *amount* in proportion to *weights* into whole numbers that add up to it; equally if these are all 0."""
    if not weights:
        return {}
    total = sum(weights.values())
    known = weights if total else dict.fromkeys(weights, 1)
    total = total or len(weights)
    parts = {key: amount * weight // total for key, weight in known.items()}
    by_remainder = sorted(known, key=lambda key: (-(amount * known[key] % total), key))
    for key in by_remainder[: amount - sum(parts.values())]:
        parts[key] += 1
    return parts
