"""How much of the CPUs of each NUMA node is taken, and how much is left: by requests, whatever containers use.

What a container shares counts on the NUMA nodes where it may be, in proportion to the number of the CPUs that it may
use there. The parts add up to exactly what it asks for.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from criproxy.model.cpuset import CpuSet, interned
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.remembered import remembered
from criproxy.model.workload import ContainerState
from criproxy.placement.alloc.capacity import shared_milli
from criproxy.placement.alloc.sums import Change, Sums


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


class _Part(NamedTuple):
    """What one container asks for."""

    cpus: CpuSet
    """On which it may run."""
    milli: int


def booked_cpus(node: Node, reserved: CpuSet) -> Mapping[int, BookedCpus]:
    """Return the CPUs by NUMA node.

    Args:
        node: has the grants of its containers.
        reserved: CPUs that containers do not get.
    """
    machine = node.topology, reserved, interned(node.exclusive_cpus)
    shared = _shared_milli(*machine, _asked(node))
    return {number: replace(each, shared_milli=shared[number]) for number, each in _unshared(*machine).items()}


def free_milli(node: Node, reserved: CpuSet) -> Mapping[int, int]:
    """Return the milli-CPU that no container has requested, by NUMA node; 0 for an overcommitted node.

    Unlike `BookedCpus.available_milli`, without isolated CPUs, which containers that share do not get.

    Args:
        node: has the grants of its containers.
        reserved: CPUs that containers do not get.
    """
    machine = node.topology, reserved, interned(node.exclusive_cpus)
    shared = _shared_milli(*machine, _asked(node))
    return {number: max(0, milli - shared[number]) for number, milli in _sharable_milli(*machine).items()}


@remembered(4)  # what an event leads to is what the next one comes from
def idle_cpus(node: Node, reserved: CpuSet) -> Mapping[int, int]:
    """Return how many whole CPUs no container has requested, by NUMA node; as `free_milli`."""
    return {number: milli // 1000 for number, milli in free_milli(node, reserved).items()}


def numa_nodes(node: Node, reserved: CpuSet, cpus: CpuSet) -> Collection[int]:
    """Return the NUMA nodes of those of *cpus* that containers share, without *reserved* ones."""
    usable = _usable(node.topology, reserved, interned(node.exclusive_cpus))
    return _cpus_by_node(node.topology, cpus, usable).keys()


def _asked(node: Node) -> Mapping[CpuSet, int]:
    """Return what containers ask for of CPUs that they share, in milli-CPU, by the CPUs on which they may run."""
    placed = _requests(node.topology).of(node, node.grants)
    if len(node.containers) == len(node.grants):
        return placed
    others: Counter[CpuSet] = Counter()
    for key in node.containers.keys() - node.grants.keys():
        if milli := _milli(node, key):
            others[node.applied[key].cpus if key in node.applied else node.topology.cpus] += milli
    return placed + others if others else placed


def _milli(node: Node, key: str, owned: int = 0) -> int:
    container = node.containers.get(key)
    ended = container is None or container.state is ContainerState.EXITED
    return 0 if container is None or ended else shared_milli(container, owned)


def _part(node: Node, key: str, grant: Grant) -> _Part | None:
    milli = _milli(node, key, len(grant.exclusive))
    return _Part(grant.cpus, milli) if milli else None


def _changed(asked: Counter[CpuSet], changes: Sequence[Change[_Part]]) -> Counter[CpuSet]:
    found = Counter(asked)
    for _, old, new in changes:
        if old:
            found[old.cpus] -= old.milli
        if new:
            found[new.cpus] += new.milli
    found = +found
    return asked if found == asked else found


# What follows is asked with the same objects again and again, since hundreds of containers have few distinct sets.


@remembered(4)
def _requests(_: Topology) -> Sums[_Part, Counter[CpuSet]]:
    """Return the requests of the containers of one machine that have a place."""
    return Sums(_part, attrgetter("cpus", "exclusive"), Counter[CpuSet](), _changed)


@remembered(4)
def _shared_milli(topology: Topology, reserved: CpuSet, exclusive: CpuSet, asked: Mapping[CpuSet, int]) -> Counter[int]:
    """Return what containers ask for of the CPUs that they share, by NUMA node."""
    usable, found = _usable(topology, reserved, exclusive), Counter[int]()
    for cpus, milli in asked.items():
        for number, part in split(milli, _cpus_by_node(topology, cpus, usable)).items():
            found[number] += part
    return found


@remembered(4)
def _unshared(topology: Topology, reserved: CpuSet, exclusive: CpuSet) -> Mapping[int, BookedCpus]:
    """Return the CPUs by NUMA node if no container shares any."""
    every = {numa.id: numa.cpus & topology.cpus for numa in topology.nodes}
    return {
        number: BookedCpus(cpus=cpus, reserved=reserved & cpus, exclusive=exclusive & cpus)
        for number, cpus in every.items()
    }


@remembered(4)
def _sharable_milli(topology: Topology, reserved: CpuSet, exclusive: CpuSet) -> Mapping[int, int]:
    """Return what containers can share, by NUMA node: no isolated CPUs."""
    isolated = topology.isolated_cpus - reserved - exclusive
    booked = _unshared(topology, reserved, exclusive)
    return {number: each.available_milli - 1000 * len(isolated & each.cpus) for number, each in booked.items()}


@remembered(4)
def _usable(topology: Topology, reserved: CpuSet, exclusive: CpuSet) -> CpuSet:
    return topology.cpus - exclusive - reserved - topology.isolated_cpus


@remembered(256)
def _cpus_by_node(topology: Topology, cpus: CpuSet, usable: CpuSet) -> Mapping[int, int]:
    """Return the number of those of *cpus* that are *usable* by NUMA node; -1 for those of none."""
    shared = cpus & usable
    counts = {numa.id: len(numa.cpus & shared) for numa in topology.nodes if numa.cpus & shared}
    return counts if (left := len(shared) - sum(counts.values())) == 0 else {**counts, -1: left}


def split(amount: int, weights: Mapping[int, int]) -> dict[int, int]:
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
