"""Which NUMA nodes a container's memory comes from: what policies ask of the zones of `zones`.

A container that is kept to nodes whose memory runs out is killed while other nodes have plenty. So memory is promised:
each container with a limit counts with that limit in the nodes that it is kept to, and no set of nodes is promised more
than it has. Where that would be so, the containers of the lowest priority get memory from more nodes, and come back
when others have gone. All of it follows from the node: its grants, its containers, and what their grants say about
coming back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, interned, numbered
from criproxy.model.grant import NO_CPUS, AboutMemory, Change, Grant
from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.model.node import Node, with_changes
from criproxy.model.remembered import remembered
from criproxy.model.workload import Container
from criproxy.placement.alloc.memory.moving import allocate, come_back
from criproxy.placement.alloc.memory.promised import Crowds, counted_bytes, request_for
from criproxy.placement.alloc.memory.zones import Mask, Memory, MemoryRequest, first_zone

PROMISED_PERCENT = 97
"""Of a node's memory: the kernel's own and that of the node's daemons are not in the limits of containers."""
ORDINARY = frozenset({MemoryKind.DRAM, MemoryKind.PMEM})
"""What a container gets near its CPUs by default; HBM is scarce and has to be asked for."""


@dataclass(frozen=True, slots=True)
class MemoryWish:
    """What is wanted of a container's memory beside being near."""

    kinds: frozenset[MemoryKind] = frozenset()
    """The kinds asked for; empty: none."""
    usual: frozenset[MemoryKind] = ORDINARY
    """Kinds that it gets otherwise, if there are any next to its CPUs; empty: those of the nodes of its CPUs."""
    cold: bool = False
    """Whether it gets PMEM only, until its cold start is over."""
    untouched: str = ""
    """Why its memory stays as it is, whatever that may be; empty where that is not so."""


ANY, NEAR = MemoryWish(), MemoryWish(usual=frozenset())
"""Nothing; and the memory of the NUMA nodes of its CPUs, of whatever kind."""


@dataclass(frozen=True, eq=False)
class _Machine:
    """What is worked out of a topology once; keys of caches, by their identity."""

    topology: Topology
    memory: Memory
    attached: Mapping[int, CpuSet]
    """By NUMA node with CPUs, the memory-only nodes that belong to it."""
    crowds: Crowds


def place_memory(
    node: Node,
    grants: Mapping[str, Grant],
    container: Container,
    near: CpuSet,
    wish: MemoryWish = ANY,
    *,
    pessimistic: bool = False,
) -> Change:
    """The change *grants* with memory for *container*, and for others that have to make room for it; and why.

    A new container may widen the sets of others. A container that has a place already keeps the nodes that it has,
    because memory in use is not moved, and only widens its own set.

    Args:
        node: as it is before; its containers have *container* with its size.
        grants: the new ones: CPUs, and memory as before; that of *container* is replaced.
        container: the one to place.
        near: the NUMA nodes of its CPUs or of its pool's.
        wish: what else is wanted.
        pessimistic: a container that may use more than a set of nodes counts in all of them with all its size (CRI-RM).
    """
    key, had, everywhere = container.key, node.grants.get(container.key), node.topology.mems
    kept = had is not None and had.mems not in (everywhere, frozenset())
    if not kept and (wish.untouched or had):
        mems, home = (had.mems, had.home_mems) if had else (NO_CPUS, NO_CPUS)
        reason = f"memory is left alone: {wish.untouched}" if wish.untouched else "memory from where it came before"
        return Change({**grants, key: _with(grants[key], mems, home)}, (reason,))
    machine = _machine(node.topology, pessimistic)
    if had and wish.untouched:  # an earlier policy keeps it to some nodes, in which it may grow
        wanted, reason = had.home_mems or had.mems, f"memory is left alone: {wish.untouched}"
    else:
        wanted, reason = _first(machine, near, wish, bool(container.memory_limit_bytes))
    nodes, size, memory = wanted | had.mems if had else wanted, counted_bytes(container), machine.memory
    first = nodes | _grown(memory, memory.mask(nodes), lambda zone: memory.capacity_bytes(zone) >= size)
    after = node.grants if grants.keys() == {key} else with_changes(node.grants, grants)  # its own does not count
    mems, moved = _beside_others(machine, node, after, container, first, had is None)
    home = wanted if had and had.home_mems else first  # a warm one comes back to more kinds than it began with
    if had and node.topology.nodes_of(had.cpus) < near:  # with its CPUs; without them it comes back to where it was
        home = had.home_mems or had.mems
    if mems != first:
        reason = f"memory from {_nodes(mems)}: memory promises leave too little on {_nodes(first)}"
    if moved:
        reason += f"; {_counted(moved)} more NUMA nodes, to make room"
    return Change({**grants, **moved, key: _with(grants[key], mems, home)}, (AboutMemory(reason),))


def return_memory(node: Node, grants: Mapping[str, Grant], *, pessimistic: bool = False) -> Change:
    """The change *grants* of a node that a container has left, with those back whose nodes have room again; and why."""
    everywhere, after = node.topology.mems, {**node.grants, **grants} if grants else node.grants
    displaced = node.displaced_keys if not grants else [key for key, grant in after.items() if grant.home_mems]
    moved = {key: after[key] for key in displaced if key in node.containers}
    if not moved:
        return Change(grants)
    machine = _machine(node.topology, pessimistic)
    wide = {key: each.mems for key, each in moved.items() if each.mems <= everywhere and _is_home(machine, each)}
    zones = {key: machine.memory.mask(mems) for key, mems in wide.items()}
    narrower = come_back(machine.crowds.of(node, after), zones)
    if not narrower:
        return Change(grants)
    back = {key: _moved(after[key], mems) for key, mems in narrower.items()}
    return Change({**grants, **back}, (f"{_counted(back)} fewer NUMA nodes: there is room again",))


def _is_home(machine: _Machine, grant: Grant) -> bool:
    """Whether the nodes to which a grant's memory returns are next to all of its CPUs, as far as these have such."""
    near, memory = machine.topology.nodes_of(grant.cpus), machine.memory
    alike = memory.nodes(memory.with_kinds(memory.kinds(memory.mask(grant.home_mems))))
    beside = (({node} | machine.attached.get(node, frozenset())) & alike for node in near)
    return all(grant.home_mems & each for each in beside if each)


def rooms_bytes(node: Node, nears: Iterable[CpuSet], *, pessimistic: bool = False) -> list[int | None]:
    """How much can still be promised on each of several sets of NUMA nodes and what is attached to them.

    None for all memory that there is, of which any amount may be promised.
    """
    machine = _machine(node.topology, pessimistic)
    promises = machine.crowds.of(node, node.grants).promises
    zones = [machine.memory.mask(near | _attached(machine, near)) for near in nears]
    return [None if zone == machine.memory.all else promises.room_bytes(zone) for zone in zones]


@lru_cache(maxsize=512)
def _first(machine: _Machine, near: CpuSet, wish: MemoryWish, limited: bool) -> tuple[CpuSet, str]:
    """The nodes of a container near some, with or without a memory limit, if it was alone; and why."""
    machine = _with_asked(machine, wish)
    memory, everywhere = machine.memory, machine.topology.mems
    nodes = (near | _attached(machine, near)) & everywhere
    kinds = _kinds(machine, near, nodes, wish)
    if not nodes:
        return everywhere, "memory from every NUMA node: those of its CPUs have none"
    try:
        zone = memory.nodes(first_zone(memory, MemoryRequest(key="", size_bytes=0, nodes=nodes, kinds=kinds)))
    except NotEnough:
        return everywhere, "memory from every NUMA node: those of its CPUs have no normal memory"
    asked = f": it asks for {_words(kinds)}" if wish.kinds or wish.cold else ""
    if limited:
        return zone, f"memory from {_nodes(zone)}{asked or ', near its CPUs'}"
    if not asked:
        return everywhere, "memory from every NUMA node: without a memory limit it cannot be pinned safely"
    every = memory.nodes(memory.with_kinds(memory.kinds(memory.mask(zone))))
    return every, f"memory from {_nodes(every)}{asked}, and without a memory limit it gets all of that"


def _with_asked(machine: _Machine, wish: MemoryWish) -> _Machine:
    """The machine with nodes whose kind of memory does not count, but is what is wanted."""
    topology, kinds = machine.topology, wish.kinds | {MemoryKind.PMEM} if wish.cold else wish.kinds
    nodes = (topology.node_by_id[mem] for mem in topology.other_mems)
    more = frozenset(node.id for node in nodes if node.kind in kinds)
    if not more:
        return machine
    wider = replace(topology, mems=topology.mems | more, other_mems=topology.other_mems - more)
    return _machine_of(wider, machine.memory.pessimistic)


def _kinds(machine: _Machine, near: CpuSet, nodes: CpuSet, wish: MemoryWish) -> frozenset[MemoryKind]:
    """Kinds of memory to look for; those not asked for only where they are next to its CPUs."""
    memory = machine.memory
    if wish.cold and memory.of_kind[MemoryKind.PMEM]:
        return frozenset({MemoryKind.PMEM})
    beside = memory.kinds(memory.mask(nodes))
    return wish.kinds or wish.usual & beside or memory.kinds(memory.mask(near)) or beside


def _beside_others(
    machine: _Machine, node: Node, grants: Mapping[str, Grant], container: Container, first: CpuSet, may_move: bool
) -> tuple[CpuSet, Mapping[str, Grant]]:
    """The nodes of *container*, *first* if possible, beside all others; and new grants of those that make room."""
    memory = machine.memory
    if (first == machine.topology.mems and not memory.pessimistic) or not memory.ids:
        return first, {}
    others = machine.crowds.of(node, grants, container.key)
    zone, size = memory.mask(first), counted_bytes(container)
    if others.promises.fits(zone, size):
        return first, {}
    if not may_move:
        return first | _grown(memory, zone, lambda part: others.promises.fits(part, size)), {}
    here = first & machine.topology.mems
    found, moved = allocate(others, request_for(container, here, memory.kinds(zone)))
    return found | (first - here), {key: _moved(grants[key], mems) for key, mems in moved.items()}


def _grown(memory: Memory, zone: Mask, has_room: Callable[[Mask], bool]) -> CpuSet:
    """The nodes of *zone*, and the nearest others that it takes until it *has_room*.

    Of nodes that are all beyond what the policy uses nothing is known, nor which others are near them.
    """
    while zone not in (0, memory.all) and not has_room(zone):
        zone = memory.grown(zone)
    return memory.nodes(zone)


def _moved(grant: Grant, mems: CpuSet) -> Grant:
    """The grant with memory from *mems*; it remembers where it began."""
    return _with(grant, mems, grant.home_mems or grant.mems)


def _with(grant: Grant, mems: CpuSet, home: CpuSet) -> Grant:
    """The grant with memory from *mems*, which would rather be that of *home*."""
    return grant.with_memory(interned(mems), interned(home if home < mems else NO_CPUS))


def _machine_of(topology: Topology, pessimistic: bool) -> _Machine:
    memory = Memory(topology, percent=PROMISED_PERCENT, pessimistic=pessimistic)
    return _Machine(topology, memory, attached_nodes(topology), Crowds(memory))


_machine = remembered(4)(_machine_of)


def with_attached(topology: Topology, near: CpuSet) -> CpuSet:
    """The NUMA nodes *near*, and the memory-only ones that belong to these."""
    return near | _attached(_machine(topology, False), near)


def ordinary_bytes(topology: Topology, near: CpuSet) -> int:
    """The memory of `ORDINARY` kinds that pods may use on the NUMA nodes *near* and what is attached to them."""
    nodes = (topology.node_by_id[mem] for mem in with_attached(topology, near) & topology.mems)
    return sum(node.memory_bytes for node in nodes if node.kind in ORDINARY)


def attached_nodes(topology: Topology) -> Mapping[int, CpuSet]:
    """By NUMA node with CPUs, the memory-only nodes that pods may have and that belong to it: each to the closest.

    Of several that are as close, to the one that has least memory of that kind so far. Where no distances are known,
    none belongs to any.
    """
    found: dict[int, frozenset[int]] = {}
    if not topology.distances:
        return found
    bytes_of: dict[tuple[int, MemoryKind], int] = {}
    homes = [node.id for node in topology.nodes if node.cpus]
    mems = topology.mems | topology.other_mems
    for lone in topology.nodes:
        if lone.memory_only and lone.id in mems and homes:
            home = min(homes, key=lambda h: (topology.distance(h, lone.id), bytes_of.get((h, lone.kind), 0), h))
            bytes_of[home, lone.kind] = bytes_of.get((home, lone.kind), 0) + lone.memory_bytes
            found[home] = found.get(home, frozenset()) | {lone.id}
    return found


@lru_cache(maxsize=512)
def _attached(machine: _Machine, near: CpuSet) -> CpuSet:
    """The memory-only nodes that go with *near*: all of them where that is every node with CPUs."""
    nodes = machine.topology.nodes
    if all(node.id in near for node in nodes if node.cpus):
        return frozenset(node.id for node in nodes if node.memory_only)
    return NO_CPUS.union(*(lone for home, lone in machine.attached.items() if home in near))


def _counted(moved: Mapping[str, Grant]) -> str:
    return f"{len(moved)} container{'s get' if len(moved) > 1 else ' gets'} memory from"


def _nodes(mems: CpuSet) -> str:
    return numbered("NUMA node", mems)


def _words(kinds: frozenset[MemoryKind]) -> str:
    return " and ".join(sorted(kind.value.upper() for kind in kinds))
