"""Machines of the shapes in which CRI-RM and nri-plugins test: CPUs of one core have neighbouring numbers."""

from collections.abc import Mapping, Sequence

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.topology import Core, Die, MemoryKind, NumaNode, Package, Topology
from criproxy.simulate.hosts import GIB


def shaped(
    packages: Sequence[Sequence[str]],
    *,
    threads: int = 2,
    dies: bool = False,
    memory_only: Mapping[int, int] | None = None,
    allowed: str = "",
    isolated: str = "",
    memory_bytes: int = 2 * GIB,
) -> Topology:
    """A machine.

    Args:
        packages: for each the CPUs of its NUMA nodes; or of its dies, of two nodes each, if *dies*.
        threads: threads of one core.
        dies: whether each entry of a package is a die of two nodes.
        memory_only: further NUMA nodes of PMEM by id, each with the node that it is closest to.
        allowed: CPUs that pods may use, all where not given.
        isolated: CPUs that the kernel keeps free.
        memory_bytes: memory of one NUMA node.
    """
    parts = [[parse_cpuset(cpus) for cpus in package] for package in packages]
    groups = [group for package in parts for group in package]
    node_cpus = [half for group in groups for half in _halves(group)] if dies else groups
    nodes = [NumaNode(index, cpus, memory_bytes) for index, cpus in enumerate(node_cpus)]
    near = memory_only or {}
    nodes += [NumaNode(index, frozenset(), memory_bytes, kind=MemoryKind.PMEM) for index in near]
    online = frozenset[int]().union(*groups)
    ordered = sorted(online)
    cores = [frozenset(ordered[i : i + threads]) for i in range(0, len(ordered), threads)]
    return Topology(
        cpus=parse_cpuset(allowed) or online,
        mems=frozenset(node.id for node in nodes),
        nodes=tuple(nodes),
        cores=tuple(Core(min(core), core) for core in cores),
        packages=tuple(Package(index, frozenset[int]().union(*package)) for index, package in enumerate(parts)),
        online_cpus=online,
        dies=tuple(Die(i, j, cpus) for i, package in enumerate(parts) for j, cpus in enumerate(package))
        if dies
        else (),
        distances=tuple(tuple(_distance(a.id, b.id, near) for b in nodes) for a in nodes),
        isolated_cpus=parse_cpuset(isolated),
    )


def _halves(cpus: CpuSet) -> list[CpuSet]:
    ordered = sorted(cpus)
    middle = len(ordered) // 2
    return [frozenset(ordered[:middle]), frozenset(ordered[middle:])]


def _distance(one: int, other: int, near: Mapping[int, int]) -> int:
    if one == other:
        return 10
    return 17 if near.get(one) == other or near.get(other) == one else 28 if one in near or other in near else 21


def n4c16(allowed: str = "", isolated: str = "") -> Topology:
    """Two packages of two NUMA nodes of two cores of two threads, 2 GiB a node."""
    return shaped([["0-3", "4-7"], ["8-11", "12-15"]], allowed=allowed, isolated=isolated)


def n4c32() -> Topology:
    """Two packages of two dies of two NUMA nodes of four CPUs."""
    return shaped([["0-7", "8-15"], ["16-23", "24-31"]], dies=True)


def c4pmem4() -> Topology:
    """Four packages of one CPU, and four nodes of PMEM, each close to one of them."""
    return shaped([["0"], ["1"], ["2"], ["3"]], threads=1, memory_only={4: 2, 5: 3, 6: 0, 7: 1})
