"""The horizontal positions of a machine's CPUs and NUMA nodes in a picture."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import NumaNode, Topology

CPUS_PX = 640
"""The width of all CPUs together, if each has its minimum width."""
CPU_PX = (2, 24)
"""The minimum and maximum width of a CPU."""
NUMBERED_PX = 16
"""CPUs of this width have their numbers above them."""
CORE_GAP_PX, NODE_GAP_PX = 3, 12
MEMORY_ONLY_PX = 70
NAMED_PX = 85
"""The width of the name of a NUMA node; narrower ones have only their number."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the width, in pixels."""

    id: int
    name: str
    x: int
    width: int

    @property
    def end(self) -> int:
        """The right end of the span."""
        return self.x + self.width


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a machine, from left to right."""

    cpus: tuple[Span, ...]
    """The CPUs of a core are side by side, and the cores of a NUMA node."""
    nodes: tuple[Span, ...]
    """The NUMA nodes; those without CPUs come last."""
    sockets: tuple[Span, ...]
    """The sockets; empty if there is only one."""
    width: int
    numbered: bool

    def runs(self, cpus: CpuSet) -> Iterator[Span]:
        """Yield the spans of *cpus*; adjacent CPUs are one span."""
        yield from _joined((span for span in self.cpus if span.id in cpus), self.cpus)

    def memory(self, mems: CpuSet) -> Iterator[Span]:
        """Yield the spans of the NUMA nodes *mems*."""
        yield from _joined((span for span in self.nodes if span.id in mems), self.nodes)


def columns_of(topology: Topology) -> Columns:
    """Lay out a machine."""
    cpu_px = max(CPU_PX[0], min(CPU_PX[1], CPUS_PX // max(len(topology.online_cpus), 1)))
    gap = CORE_GAP_PX if cpu_px > CORE_GAP_PX else 0
    cpus: list[Span] = []
    nodes: list[Span] = []
    x = 0
    for node, members in _groups(topology):
        start = x
        for number, cpu in enumerate(members):
            if number and topology.core_of[cpu] is not topology.core_of[members[number - 1]]:
                x += gap
            cpus.append(Span(cpu, str(cpu), x, cpu_px))
            x += cpu_px
        if node is not None:
            x = max(x, start + MEMORY_ONLY_PX) if node.memory_only else x
            nodes.append(Span(node.id, _name(node, x - start), start, x - start))
        x += NODE_GAP_PX
    sockets = tuple(_sockets(topology, cpus)) if len(topology.packages) > 1 else ()
    return Columns(tuple(cpus), tuple(nodes), sockets, max(x - NODE_GAP_PX, 0), cpu_px >= NUMBERED_PX)


def _name(node: NumaNode, width: int) -> str:
    if node.memory_only:
        return f"{node.id}: {str(node.kind).upper()}"
    return f"NUMA node {node.id}" if width >= NAMED_PX else str(node.id)


def _groups(topology: Topology) -> Iterator[tuple[NumaNode | None, Sequence[int]]]:
    """Yield the CPUs of each NUMA node, ordered by socket; then CPUs without a node, then nodes without CPUs."""
    socket_of = {cpu: package.id for package in topology.packages for cpu in package.cpus}

    def order(cpus: Iterable[int]) -> list[int]:
        return sorted(cpus, key=lambda cpu: (topology.core_of[cpu].id, cpu))

    with_cpus = [node for node in topology.nodes if node.cpus]
    for node in sorted(with_cpus, key=lambda node: (socket_of.get(min(node.cpus), 0), node.id)):
        yield node, order(node.cpus)
    if rest := topology.online_cpus.difference(*(node.cpus for node in with_cpus)):
        yield None, order(rest)
    for node in topology.nodes:
        if node.memory_only:
            yield node, ()


def _sockets(topology: Topology, cpus: Sequence[Span]) -> Iterator[Span]:
    for package in topology.packages:
        inside = [span for span in cpus if span.id in package.cpus]
        if inside:
            start = min(span.x for span in inside)
            yield Span(package.id, f"socket {package.id}", start, max(span.end for span in inside) - start)


def _joined(chosen: Iterable[Span], of: Sequence[Span]) -> Iterator[Span]:
    """Yield the *chosen* spans, merging those that are adjacent in *of*."""
    place = {span: number for number, span in enumerate(of)}
    spans = list(chosen)
    starts = [0, *(at for at, (one, two) in enumerate(pairwise(spans), 1) if place[two] != place[one] + 1)]
    for start, end in pairwise([*starts, len(spans)]):
        if start < end:
            first, last = spans[start], spans[end - 1]
            yield Span(first.id, first.name, first.x, last.end - first.x)
