"""How good the placement of a node is, in numbers by which policies compare."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache

from criproxy.model.cpuset import CpuSet
from criproxy.model.machine.topology import LOCAL_DISTANCE, Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState


@dataclass(frozen=True, slots=True)
class Scores:
    """A node at one moment, or the mean over many. Means over containers count each container once."""

    containers: float = 0
    """That have not exited."""
    cpu_on_one_node: float = 1
    """Share of a container's CPUs that are on the NUMA node where it has most of them, from 0 to 1; mean."""
    memory_on_one_node: float = 1
    """Share of the memory that a container may use which is on one NUMA node, weighed by the nodes' sizes; mean."""
    distance: float = LOCAL_DISTANCE
    """From a container's CPUs to its memory, weighed by the nodes' sizes, as the kernel measures: 10 is local; mean."""
    fragmentation: float = 0
    """0: the most unasked CPU that a NUMA node could have left is in one; 1: no node has any left, though there is."""
    crowded: float = 0
    """Share of the CPU asked for that is more than the CPUs have which it is asked of, see `Scorer.asked`."""
    owned_cpus: float = 0
    """CPUs that somebody has alone."""


@dataclass(frozen=True, slots=True)
class _Spread:
    """What one pair of CPUs and memory means."""

    cpu_on_one_node: float
    memory_on_one_node: float
    distance: float
    shares: tuple[tuple[int, float], ...]
    """Of which NUMA node it has what share of its CPUs."""


class Scorer:
    """Scores nodes of one machine; most containers share few sets, so each is looked at once."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._everywhere = (topology.cpus, topology.mems)
        self._spread = cache(self._measured)

    def score(self, node: Node) -> Scores:
        """Those of *node*, whose machine is this one."""
        placed = [(container, self._spread(*self.place(node, container))) for container in alive(node)]
        owned = float(len(node.exclusive_cpus))
        if not placed:
            return Scores()

        def mean(value: Callable[[_Spread], float]) -> float:
            return sum(value(spread) for _, spread in placed) / len(placed)

        return Scores(
            float(len(placed)),
            mean(lambda spread: spread.cpu_on_one_node),
            mean(lambda spread: spread.memory_on_one_node),
            mean(lambda spread: spread.distance),
            self._fragmentation(placed),
            _crowded(self.asked(node)),
            owned,
        )

    def asked(self, node: Node) -> dict[int, float]:
        """For each CPU that somebody asks something of: how many milli-CPU, each container spread evenly."""
        asked: dict[int, float] = {}
        for container in alive(node):
            cpus, _ = self.place(node, container)
            each = container.cpu_milli / len(cpus) if cpus else 0.0
            for cpu in cpus if each else ():
                asked[cpu] = asked.get(cpu, 0.0) + each
        return asked

    def place(self, node: Node, container: Container) -> tuple[CpuSet, CpuSet]:
        """CPUs and memory nodes of a container; those without a grant may be everywhere."""
        grant = node.grants.get(container.key)
        return (grant.cpus, grant.mems or self._everywhere[1]) if grant else self._everywhere

    def _measured(self, cpus: CpuSet, mems: CpuSet) -> _Spread:
        machine = self._topology
        here = _shares((node.id, float(len(node.cpus & cpus))) for node in machine.nodes)
        # Where the sizes are not known, they count alike.
        sized = all(machine.node_by_id[mem].memory_bytes for mem in mems if mem in machine.node_by_id)
        there = _shares((mem, float(machine.memory_bytes((mem,)) if sized else 1)) for mem in sorted(mems))
        distance = sum(a * b * machine.distance(one, other) for one, a in here for other, b in there)
        return _Spread(_largest(here), _largest(there), distance or LOCAL_DISTANCE, here)

    def _fragmentation(self, placed: Iterable[tuple[Container, _Spread]]) -> float:
        """By what each asks of the NUMA nodes of its CPUs, as if spread evenly over them: so all policies compare."""
        left = {node.id: 1000.0 * len(node.cpus & self._topology.cpus) for node in self._topology.nodes}
        largest = max(left.values(), default=0.0)
        for container, spread in placed:
            for number, share in spread.shares:
                left[number] -= share * container.cpu_milli
        total = sum(max(milli, 0.0) for milli in left.values())
        if not total or not largest:
            return 0.0
        return 1 - max(0.0, *left.values()) / min(total, largest)


def _crowded(asked: Mapping[int, float]) -> float:
    total = sum(asked.values())
    return sum(max(0.0, milli - 1000) for milli in asked.values()) / total if total else 0.0


def alive(node: Node) -> Iterator[Container]:
    """The containers of *node* that have a place or need none."""
    return (each for each in node.containers.values() if each.state is not ContainerState.EXITED)


def mean_of(samples: Iterable[Scores]) -> Scores:
    """The mean of each score; moments without a container tell nothing of where containers are."""
    every = list(samples)
    busy = [each for each in every if each.containers]
    if not busy:
        return Scores()
    names = [field.name for field in fields(Scores)]
    means = {name: sum(getattr(each, name) for each in busy) / len(busy) for name in names}
    return Scores(**(means | {name: sum(getattr(e, name) for e in every) / len(every) for name in COUNTS}))


COUNTS = ("containers", "owned_cpus")
"""Scores of the node as a whole: an empty one counts."""


def _shares(amounts: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    found = [(number, amount) for number, amount in amounts if amount]
    total = sum(amount for _, amount in found)
    return tuple((number, amount / total) for number, amount in found)


def _largest(shares: Iterable[tuple[int, float]]) -> float:
    return max((share for _, share in shares), default=1.0)
