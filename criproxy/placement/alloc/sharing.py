"""Which CPUs of a machine each pool shares: a function of the pools and of the exclusive CPUs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.placement.alloc.capacity import RESERVED, Capacity, Loads, pool_of, shared_cpus
from criproxy.placement.alloc.cpus import one_per_core
from criproxy.placement.alloc.memory.place_memory import ordinary_bytes
from criproxy.placement.alloc.pools import PoolTree, build_pools

_Place = tuple[CpuSet, CpuSet, CpuSet, CpuSet, str]
"""All that policies set in the grant of a shared container."""


@dataclass(frozen=True)
class Division:
    """The CPUs that pods may use, by what they are for."""

    tree: PoolTree
    reserved: CpuSet
    """For the reserved pool; shared by all where nothing else is left, and never owned."""
    isolated: CpuSet
    """For containers that want exclusive isolated CPUs (isolcpus); never shared while there are others."""
    sharable: CpuSet
    """CPUs for all containers: those that are not exclusive are shared."""
    apart: bool = True
    """False where each container may use all CPUs that are not exclusive, whatever its pool."""

    def capacity(self, node: Node, watched: CpuSet = NO_CPUS) -> Capacity:
        """What is free in each pool, where *watched* CPUs cannot be owned."""
        # A container that shares will always find a CPU: a reserved one, or one that is kept for it.
        kept = int(not self.reserved - node.exclusive_cpus)
        shared = shared_cpus(self.tree, self.sharable, node.exclusive_cpus)
        return Capacity(self.tree, shared, self._loads.of(node), kept, watched)

    @cached_property
    def memory_bytes(self) -> tuple[int, ...]:
        """By pool, the memory that containers get there without asking for a kind."""
        return tuple(ordinary_bytes(self.tree.topology, near) for near in self.tree.nodes)

    @cached_property
    def _loads(self) -> Loads:
        return Loads(self.tree)

    def own_sharable(self) -> bool:
        """Whether sharable CPUs can be owned at all."""
        return self.sharable.isdisjoint(self.reserved | self.isolated)

    def reserved_left(self, node: Node) -> CpuSet:
        """Reserved CPUs that are not exclusive (one may be, from before it was reserved)."""
        return self.reserved - node.exclusive_cpus

    def moved(self, node: Node, hides: Callable[[str], bool] = lambda _: False) -> dict[str, Grant]:
        """The new grants of shared containers that do not have the shared CPUs of their pool on *node*.

        One whose pool has nothing left gets the shared CPUs of the smallest pool around it that has some, and finds
        back as soon as it can.

        Args:
            node: with the grants of owners as they are now.
            hides: whether the container of a key sees one thread of each core only; asked of those who may move.
        """
        grants, owned = dict[str, Grant](), node.exclusive_cpus
        # Sharers have few different places: to look at each once keeps 500 containers cheap, and so for their pools.
        moved: dict[bool, dict[_Place, Grant | None]] = {False: {}, True: {}}
        shared: dict[str, CpuSet] = {}

        def settle(grant: Grant, place: _Place, *, hidden: bool) -> Grant | None:
            if place not in moved[hidden]:
                name = RESERVED if grant.pool == RESERVED else pool_of(self.tree, grant).name
                if name not in shared:
                    shared[name] = self.shared_by(name, owned)
                moved[hidden][place] = self._moved(grant, name, shared[name], hides=hidden)
            return moved[hidden][place]

        for key, grant in node.grants.items():
            if (grant.exclusive and not grant.shares) or grant.is_preserved:
                continue
            place = grant.cpus, grant.mems, grant.home_mems, grant.exclusive, grant.pool
            new = settle(grant, place, hidden=False)
            if new and hides(key):
                new = settle(grant, place, hidden=True)
            if new:
                grants[key] = new
        return grants

    def shared_by(self, pool: str, owned: CpuSet) -> CpuSet:
        """The shared CPUs of *pool*; empty only if all CPUs of the machine are exclusive."""
        if not self.apart:
            return self.tree.topology.cpus - owned
        reserved = self.reserved - owned
        if pool == RESERVED and reserved:
            return reserved
        shared = shared_cpus(self.tree, self.sharable, owned)
        parts = [shared[index] for index in self.tree.by_name.get(pool, self.tree.pools[0]).path if shared[index]]
        return parts[0] if parts else reserved or self.tree.topology.cpus - owned

    def seen(self, own: CpuSet, shared: CpuSet, *, hides: bool) -> CpuSet:
        """What a container with *own* CPUs and *shared* ones may run on."""
        cpus = own | shared if own else shared
        return one_per_core(self.tree.topology, cpus, own) if hides else cpus

    def _moved(self, grant: Grant, pool: str, shared: CpuSet, *, hides: bool) -> Grant | None:
        """The grant with what *pool* shares now; None if that is what it has."""
        cpus = self.seen(grant.exclusive, shared, hides=hides) if shared else grant.cpus
        return None if cpus == grant.cpus else replace(grant, cpus=cpus, pool=pool)


def divide(topology: Topology, reserved: CpuSet, *, apart: bool, caches: bool = True) -> Division:
    """Reserved CPUs, isolated ones, and the rest. If there is no rest, all that is not isolated is sharable."""
    cpus = topology.cpus
    reserved &= cpus
    isolated = (topology.isolated_cpus & cpus) - reserved
    sharable = cpus - reserved - isolated or reserved or cpus
    return Division(build_pools(topology, caches=caches), reserved, isolated - sharable, sharable, apart)
