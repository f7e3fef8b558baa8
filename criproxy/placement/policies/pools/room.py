"""Which pools have room for a container: for its pod among others, or for itself alone; and which CPUs are open."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.policies.pools.plan import Instance, Plan


def pods_by_pool(node: Node, container: Container) -> dict[str, set[str]]:
    """By pool, the pods in it; *container* itself does not count."""
    found: dict[str, set[str]] = {}
    containers = node.containers
    for key, grant in node.grants.items():
        if grant.pool and key != container.key and key in containers:
            found.setdefault(grant.pool, set()).add(containers[key].pod)
    return found


def has_room(instance: Instance, pods: Mapping[str, Collection[str]], container: Container) -> bool:
    """Whether the pod of *container* may run in a pool, by the *pods* that are there."""
    most, there = instance.kind.max_pods, pods.get(instance.name, ())
    return most == 0 or container.pod in there or len(there) < most


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
        old = node.grants.get(container.key)
        had = old.exclusive if old else NO_CPUS
        siblings = (node.grants[each.key] for each in node.containers_of(container.pod) if each.key in node.grants)
        near = node.topology.nodes_of(NO_CPUS.union(*(grant.exclusive for grant in siblings)))
        return cls(node, had, (node.exclusive_cpus | node.watched_cpus) - had | reserved, near)

    def may_have(self, instance: Instance) -> bool:
        """Whether a pool is free, and leaves a CPU to shared containers."""
        return instance.cpus.isdisjoint(self.taken) and bool((self.node.shared_cpus | self.had) - instance.cpus)

    def order(self, instance: Instance) -> tuple[bool, bool]:
        """The one that it has, then those next to its pod, then all others."""
        return instance.cpus != self.had, self.node.topology.nodes_of(instance.cpus).isdisjoint(self.near)


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
