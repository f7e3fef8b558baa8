"""The machines that guests can be: sockets, cores, NUMA nodes and their distances; by name or described.

Values only; `qemu` turns them into a command line, and the checks in a guest compare with them what they find there.
"""

import re
from dataclasses import dataclass, replace

from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import NO_CPUS

MAX_NODES = 8
PMEM_STEP_MIB = 128
"""Memory is added to a running kernel in sections of this size."""

_CHIP_WORDS = ("sockets", "dies", "cores", "threads")


class UsageError(ValueError):
    """A machine or an option that makes no sense; the text says which and what would be right."""


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
    dies: int = 1
    cores: int = 1
    threads: int = 1

    @property
    def cpus(self) -> CpuSet:
        """All logical CPUs. They are numbered by socket, die, core and thread: siblings are neighbours."""
        return frozenset(range(self.sockets * self.dies * self.cores * self.threads))


@dataclass(frozen=True, slots=True)
class GuestMachine:
    """A machine; `checked` has made sure that it can exist."""

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


def checked(machine: GuestMachine) -> GuestMachine:
    """Return *machine*; UsageError if QEMU or Linux could not make it."""
    nodes = machine.nodes
    if not 1 <= len(nodes) <= MAX_NODES:
        raise UsageError(f"{len(nodes)} NUMA nodes: there must be 1 to {MAX_NODES}")
    if nodes[0].pmem or not nodes[0].cpus:
        raise UsageError("node 0 must have CPUs and plain memory: Linux boots on it")
    seen = sorted(cpu for node in nodes for cpu in node.cpus)
    if seen != sorted(machine.chips.cpus):
        raise UsageError(f"the nodes must hold CPUs {format_cpuset(machine.chips.cpus)}, each of them once")
    for number, node in enumerate(nodes):
        if node.pmem and (node.cpus or node.memory_mib % PMEM_STEP_MIB):
            raise UsageError(f"node {number}: pmem has no CPUs, and whole multiples of {PMEM_STEP_MIB} MiB")
    if machine.distances and [len(row) for row in machine.distances] != [len(nodes)] * len(nodes):
        raise UsageError(f"distances must be {len(nodes)} rows of {len(nodes)} numbers")
    return machine


def named(name: str) -> GuestMachine:
    """The machine of that name; UsageError names those that there are."""
    if name not in NAMED:
        raise UsageError(f"there is no machine {name!r}; there are {', '.join(NAMED)}, and custom")
    return NAMED[name]


def custom(chips: str, nodes: list[str], distances: str) -> GuestMachine:
    """A machine from the words of a command line.

    Args:
        chips: such as ``sockets=2,cores=4,threads=2``; what is missing is 1.
        nodes: such as ``512:0-3`` or ``256:-:pmem``, in the order of their ids; none: one node of 1 GiB.
        distances: such as ``10,21;21,10``, or nothing.

    Raises:
        UsageError: says which word is wrong.
    """
    parsed = _parse_chips(chips)
    made = tuple(_parse_node(word) for word in nodes) or (GuestNode(1024, parsed.cpus),)
    return checked(GuestMachine("custom", "as described", parsed, made, _parse_distances(distances)))


def _parse_chips(text: str) -> Chips:
    chips = Chips()
    for part in text.split(","):
        word, _, number = part.partition("=")
        if word not in _CHIP_WORDS or not number.isdigit() or not int(number):
            raise UsageError(f"--smp: {part!r} is none of {', '.join(f'{w}=N' for w in _CHIP_WORDS)} with N from 1 on")
        chips = replace(chips, **{word: int(number)})
    return chips


def _parse_node(text: str) -> GuestNode:
    match = re.fullmatch(r"(\d+)(?::(-|[\d,-]*))?(:pmem)?", text)
    if not match:
        raise UsageError(f"--node: {text!r} is not MIB[:CPUS[:pmem]] such as 512:0-3 or 256:-:pmem")
    mib, cpus, pmem = match.groups()
    try:
        return GuestNode(int(mib), parse_cpuset("" if cpus in (None, "-") else cpus), bool(pmem))
    except ValueError as error:
        raise UsageError(f"--node: {error}") from None


def _parse_distances(text: str) -> tuple[tuple[int, ...], ...]:
    if not text:
        return ()
    try:
        return tuple(tuple(int(word) for word in row.split(",")) for row in text.split(";"))
    except ValueError:
        raise UsageError(f"--dist: {text!r} is not rows of numbers such as '10,21;21,10'") from None


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
    machine.name: checked(machine)
    for machine in (
        GuestMachine("1s-1n", "one node of 4 cores without SMT", Chips(cores=4), _nodes(1536, "0-3")),
        GuestMachine(
            "1s-4ccd",
            "one node; 4 dies of 2 cores with 2 threads, each die with an L3 of its own",
            Chips(dies=4, cores=2, threads=2),
            _nodes(1536, "0-15"),
        ),
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
