"""The machines that a scenario file describes: NUMA nodes with their CPUs and memory → `Topology`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from criproxy.host.cpus import grouped
from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.machine.topology import LOCAL_DISTANCE, Core, CpuKind, Die, MemoryKind, NumaNode, Package, Topology
from criproxy.simulate.scenario.place import At

MACHINE_KEYS = ("nodes", "threads", "distance", "l2", "l3", "isolated", "efficient", "fast")
KINDS = ("efficient", "fast")
NODE_KEYS = ("cpus", "pkg", "die", "kind", "mem", "closest", "dist", "movable")
SAME_DIE, REMOTE, CLOSEST, NOT_CLOSEST = 11, 21, 17, 28
"""Distances where the file gives none: those of the virtual machines in which CRI-RM and nri-plugins test."""
THREADS = 2
"""Of a core, unless there are none."""

EFFICIENT, PERFORMANCE = 512, 1024
"""The kernel scheduler's measures of cores."""
USUAL_KHZ, FAST_KHZ = 2_000_000, 3_000_000

_SIZE = re.compile(r"([0-9]{1,12})\s*(|kB|[KMGT](?:i?B)?|[KMGT]i)")
_SHIFTS = {"": 0, "k": 10, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class _Described:
    """One NUMA node of the file."""

    node: NumaNode
    package: int
    die: int
    closest: int | None
    distances: Mapping[int, int]


def read_machine(at: At) -> Topology:
    """The machine at *at*.

    Raises:
        Wrong: names the first thing that cannot be.
    """
    fields = at.fields(MACHINE_KEYS, required=("nodes",))
    described = sorted(map(_described, fields["nodes"].entries().values()), key=lambda each: each.node.id)
    threads = fields["threads"].one_of(("consecutive", "split", "none")) if "threads" in fields else "split"
    cores = _cores(at, described, threads)
    if not cores:
        raise fields["nodes"].wrong("no node has a CPU")
    online = frozenset[int]().union(*cores)
    packages = grouped((each.package, each.node.cpus) for each in described if each.node.cpus)
    return Topology(
        cpus=online,
        mems=frozenset(each.node.id for each in described if each.node.memory_bytes),
        nodes=tuple(each.node for each in described),
        cores=tuple(Core(min(core), core) for core in cores),
        packages=tuple(Package(number, cpus) for number, cpus in sorted(packages.items())),
        online_cpus=online,
        dies=_dies(described),
        l2_groups=_caches(described, cores, fields["l2"].number(1)) if "l2" in fields else tuple(cores),
        l3_groups=_caches(described, cores, fields["l3"].number(1) if "l3" in fields else 0),
        cpu_kinds=_kinds(online, *(fields[key].cpuset() if key in fields else frozenset() for key in KINDS)),
        distances=_matrix(fields["distance"], len(described)) if "distance" in fields else _distances(described),
        isolated_cpus=fields["isolated"].cpuset() & online if "isolated" in fields else frozenset(),
    )


def with_closest(topology: Topology, closest: Mapping[int, int]) -> Topology:
    """The same machine with memory-only nodes next to other nodes: memory-only node → its nearest with CPUs."""
    ids = [node.id for node in topology.nodes]
    rows = tuple(
        tuple(_pmem_distance(one, other, closest) or topology.distance(one, other) for other in ids) for one in ids
    )
    return replace(topology, distances=rows)


def _pmem_distance(one: int, other: int, closest: Mapping[int, int]) -> int:
    """Between two nodes of which one is memory-only; 0 if none is."""
    if one == other or not {one, other} & closest.keys():
        return 0
    return CLOSEST if closest.get(one) == other or closest.get(other) == one else NOT_CLOSEST


def _described(at: At) -> _Described:
    fields = at.fields(NODE_KEYS, required=("mem",))
    cpus = fields["cpus"].read(_cpus) if "cpus" in fields else frozenset[int]()
    kind = MemoryKind(fields["kind"].one_of(tuple(map(str, MemoryKind)))) if "kind" in fields else MemoryKind.DRAM
    movable = "movable" in fields and fields["movable"].one_of(("true", "false")) == "true"
    return _Described(
        node=NumaNode(at.key_number("a NUMA node"), cpus, fields["mem"].read(_bytes), not movable, kind),
        package=fields["pkg"].number() if "pkg" in fields else 0,
        die=fields["die"].number() if "die" in fields else 0,
        closest=fields["closest"].number() if "closest" in fields else None,
        distances=_by_node(fields["dist"]) if "dist" in fields else {},
    )


def _by_node(at: At) -> dict[int, int]:
    return {each.key_number("a NUMA node"): each.number(1) for each in at.entries().values()}


def _cpus(text: str) -> CpuSet:
    """Kernel notation, or FIRST:END:STEP without END."""
    if ":" not in text:
        return parse_cpuset(text)
    words = text.split(":")
    if len(words) != 3 or not all(word.isdigit() and len(word) < 5 for word in words) or not int(words[2]):
        raise ValueError(f"{text!r} must be CPUs such as 0-3,8 or FIRST:END:STEP")
    return frozenset(range(*map(int, words)))


def _bytes(text: str) -> int:
    """Memory of a machine: every unit is a power of two, as vendors and QEMU have it."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} must be a size such as 2G or 32372996kB")
    return int(found[1]) << _SHIFTS[found[2][:1]]


def _cores(at: At, described: list[_Described], threads: str) -> list[CpuSet]:
    """In order of their first CPU."""
    groups = [sorted(each.node.cpus) for each in described]
    ordered = sorted(cpu for group in groups for cpu in group)
    if len(set(ordered)) != len(ordered):
        raise at.wrong("a CPU is in two NUMA nodes")
    if threads == "none":
        return [frozenset({cpu}) for cpu in ordered]
    if threads == "consecutive":
        return [frozenset(group[i : i + THREADS]) for group in groups for i in range(0, len(group), THREADS)]
    half = len(ordered) // THREADS
    cores = [frozenset(pair) for pair in zip(ordered, ordered[half:], strict=False)][:half]
    nodes_of = {cpu: each.node.id for each in described for cpu in each.node.cpus}
    if len(ordered) % THREADS or any(len({nodes_of[cpu] for cpu in core}) > 1 for core in cores):
        raise at.wrong(
            "with threads 'split' CPU N and N + half of all are one core, and here they are in two NUMA nodes: "
            "write threads: consecutive or none"
        )
    return cores


def _dies(described: list[_Described]) -> tuple[Die, ...]:
    found = grouped(((each.package, each.die), each.node.cpus) for each in described if each.node.cpus)
    if len(found) == len({package for package, _ in found}):
        return ()
    return tuple(Die(package, die, cpus) for (package, die), cpus in sorted(found.items()))


def _kinds(online: CpuSet, efficient: CpuSet, fast: CpuSet) -> tuple[CpuKind, ...]:
    """Efficiency cores, usual ones and fast ones, as far as there are any; nothing where all are alike."""
    usual = online - efficient - fast
    every = (
        CpuKind(online & efficient, EFFICIENT, USUAL_KHZ, USUAL_KHZ),
        CpuKind(usual, PERFORMANCE, USUAL_KHZ, USUAL_KHZ),
        CpuKind((online & fast) - efficient, PERFORMANCE, FAST_KHZ, FAST_KHZ),
    )
    kinds = tuple(kind for kind in every if kind.cpus)
    return kinds if len(kinds) > 1 else ()


def _caches(described: list[_Described], cores: list[CpuSet], size: int) -> tuple[CpuSet, ...]:
    """One for each NUMA node, or groups of *size* CPUs within it, whole cores together."""
    groups = []
    for each in described:
        ordered = [cpu for core in cores if core <= each.node.cpus for cpu in sorted(core)]
        step = size or len(ordered) or 1
        groups += [frozenset(ordered[i : i + step]) for i in range(0, len(ordered), step)]
    return tuple(sorted(groups, key=min))


def _matrix(at: At, size: int) -> tuple[tuple[int, ...], ...]:
    rows = tuple(tuple(item.number(1) for item in row.items()) for row in at.items())
    if len(rows) != size or any(len(row) != size for row in rows):
        raise at.wrong(f"must have {size} rows of {size} numbers, one for each NUMA node")
    return rows


def _distances(described: list[_Described]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(_distance(one, other) for other in described) for one in described)


def _distance(one: _Described, other: _Described) -> int:
    if one.node.id == other.node.id:
        return LOCAL_DISTANCE
    for near, far in ((one, other), (other, one)):
        if far.node.id in near.distances:
            return near.distances[far.node.id]
    closest = {each.node.id: each.closest for each in (one, other) if each.closest is not None}
    if found := _pmem_distance(one.node.id, other.node.id, closest):
        return found
    if one.node.cpus and other.node.cpus and (one.package, one.die) == (other.package, other.die):
        return SAME_DIE
    return REMOTE
