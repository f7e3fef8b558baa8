"""The order in which CPUs are side by side on the page and on the screen of `criproxy top`."""

from collections.abc import Iterable
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class Block:
    """A NUMA node, or what is in none, in one package."""

    package: int
    node: int
    """-1: in no NUMA node."""
    groups: tuple[tuple[int, ...], ...]
    """Its CPUs by level 3 cache; the threads of a core are neighbours."""

    @property
    def cpus(self) -> list[int]:
        """All of them in order."""
        return [cpu for group in self.groups for cpu in group]


def blocks_of(topology: Topology) -> list[Block]:
    """The NUMA nodes of a machine, package by package, CPUs that are offline left out."""
    packages = [(package.id, package.cpus) for package in topology.packages] or [(0, topology.online_cpus)]
    found, rest = list[Block](), topology.online_cpus
    for package, members in packages:
        for node in topology.nodes:
            if part := members & node.cpus & rest:
                found.append(Block(package, node.id, _groups(part, topology)))
                rest -= part
        if part := members & rest:
            found.append(Block(package, -1, _groups(part, topology)))
            rest -= part
    return [*found, Block(-1, -1, _groups(rest, topology))] if rest else found


def _groups(cpus: CpuSet, topology: Topology) -> tuple[tuple[int, ...], ...]:
    groups, rest = list[tuple[int, ...]](), cpus
    for cache in topology.l3_groups:
        if part := cache & rest:
            groups.append(_by_core(part, topology))
            rest -= part
    return (*groups, _by_core(rest, topology)) if rest else tuple(groups)


def _by_core(cpus: Iterable[int], topology: Topology) -> tuple[int, ...]:
    core_of = topology.core_of
    return tuple(sorted(cpus, key=lambda cpu: (core_of[cpu].id if cpu in core_of else cpu, cpu)))
