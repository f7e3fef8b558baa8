"""Random machines as odd as real ones: gaps in ids, nodes without CPUs or memory, offline and slow CPUs, odd caches."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import LOCAL_DISTANCE, Core, CpuKind, Die, MemoryKind, NumaNode, Package, Topology
from criproxy.simulate.hosts import GIB

MAX_NODES = 8
_SIZES = (0, 1, 2, 3, 4, 6)
"""Cores of a NUMA node."""


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """1 to 8 NUMA nodes of 0 to 6 cores with 1, 2 or 4 threads; at least one CPU and one node with normal memory."""
    ids = list(range(draw(st.integers(1, MAX_NODES))))
    if draw(st.booleans()):
        ids = sorted(draw(st.sets(st.integers(0, 255), min_size=len(ids), max_size=len(ids))))
    sizes = [draw(st.sampled_from(_SIZES)) for _ in ids]
    sizes[draw(st.integers(0, len(ids) - 1))] = draw(st.sampled_from(_SIZES[1:]))
    cores = _cores(draw, sum(sizes))
    firsts = [sum(sizes[:place]) for place in range(len(ids))]
    node_cpus = [_union(cores[first : first + size]) for first, size in zip(firsts, sizes, strict=True)]
    nodes = tuple(_node(draw, number, cpus) for number, cpus in zip(ids, node_cpus, strict=True))
    nodes = _with_normal_memory(nodes)
    whole = _whole(nodes, cores, draw(st.integers(1, 3)), dies=draw(st.booleans()))
    distances = _distances(draw, len(ids)) if draw(st.booleans()) else ()
    isolated = draw(_some(whole.cpus))
    l2_groups, l3_groups = draw(_caches(whole))
    whole = replace(whole, distances=distances, isolated_cpus=isolated, l2_groups=l2_groups, l3_groups=l3_groups)
    whole = replace(whole, cpu_kinds=draw(_kinds(whole)))
    return draw(narrowed(whole))


def _some(ids: CpuSet) -> st.SearchStrategy[CpuSet]:
    """None of them as often as any."""
    return st.just(frozenset[int]()) | st.frozensets(st.sampled_from(sorted(ids)))


@st.composite
def narrowed(draw: st.DrawFn, whole: Topology) -> Topology:
    """The machine with some CPUs offline, and some CPUs and memory not for pods."""
    online = (whole.online_cpus - draw(_some(whole.online_cpus))) or whole.online_cpus
    allowed = draw(_some(online))
    mems = frozenset(node.id for node in whole.nodes if node.memory_bytes)
    usable = draw(_some(mems))
    return replace(
        whole,
        cpus=allowed or online,
        mems=usable if whole.can_hold(usable) else mems,
        online_cpus=online,
        offline_cpus=whole.online_cpus - online,
        isolated_cpus=whole.isolated_cpus & online,
        nodes=tuple(replace(node, cpus=node.cpus & online) for node in whole.nodes),
        cores=tuple(Core(core.id, core.cpus & online) for core in whole.cores if core.cpus & online),
        packages=tuple(Package(p.id, p.cpus & online) for p in whole.packages if p.cpus & online),
        dies=tuple(replace(die, cpus=die.cpus & online) for die in whole.dies if die.cpus & online),
        l2_groups=tuple(cpus & online for cpus in whole.l2_groups if cpus & online),
        l3_groups=tuple(cpus & online for cpus in whole.l3_groups if cpus & online),
        cpu_kinds=_kinds_left(whole.cpu_kinds, online),
    )


def _kinds_left(kinds: Sequence[CpuKind], online: CpuSet) -> tuple[CpuKind, ...]:
    """None where all that are left are alike."""
    left = tuple(replace(kind, cpus=kind.cpus & online) for kind in kinds if kind.cpus & online)
    return left if len(left) > 1 else ()


@st.composite
def _kinds(draw: st.DrawFn, whole: Topology) -> tuple[CpuKind, ...]:
    """All CPUs are alike, or some cores are slower than others."""
    slow = draw(st.sampled_from([0, 0, *range(len(whole.cores))]))
    sets = (_union(whole.cores[:slow]), _union(whole.cores[slow:]))
    return tuple(CpuKind(cpus, 512 * place) for place, cpus in enumerate(sets, 1)) if slow else ()


@st.composite
def _caches(draw: st.DrawFn, whole: Topology) -> tuple[tuple[CpuSet, ...], tuple[CpuSet, ...]]:
    """Level 2 caches of one core or two, level 3 caches of a node, of some cores of it, or of several; or none."""
    l2_cores, l3_cores = draw(st.sampled_from([0, 1, 1, 2])), draw(st.sampled_from([0, 2, 4]))
    l3_nodes = draw(st.sampled_from([1, 1, 2]))
    by_node = [node.cpus for node in whole.nodes if node.cpus]
    spans = [_union_of(by_node[place : place + l3_nodes]) for place in range(0, len(by_node), l3_nodes)]
    l3_groups = [part for span in spans for part in _cut(whole, span, l3_cores)] if draw(st.booleans()) else by_node
    l2_groups = [part for cpus in by_node for part in _cut(whole, cpus, l2_cores)] if l2_cores else []
    return tuple(sorted(l2_groups, key=min)), tuple(sorted(l3_groups, key=min))


def _cut(whole: Topology, cpus: CpuSet, count: int) -> list[CpuSet]:
    """*cpus* in parts of *count* cores; in one for 0."""
    cores = [core for core in whole.cores if core.cpus <= cpus]
    return [_union(cores[place : place + count]) for place in range(0, len(cores), count)] if count else [cpus]


def _union_of(sets: Sequence[CpuSet]) -> CpuSet:
    return frozenset[int]().union(*sets)


def _cores(draw: st.DrawFn, count: int) -> list[Core]:
    """Threads of a core are neighbours, or half of all CPUs apart; ids begin anywhere and may have gaps."""
    threads, gap, start = (draw(st.sampled_from(some)) for some in ([1, 2, 2, 4], [1, 1, 3], [0, 0, 5]))
    neighbours = draw(st.booleans())
    places = [
        [core * threads + thread if neighbours else core + thread * count for thread in range(threads)]
        for core in range(count)
    ]
    sets = [frozenset(start + gap * place for place in core) for core in places]
    return [Core(min(cpus), cpus) for cpus in sets]


def _union(cores: Sequence[Core]) -> CpuSet:
    return _union_of([core.cpus for core in cores])


def _node(draw: st.DrawFn, number: int, cpus: CpuSet) -> NumaNode:
    memory_bytes = draw(st.sampled_from([0, GIB, 16 * GIB])) if cpus else 16 * GIB
    kind = MemoryKind.DRAM if cpus else draw(st.sampled_from(MemoryKind))
    return NumaNode(number, cpus, memory_bytes, memory_bytes > 0 and draw(st.booleans()), kind)


def _with_normal_memory(nodes: tuple[NumaNode, ...]) -> tuple[NumaNode, ...]:
    if any(node.normal_memory for node in nodes):
        return nodes
    return replace(nodes[0], memory_bytes=16 * GIB, normal_memory=True), *nodes[1:]


def _whole(nodes: tuple[NumaNode, ...], cores: list[Core], sockets: int, *, dies: bool) -> Topology:
    online = _union(cores)
    groups = [node.cpus for node in nodes if node.cpus]
    split = [frozenset().union(*groups[place::sockets]) for place in range(min(sockets, len(groups)))]
    packages = sorted((cpus for cpus in split if cpus), key=min)
    halves = [(number, half, part) for number, cpus in enumerate(packages) for half, part in enumerate(_halves(cpus))]
    return Topology(
        cpus=online,
        mems=frozenset(node.id for node in nodes if node.memory_bytes),
        nodes=nodes,
        cores=tuple(sorted(cores, key=lambda core: core.id)),
        packages=tuple(Package(number, cpus) for number, cpus in enumerate(packages)),
        online_cpus=online,
        dies=tuple(Die(package, number, cpus) for package, number, cpus in halves if cpus) if dies else (),
    )


def _halves(cpus: CpuSet) -> tuple[CpuSet, CpuSet]:
    low = frozenset(sorted(cpus)[: len(cpus) // 2])
    return low, cpus - low


def _distances(draw: st.DrawFn, count: int) -> tuple[tuple[int, ...], ...]:
    far = {(a, b): draw(st.sampled_from([11, 17, 20, 31])) for a in range(count) for b in range(a)}
    return tuple(
        tuple(LOCAL_DISTANCE if a == b else far[max(a, b), min(a, b)] for b in range(count)) for a in range(count)
    )
