"""Who owns which CPU, and in which order CPUs stand side by side on a screen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_letters, digits

from criproxy.api.views.top.snapshot import Row, Snapshot
from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import Topology

MARKS = ascii_letters + digits
"""Marks of containers with exclusive CPUs, in the order in which they are assigned."""
MANY = "+"
"""The mark of those for which there is none left."""
SHARED, RESERVED, KEPT, FORBIDDEN, OFFLINE, UNKNOWN = "·", "=", "~", "-", "x", "?"
"""Marks of CPUs that are not exclusive to a container."""


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


def blocks_of_nodes(nodes: Mapping[int, CpuSet]) -> list[Block]:
    """The same where only the daemon's answer is known."""
    return [Block(0, node, (tuple(sorted(cpus)),)) for node, cpus in sorted(nodes.items()) if cpus]


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


@dataclass(frozen=True, slots=True)
class Owners:
    """Who owns the CPUs."""

    mark_of: Mapping[int, str] = field(default_factory=dict)
    """By CPU: the mark of its owner, or one of those above."""
    owner_of: Mapping[int, Row] = field(default_factory=dict)
    """By CPU: the container to which it is exclusive."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """By container: its mark."""


def owners_of(told: Snapshot, before: Mapping[str, str]) -> Owners:
    """Who owns what; containers keep the marks that they had *before*."""
    owning = sorted((row for row in told.rows if row.exclusive and row.is_alive), key=lambda row: min(row.exclusive))
    marks = _assigned([row.key for row in owning], before)
    mark_of = dict.fromkeys(told.sets.get("offline", ()), OFFLINE)
    for name, mark in (("allowed", SHARED), ("reserved", RESERVED)):
        mark_of |= dict.fromkeys(told.sets.get(name, ()), mark)
    mark_of |= dict.fromkeys(told.kept, KEPT)
    owner_of = {cpu: row for row in owning for cpu in row.exclusive}
    return Owners(mark_of | {cpu: marks[row.key] for cpu, row in owner_of.items()}, owner_of, marks)


def _assigned(keys: Sequence[str], before: Mapping[str, str]) -> dict[str, str]:
    marks = {key: before[key] for key in keys if before.get(key, MANY) != MANY}
    free = iter([mark for mark in MARKS if mark not in set(marks.values())])
    for key in keys:
        if key not in marks:
            marks[key] = next(free, MANY)
    return marks
