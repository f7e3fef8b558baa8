"""The machines that guests can be: sockets, cores, NUMA nodes and their distances.

Values only; `qemu` turns them into a command line, and the checks in a guest compare with them what they find there.
"""

from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import NO_CPUS

PMEM_STEP_MIB = 128
"""Memory is added to a running kernel in sections of this size."""


@dataclass(frozen=True, slots=True)
class GuestNode:
    """A NUMA node."""

    memory_mib: int
    cpus: CpuSet = NO_CPUS
    pmem: bool = False
    """Persistent memory that the guest uses as system RAM: no CPUs, movable pages only."""


@dataclass(frozen=True, slots=True)
class Chips:
    """What the processors look like; each number counts within one of the step before."""

    sockets: int = 1
    cores: int = 1
    threads: int = 1

    @property
    def cpus(self) -> CpuSet:
        """All logical CPUs. They are numbered by socket, core and thread: siblings are neighbours."""
        return frozenset(range(self.sockets * self.cores * self.threads))


@dataclass(frozen=True, slots=True)
class GuestMachine:
    """A machine."""

    name: str
    about: str
    chips: Chips
    nodes: tuple[GuestNode, ...]
    distances: tuple[tuple[int, ...], ...] = ()
    """A row for each node, as in the kernel's files; empty leaves them to QEMU (10 and 20)."""

    @property
    def dram_mib(self) -> int:
        """Memory that is there at boot."""
        return sum(node.memory_mib for node in self.nodes if not node.pmem)

    @property
    def pmem_nodes(self) -> dict[int, GuestNode]:
        """The memory-only nodes by id."""
        return {number: node for number, node in enumerate(self.nodes) if node.pmem}

    def nodes_of(self, cpus: CpuSet) -> frozenset[int]:
        """The ids of the nodes that any of *cpus* belongs to."""
        return frozenset(number for number, node in enumerate(self.nodes) if node.cpus & cpus)


def _ring_distance(one: int, other: int) -> int:
    """Between nodes of four sockets in a ring, two nodes a socket."""
    if one == other:
        return 10
    hops = abs(one // 2 - other // 2)
    return (16, 22, 28, 22)[hops]


def _nodes(memory_mib: int, *cpus: str) -> tuple[GuestNode, ...]:
    return tuple(GuestNode(memory_mib, parse_cpuset(part)) for part in cpus)


_PMEM = GuestNode(512, pmem=True)

NAMED = {
    machine.name: machine
    for machine in (
        GuestMachine("1s-1n", "one node of 4 cores without SMT", Chips(cores=4), _nodes(1536, "0-3")),
        GuestMachine(
            "2s-4n-smt",
            "2 sockets of 2 cores with 2 threads; sub-NUMA clustering makes 2 nodes of a socket",
            Chips(sockets=2, cores=2, threads=2),
            _nodes(512, "0-1", "2-3", "4-5", "6-7"),
            ((10, 11, 21, 21), (11, 10, 21, 21), (21, 21, 10, 11), (21, 21, 11, 10)),
        ),
        GuestMachine(
            "2s-2n+2pmem",
            "2 sockets of 2 cores with 2 threads; beside each socket's node one of persistent memory only",
            Chips(sockets=2, cores=2, threads=2),
            (*_nodes(768, "0-3", "4-7"), _PMEM, _PMEM),
            ((10, 21, 17, 28), (21, 10, 28, 17), (17, 28, 10, 28), (28, 17, 28, 10)),
        ),
        GuestMachine(
            "4s-8n",
            "4 sockets of 4 cores without SMT, in a ring; 2 nodes a socket",
            Chips(sockets=4, cores=4),
            _nodes(320, *(f"{2 * number}-{2 * number + 1}" for number in range(8))),
            tuple(tuple(_ring_distance(one, other) for other in range(8)) for one in range(8)),
        ),
    )
}
