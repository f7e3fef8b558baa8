"""Options of the policy ``pools``, with the names of CRI-RM's podpools and static-pools."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container
from criproxy.placement.alloc.rank import Criterion
from criproxy.placement.options.policy_options import Misfit, NamespacePattern, Options, may_use, missing_cpus
from criproxy.placement.policies.pools.plan import DEFAULT, RESERVED, Amount, CpuList, Instance, Plan, Pool, make_plan


@dataclass(frozen=True, slots=True)
class Alone:
    """The search of a container for a pool of its own."""

    node: Node
    had: CpuSet
    """Its exclusive CPUs so far."""
    taken: CpuSet
    """CPUs that it cannot get: exclusive ones of others, those of unmanaged containers, and reserved ones."""
    near: CpuSet
    """The NUMA nodes of the exclusive CPUs of its pod."""

    @classmethod
    def of(cls, node: Node, container: Container, reserved: CpuSet) -> Self:
        """The search of *container* on *node*."""
        had = node.own_cpus(container.key)
        siblings = (node.grants[each.key] for each in node.containers_of(container.pod) if each.key in node.grants)
        near = node.topology.nodes_of(NO_CPUS.union(*(grant.exclusive for grant in siblings)))
        return cls(node, had, (node.exclusive_cpus | node.watched_cpus) - had | reserved, near)

    def may_have(self, instance: Instance) -> bool:
        """Whether a pool is free, and leaves a CPU to shared containers."""
        return instance.cpus.isdisjoint(self.taken) and bool((self.node.shared_cpus | self.had) - instance.cpus)

    def criteria(self, instance: Instance) -> tuple[Criterion, ...]:
        """The one that it has is best, then those next to its pod, then all others."""
        is_far = self.node.topology.nodes_of(instance.cpus).isdisjoint(self.near)
        is_other = instance.cpus != self.had
        return Criterion("it is already there", int(is_other)), Criterion("it is next to its pod", int(is_far))


def open_cpus(plan: Plan, node: Node, reserved: CpuSet) -> CpuSet:
    """The CPUs that the next container can have for itself, whichever pool of *plan* it is for.

    Those of pools that are for one container and free, and those of all other pools on which no container runs.

    Args:
        plan: the pools.
        node: on the part of its machine that the policy uses.
        reserved: CPUs that no container can have for itself.
    """
    alone = Alone(node, NO_CPUS, node.exclusive_cpus | node.watched_cpus | reserved, NO_CPUS)
    own = (each.cpus for each in plan.instances if each.kind.exclusive and alone.may_have(each))
    shared = (each.cpus for each in plan.instances if not each.kind.exclusive and each.kind.max_pods >= 0)
    sharers = (grant.cpus for grant in node.grants.values() if grant.shares and not grant.is_preserved)
    return NO_CPUS.union(*own) | (NO_CPUS.union(*shared) - NO_CPUS.union(*sharers))


ANNOTATION = "pool.podpools"
"""The annotation that names the pool of a container."""


def _by_name(value: object) -> object:
    """A mapping from names, as static-pools has it, as the list that podpools has."""
    if not isinstance(value, Mapping):
        return value
    return [{"name": name, **pool} if isinstance(pool, Mapping) else pool for name, pool in value.items()]


class PoolsOptions(Options):
    """Options of the policy ``pools``."""

    pools: Annotated[tuple[Pool, ...], BeforeValidator(_by_name)] = ()
    """The pools, in the order in which they get their CPUs; the default pool gets the remaining ones."""
    reserved_pool_namespaces: tuple[NamespacePattern, ...] = ("kube-system",)
    """Namespaces whose pods run in the reserved pool; * and ? are wildcards. kube-system is always included."""
    pin_cpu: bool = Field(default=True, alias="pinCPU")
    """Whether containers run only on the CPUs of their pool."""
    pin_memory: bool = True
    """Whether the memory of containers may be restricted to the NUMA nodes of their pool."""

    def held(self, node: Node) -> CpuSet:
        """All but those that the next container can have for itself: see `open_cpus`."""
        topology = self.usable(node.topology)
        reserved = self.reserved(topology)
        return node.topology.cpus - open_cpus(make_plan(self.pools, reserved, topology), self.within(node), reserved)

    def contradictions(self) -> Iterator[Misfit]:
        """What is wrong with the pools whatever the machine."""
        yield from super().contradictions()
        taken: dict[int, str] = {}
        for index, pool in enumerate(self.pools):
            path = ("pools", index)
            if pool.name in [other.name for other in self.pools[:index]]:
                yield Misfit((*path, "name"), f"there are two pools {pool.name!r}: give each a name of its own")
            yield from _wrong_size(pool, path)
            yield from _unreachable(pool, path, named=may_use(self, ANNOTATION))
            if pool.exclusive and not self.pin_cpu:
                yield Misfit((*path, "exclusive"), "needs pinCPU: without it no container has CPUs alone")
            for number, cpus in enumerate(each.cpuset for each in pool.cpu_lists):
                place = (*path, "cpuLists", number, "cpuset")
                if both := {cpu: taken[cpu] for cpu in sorted(cpus & taken.keys())}:
                    what = f"{numbered('CPU', frozenset(both))} {are(len(both))} also in pool"
                    yield Misfit(place, f"{what} {next(iter(both.values()))!r}: a CPU is in one pool only")
                elif not cpus:
                    yield Misfit(place, "names no CPU")
                taken |= dict.fromkeys(cpus, f"{pool.name}[{number}]")

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """CPUs that a machine lacks, and pools for which it has no room."""
        yield from super().misfits(topology)
        usable = self.usable(topology)
        for index, pool in enumerate(self.pools):
            for number, each in enumerate(pool.cpu_lists):
                path = ("pools", index, "cpuLists", number)
                yield from missing_cpus((*path, "cpuset"), each.cpuset, topology)
                if (both := each.cpuset & self.reserved(topology)) and pool.name != RESERVED:
                    yield Misfit((*path, "cpuset"), f"{numbered('CPU', both)} {are(len(both))} reserved")
                yield from _elsewhere((*path, "socket"), each, topology)
                if beyond := (each.cpuset & topology.cpus) - usable.cpus:
                    text = f"{numbered('CPU', beyond)} {are(len(beyond))} not among the available ones"
                    yield Misfit((*path, "cpuset"), text)
        for name, text in make_plan(self.pools, self.reserved(usable), usable).shortages:
            index = next(index for index, pool in enumerate(self.pools) if pool.name == name)
            yield Misfit(("pools", index), text)


def _wrong_size(pool: Pool, path: tuple[str | int, ...]) -> Iterator[Misfit]:
    if pool.cpu is not None and pool.cpu_lists:
        yield Misfit((*path, "cpu"), "means the same as cpuLists: set only one of them")
    elif pool.cpu is not None and not pool.cpu.number:
        yield Misfit((*path, "cpu"), "must be at least one CPU")
    elif pool.cpu is None and not pool.cpu_lists and pool.name not in (RESERVED, DEFAULT):
        yield Misfit(path, f"pool {pool.name!r} has no size: give cpu or cpuLists")
    if pool.instances is not None:
        if pool.cpu_lists:
            yield Misfit((*path, "instances"), "there are as many instances as cpuLists")
        elif pool.name in (RESERVED, DEFAULT) and (pool.instances.unit or pool.instances.number != 1):
            yield Misfit((*path, "instances"), f"there is one pool {pool.name!r}")
        elif not pool.instances.number:
            yield Misfit((*path, "instances"), "must be at least one")
    elif pool.name in (RESERVED, DEFAULT) and len(pool.cpu_lists) > 1:
        yield Misfit((*path, "cpuLists"), f"there is one pool {pool.name!r}: give it one list")


def _unreachable(pool: Pool, path: tuple[str | int, ...], *, named: bool) -> Iterator[Misfit]:
    if not named and pool.name not in (RESERVED, DEFAULT):
        yield Misfit((*path, "name"), f"no container can get this pool: permit {ANNOTATION} in annotations.allow")
    several = len(pool.cpu_lists) > 1 or (pool.instances is not None and pool.instances != Amount("1", 1))
    if pool.exclusive and pool.name in (RESERVED, DEFAULT):
        yield Misfit((*path, "exclusive"), f"the pool {pool.name!r} is for all containers without another")
    elif several and not pool.max_pods and not pool.exclusive and pool.fill_order != "Balanced":
        text = f"all but the first pool {pool.name!r} stay empty: with {pool.fill_order}, give maxPods"
        yield Misfit((*path, "fillOrder"), text)


def _elsewhere(path: tuple[str | int, ...], each: CpuList, topology: Topology) -> Iterator[Misfit]:
    if each.socket is None:
        return
    cpus = frozenset[int]().union(*(package.cpus for package in topology.packages if package.id == each.socket))
    if beyond := (each.cpuset & topology.online_cpus) - cpus:
        yield Misfit(path, f"{numbered('CPU', beyond)} {are(len(beyond))} not in socket {each.socket}")
