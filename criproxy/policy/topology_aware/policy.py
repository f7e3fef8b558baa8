"""Placing containers: each in the smallest part of the machine that has room for it.

A container of a Guaranteed pod that asks for whole CPUs owns them; all others share what nobody owns of their pool: a
NUMA node, a die, a socket or the machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from criproxy.alloc.capacity import Capacity, shared_milli
from criproxy.alloc.memory import memory_nodes
from criproxy.alloc.pools import Pool
from criproxy.alloc.rank import Candidate, Criterion, decider, ranked
from criproxy.alloc.resize import resize_cpus
from criproxy.alloc.sharing import RESERVED, Division, divide
from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, interned
from criproxy.model.entries import with_entries, without
from criproxy.model.grant import NO_CPUS, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, QosClass
from criproxy.policy.topology_aware.options import TopologyAwareOptions


@dataclass(frozen=True, slots=True)
class Request:
    """What a container is to be given."""

    owned: int
    """CPUs."""
    shared_milli: int
    isolated: bool = False
    """Whether what it owns should be isolated CPUs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A pool, and in half a sentence why this one."""

    pool: Pool
    why: str


class TopologyAwarePolicy:
    """Each container in the smallest part of the machine with room for it; whole CPUs exclusively, the rest shared."""

    def __init__(self, options: TopologyAwareOptions) -> None:
        self.options = options
        self._last: Division | None = None

    def place(self, node: Node, container: Container) -> Layout:
        """Its own CPUs or the shared ones of a pool or both, and where safe the memory of the pool's NUMA nodes."""
        node = self.options.within(node)
        division = self._divided(node.topology)
        others = node.replace(grants=without(node.grants, (container.key,))) if container.key in node.grants else node
        grant, reason = self._decide(division, others, container, node.grants.get(container.key))
        mems, memory_reason = self._memory(division, node, container, grant)
        grants = with_entries(
            node.grants, {container.key: Grant(interned(grant.cpus), mems, grant.exclusive, grant.pool)}
        )
        owners_differ = grant.exclusive != (node.grants[container.key].exclusive if others is not node else NO_CPUS)
        return Layout(division.settled(dict(grants)) if owners_differ else grants, (reason, memory_reason))

    def release(self, node: Node, key: str) -> Layout:
        """The layout without *key*; what it owned is shared again by those around."""
        node = self.options.within(node)
        left = without(node.grants, (key,))
        owner = key in node.grants and node.grants[key].exclusive
        return Layout(self._divided(node.topology).settled(dict(left)) if owner else left)

    def _divided(self, topology: Topology) -> Division:
        """The pools of this machine, made when it is seen for the first time."""
        if self._last is None or self._last.tree.topology is not topology:
            self._last = divide(topology, self.options.reserved(topology), apart=self.options.pin_cpu)
        return self._last

    def _decide(self, division: Division, others: Node, container: Container, old: Grant | None) -> tuple[Grant, str]:
        """A place beside *others*, all its memory open, and why."""
        if any(fnmatchcase(container.namespace, pattern) for pattern in self.options.reserved_pool_namespaces):
            left = division.reserved_left(others)
            if left:
                return _reserved(division, others, container, len(left))
        request = self._request(container)
        if request.owned:
            return _own(division, others, container, request, old)
        return _share(division, others, container, old)

    def _request(self, container: Container) -> Request:
        """nri-plugins' rule: of 1500m one CPU is owned and the rest shared, 2500m are all shared."""
        milli = shared_milli(container)
        whole, rest = divmod(milli, 1000)
        shares = container.qos is not QosClass.GUARANTEED or self.options.prefer_shared_cpus or not self.options.pin_cpu
        if shares or not whole or (rest and whole >= 2):
            return Request(0, milli)
        return Request(whole, rest, self.options.prefer_isolated_cpus and whole == 1)

    def _memory(self, division: Division, node: Node, container: Container, grant: Grant) -> tuple[CpuSet, str]:
        if not self.options.pin_memory:
            had = node.grants.get(container.key)
            return had.mems if had else frozenset(), "memory is left alone: pinMemory is false"
        alone = len(grant.cpus) == len(grant.exclusive)
        pool = division.tree.by_name.get(grant.pool, division.tree.pools[0])
        cpus = grant.cpus if alone else pool.cpus
        mems, reason = memory_nodes(node, container, cpus)
        if mems != node.topology.mems and container.key not in node.grants:
            mems |= division.tree.memory_near(cpus)
        return mems, reason


def _reserved(division: Division, others: Node, container: Container, count: int) -> tuple[Grant, str]:
    """The reserved CPUs while they have room, else the shared ones of the whole machine."""
    there = [key for key, grant in others.grants.items() if grant.pool == RESERVED]
    granted = sum(shared_milli(others.containers[key]) for key in there if key in others.containers)
    milli, free = shared_milli(container), count * 1000 - granted
    pool = RESERVED if milli <= free else division.tree.pools[0].name
    cpus = division.shared_by(pool, others.exclusive_cpus)
    why = "they are for its namespace" if pool == RESERVED else f"{RESERVED} of its namespace have {max(free, 0)}m left"
    return Grant(cpus, NO_CPUS, pool=pool), f"{container.title} shares {_cpus(cpus)} of {pool}: {why}"


def _share(division: Division, others: Node, container: Container, old: Grant | None) -> tuple[Grant, str]:
    room = division.capacity(others)
    milli = shared_milli(container)
    fitting = [pool for pool in room.tree.pools if room.shared[pool.index] and room.free_milli(pool.index) >= milli]
    choice = _choose(room, (_sharing_candidate(room, pool, old) for pool in fitting))
    if choice is None:  # more was granted than there is, or nothing is left that is not reserved
        choice = Choice(room.tree.pools[0], "no pool has that much left")
    cpus = division.shared_by(choice.pool.name, others.exclusive_cpus) or others.topology.cpus
    asks = f"asks for {milli}m" if milli else "asks for nothing"
    reason = f"{container.title} shares {_cpus(cpus)} of {choice.pool.name}: it {asks}, and {choice.why}"
    return Grant(cpus, NO_CPUS, pool=choice.pool.name), reason


def _sharing_candidate(room: Capacity, pool: Pool, old: Grant | None) -> Candidate:
    load, shared = room.loads[pool.index], room.shared[pool.index]
    criteria = (
        Criterion("it is there already", int(old is None or old.pool != pool.name)),
        Criterion("it is smaller", room.tree.heights[pool.index]),
        Criterion("it has fewer containers for its CPUs", load.containers * 1000 // len(shared)),
        Criterion("it has more free CPU", -room.free_milli(pool.index)),
    )
    return Candidate(pool.index, pool.name, criteria)


def _own(
    division: Division, others: Node, container: Container, request: Request, old: Grant | None
) -> tuple[Grant, str]:
    had = old.exclusive if old else NO_CPUS
    room = division.capacity(others, others.watched_cpus - had)
    isolated = division.isolated - others.exclusive_cpus - room.watched if request.isolated else NO_CPUS
    home = old.pool if old and old.pool in room.tree.by_name else room.tree.home(had).name if had else ""
    owning = _owning_candidates(division, room, request, isolated, home)
    choice = _choose(room, owning)
    if choice is None:
        raise NotEnough(_refusal(division, room, container, request))
    local = isolated & choice.pool.cpus
    if len(local) >= request.owned:
        own = resize_cpus(others.topology, had & local, local, request.owned)
    else:
        own = room.take(choice.pool.index, request.owned, had)
    shared = division.shared_by(choice.pool.name, others.exclusive_cpus | own) if request.shared_milli else NO_CPUS
    also = f" and shares {_cpus(shared)}" if shared else ""
    what = f"{container.title} owns {_cpus(own)}{also} in {choice.pool.name}"
    reason = f"{what}: its pod is Guaranteed and it asks for {container.cpu_milli}m, and {choice.why}"
    return Grant(own | shared, NO_CPUS, own, choice.pool.name), reason


def _owning_candidates(
    division: Division, room: Capacity, request: Request, isolated: CpuSet, home: str
) -> Iterator[Candidate]:
    """The pools that have enough CPUs, taken from their isolated ones or from those who share."""
    shared_milli = request.shared_milli
    can_take = division.own_sharable() and request.owned <= _available(room, shared_milli)
    for pool in room.tree.pools:
        index = pool.index
        quiet = len(isolated & pool.cpus) >= request.owned and (not shared_milli or bool(room.shared[index]))
        left = len(room.shared[index]) - bool(shared_milli)
        if not quiet and not (can_take and request.owned <= min(left, len(room.ownable(index)))):
            continue
        # With isolated CPUs it takes from those who share only what it shares itself.
        missing_milli = max(0, shared_milli - room.free_milli(index))
        short = -(-missing_milli // 1000) if quiet else max(0, request.owned - room.spare(index, shared_milli))
        criteria = (
            Criterion("it leaves more to those who share", short),
            Criterion("it is there already", int(pool.name != home)),
            Criterion("it is smaller", room.tree.heights[pool.index]),
            Criterion("it has isolated CPUs", int(not quiet)),
            Criterion("it has more free CPU", -room.free_milli(index)),
            Criterion("it has fewer containers", room.loads[index].containers),
        )
        yield Candidate(index, pool.name, criteria)


def _available(room: Capacity, shared_milli: int) -> int:
    """How many CPUs of the machine can be owned, beside those that stay with those who share."""
    return max(0, min(len(room.ownable(0)), len(room.shared[0]) - room.needed(0, shared_milli)))


def _choose(room: Capacity, candidates: Iterator[Candidate]) -> Choice | None:
    order = ranked(candidates)
    if not order:
        return None
    best, *others = order
    pool = room.tree.pools[best.index]
    if not others:
        return Choice(
            pool, "that is the only pool" if len(room.tree.pools) == 1 else "no other pool has that much left"
        )
    decided = decider(best, others[0])
    why = f"goes before {others[0].name} because {decided.name}" if decided else "comes first of several that are alike"
    return Choice(pool, f"{pool.name} {why}")


def _refusal(division: Division, room: Capacity, container: Container, request: Request) -> str:
    also = f" and {request.shared_milli}m of shared ones" if request.shared_milli else ""
    asks = f"container {container.title} asks for {request.owned} exclusive CPU{'s' * (request.owned > 1)}{also}"
    if not division.own_sharable():
        return f"{asks}, but none can be owned: all CPUs that pods may use are reserved or isolated"
    free, load = room.shared[0], room.loads[0]
    nodes = room.tree.topology.nodes
    where = ", ".join(f"{format_cpuset(n.cpus & free)} on NUMA node {n.id}" for n in nodes if n.cpus & free)
    needed = room.needed(0, request.shared_milli)
    granted = f", who were granted {load.granted_milli}m" if load.granted_milli else ""
    stay = f", and {needed} of them must stay with those who share{granted}" if needed else ""
    if room.watched:
        stay += f", and on CPUs {format_cpuset(room.watched)} run containers that others than criproxy started"
    available = _available(room, request.shared_milli)
    return f"{asks}, but {available} are available: free are {where or 'none on any NUMA node'}{stay}"


def _cpus(cpus: CpuSet) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpuset(cpus)}"
