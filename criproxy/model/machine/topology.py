"""The machine as a value: the facts from sysfs that matter for placement, and the part of it that pods may use.

Cores, caches, dies, packages and NUMA nodes have all online CPUs; `Topology.cpus` and `Topology.mems` are those that
the pods' cgroup allows. `host` reads it from a machine, `simulate` generates it. Facts that only people need are
in `model.hardware`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from criproxy.model.cpuset import CpuSet

LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20
"""The kernel's default distances of a node to itself and to others, if the firmware reports none."""


class MemoryKind(StrEnum):
    """The kind of memory of a NUMA node, as in the memory type annotations."""

    DRAM = "dram"
    """Memory of a node with CPUs."""
    HBM = "hbm"
    """Memory without CPUs that is faster than DRAM."""
    PMEM = "pmem"
    """Memory without CPUs that is slower or further away: persistent memory, CXL."""
    DEVICE = "device"
    """Memory of an accelerator, such as a GPU."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node; either of its CPUs and its memory may be missing."""

    id: int
    cpus: CpuSet
    """Online CPUs of this node."""
    memory_bytes: int
    """0 if the node has no memory, or if unknown."""
    normal_memory: bool = True
    """Whether the kernel can allocate its own memory here; False for movable-only nodes and those without memory."""
    kind: MemoryKind = MemoryKind.DRAM

    @property
    def memory_only(self) -> bool:
        """Whether it has no online CPU: HBM, PMEM, CXL, memory of a device."""
        return not self.cpus


@dataclass(frozen=True, slots=True)
class Core:
    """The hardware threads that share one physical core."""

    id: int
    """Its lowest CPU: the kernel's core ids are not unique in a machine."""
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class Die:
    """One of several dies of a package."""

    package: int
    id: int
    """Unique within its package only."""
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class Package:
    """One socket."""

    id: int
    """The kernel's id: any number, -1 if unknown."""
    cpus: CpuSet


@dataclass(frozen=True, slots=True)
class CpuKind:
    """The CPUs of one speed on a machine that has several, such as performance and efficiency cores."""

    cpus: CpuSet
    capacity: int = 0
    """The kernel scheduler's capacity, 1024 for the fastest; 0 if unknown."""
    base_khz: int = 0
    """0 if unknown, as below."""
    max_khz: int = 0
    """The highest of these CPUs: some may boost a little less."""


@dataclass(frozen=True)
class Topology:
    """One machine. Equal machines have equal values: all tuples are sorted by id."""

    cpus: CpuSet
    """CPUs that pods may use: online and allowed by their parent cgroup."""
    mems: CpuSet
    """NUMA nodes with memory that pods may use; empty if NUMA is unknown."""
    nodes: tuple[NumaNode, ...]
    cores: tuple[Core, ...]
    packages: tuple[Package, ...]
    online_cpus: CpuSet
    """All online CPUs, allowed or not."""
    dies: tuple[Die, ...] = ()
    """Empty if every package is one die."""
    l2_groups: tuple[CpuSet, ...] = ()
    """CPUs that share a level 2 cache, sorted by first CPU like the next; CPUs without such a cache are in none."""
    l3_groups: tuple[CpuSet, ...] = ()
    """CPUs that share a level 3 cache; it may span NUMA nodes, and a node may have several."""
    cpu_kinds: tuple[CpuKind, ...] = ()
    """From slow to fast; empty if all CPUs are alike."""
    distances: tuple[tuple[int, ...], ...] = ()
    """From each NUMA node to each, in the order of `nodes`; empty if unknown."""
    isolated_cpus: CpuSet = frozenset()
    """Online CPUs that the kernel keeps free of load balancing (isolcpus)."""
    offline_cpus: CpuSet = frozenset()
    """CPUs that exist but are offline."""
    other_mems: CpuSet = frozenset()
    """Only as a policy sees the machine: NUMA nodes whose kind of memory does not count, for pods that ask for it."""
    control_files: frozenset[str] | None = None
    """The files of cgroup v2 that classes can set: those that containers have, or may have as long as no cgroup shows
    them. Empty with cgroup v1; None if unknown, as of a machine that is not this one."""

    def has_file(self, name: str) -> bool:
        """Whether containers have the file *name* of cgroup v2, as far as that is known."""
        return self.control_files is None or name in self.control_files

    @property
    def forbidden_cpus(self) -> CpuSet:
        """Online CPUs that the pods' cgroup does not allow."""
        return self.online_cpus - self.cpus

    @property
    def smt(self) -> bool:
        """Whether any core runs several threads."""
        return any(len(core.cpus) > 1 for core in self.cores)

    @cached_property
    def capacity_bytes(self) -> int:
        """All memory of the machine, including that which pods may not use; 0 if unknown."""
        return sum(node.memory_bytes for node in self.nodes)

    @cached_property
    def node_by_id(self) -> Mapping[int, NumaNode]:
        """The NUMA nodes by id."""
        return {node.id: node for node in self.nodes}

    def distance(self, one: int, other: int) -> int:
        """Return the distance from NUMA node *one* to *other*: 10 is local, 20 twice as far; the default if unknown."""
        if not self.distances or not {one, other} <= self._place.keys():
            return LOCAL_DISTANCE if one == other else REMOTE_DISTANCE
        return self.distances[self._place[one]][self._place[other]]

    @cached_property
    def core_of(self) -> Mapping[int, Core]:
        """The core of each online CPU."""
        return {cpu: core for core in self.cores for cpu in core.cpus}

    @cached_property
    def group_of(self) -> tuple[Mapping[int, int], ...]:
        """CPU → group, for each kind of group between a package and a core (dies, level 3, level 2 caches).

        Groups of one core do not count: their CPUs have a negative number, one for each core. A kind without larger
        groups is omitted.
        """
        lone = {cpu: -1 - core.id for core in self.cores for cpu in core.cpus}
        kinds = ([die.cpus for die in self.dies], self.l3_groups, self.l2_groups)
        found = []
        for groups in kinds:
            larger = [cpus for cpus in groups if len({lone.get(cpu, cpu) for cpu in cpus}) > 1]
            if larger:
                found.append(lone | {cpu: index for index, cpus in enumerate(larger) for cpu in cpus})
        return tuple(found)

    @cached_property
    def _place(self) -> Mapping[int, int]:
        return {node.id: place for place, node in enumerate(self.nodes)}

    @cached_property
    def _node_of_cpu(self) -> Mapping[int, int]:
        return {cpu: node.id for node in self.nodes for cpu in node.cpus}

    def nodes_of(self, cpus: Iterable[int]) -> CpuSet:
        """Return the ids of the NUMA nodes of *cpus*; CPUs without a node are ignored."""
        of = self._node_of_cpu
        return frozenset(of[cpu] for cpu in cpus if cpu in of)

    def cpus_of(self, nodes: Iterable[int]) -> CpuSet:
        """Return the CPUs of the NUMA nodes with these ids; unknown ids are ignored."""
        known = self.node_by_id
        return frozenset[int]().union(*(known[node].cpus for node in nodes if node in known))

    def can_hold(self, mems: CpuSet) -> bool:
        """Whether *mems* suffice for a container: at least one has normal memory for the kernel."""
        return any(mem in self.node_by_id and self.node_by_id[mem].normal_memory for mem in mems)

    def memory_bytes(self, mems: Iterable[int]) -> int:
        """Return the total memory of the NUMA nodes *mems*; unknown nodes count as 0."""
        return sum(self.node_by_id[mem].memory_bytes for mem in mems if mem in self.node_by_id)


class Level(StrEnum):
    """The kind of a box; if groups have the same size, the earlier kind is outside."""

    MACHINE = "machine"
    PACKAGE = "package"
    DIE = "die"
    NODE = "node"
    L3 = "l3"
    L2 = "l2"


@dataclass(frozen=True, slots=True)
class Box:
    """A group of online CPUs, and the groups within it."""

    level: Level
    id: int
    """The id of the package, die or node; a running number for caches."""
    cpus: CpuSet
    whole: bool = True
    """False if only a part of the group is in the surrounding box."""
    inside: tuple["Box", ...] = ()
    """The boxes in it, sorted by first CPU. CPUs without a NUMA node or a cache may be in none."""


Group = tuple[int, CpuSet]


def nest(topology: Topology) -> Box:
    """Return the nested packages, dies, NUMA nodes with CPUs, and caches that more than one core shares."""
    groups: dict[Level, Sequence[Group]] = {
        Level.PACKAGE: [(package.id, package.cpus) for package in topology.packages],
        Level.DIE: [(die.id, die.cpus) for die in topology.dies],
        Level.NODE: [(node.id, node.cpus) for node in topology.nodes if node.cpus],
        Level.L3: list(enumerate(topology.l3_groups)),
        Level.L2: [
            each for each in enumerate(topology.l2_groups) if not each[1] <= topology.core_of[min(each[1])].cpus
        ],
    }
    mean_sizes = {level: sum(len(cpus) for _, cpus in each) / len(each) for level, each in groups.items() if each}
    order = sorted(mean_sizes, key=lambda level: -mean_sizes[level])
    inside = _inside(topology.online_cpus, order, groups)
    return Box(Level.MACHINE, 0, topology.online_cpus, inside=inside)


def _inside(cpus: CpuSet, order: Sequence[Level], groups: Mapping[Level, Sequence[Group]]) -> tuple[Box, ...]:
    if not order or not cpus:
        return ()
    level, *finer = order
    boxes, rest = [], cpus
    for number, members in groups[level]:
        if part := members & rest:
            boxes.append(Box(level, number, part, part == members, _inside(part, finer, groups)))
            rest -= part  # groups of a level do not overlap on a real machine
    boxes += _inside(rest, finer, groups)
    return tuple(sorted(boxes, key=lambda box: min(box.cpus)))


def home(root: Box, cpus: CpuSet) -> Box:
    """Return the smallest package, die or NUMA node under *root* that has all of *cpus*, else *root*."""
    for box in root.inside:
        if cpus and cpus <= box.cpus and box.level not in (Level.L3, Level.L2):
            return home(box, cpus)
    for cache in root.inside:
        if cpus and cpus <= cache.cpus and (deeper := home(cache, cpus)) is not cache:
            return deeper
    return root


def nearest_cpus(topology: Topology, node: NumaNode) -> CpuSet:
    """Return the CPUs of *node*; for a memory-only node those of the closest nodes, or all if no distance is known."""
    if node.cpus:
        return node.cpus
    others = [other for other in topology.nodes if other.cpus]
    if not topology.distances or not others:
        return topology.online_cpus
    closest = min(topology.distance(other.id, node.id) for other in others)
    near = (other.cpus for other in others if topology.distance(other.id, node.id) == closest)
    return frozenset().union(*near)
