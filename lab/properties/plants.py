"""Policies that break one rule each; the properties must notice all of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.policies.static import StaticOptions, StaticPolicy

Twist = Callable[[Node, Container, Grant, int], Grant]
"""What a bad policy makes of the newcomer's grant: node before, container, good grant, and a number that grows."""


class Twisted(StaticPolicy):
    """The static policy with a new container's grant twisted, and what is released given to another."""

    def __init__(self, options: StaticOptions, twist: Twist | None = None, *, keeps_cpus: bool = False) -> None:
        super().__init__(options)
        self._twist = twist
        self._keeps_cpus = keeps_cpus
        self._calls = count()

    def place(self, node: Node, container: Container) -> Change:
        """The change of the static policy with the twisted grant in it."""
        change = super().place(node, container)
        if not self._twist:
            return change
        grant = self._twist(node, container, change.grants[container.key], next(self._calls))
        return Change({**change.grants, container.key: grant}, change.reasons)

    def release(self, node: Node, left: Grant) -> Change:
        """The change of the static policy; or one that gives exclusive CPUs to another container."""
        if self._keeps_cpus and left.exclusive:
            return Change(_heir(node.grants, left.exclusive))
        return super().release(node, left)


def _heir(grants: Mapping[str, Grant], own: CpuSet) -> Mapping[str, Grant]:
    heirs = ((key, had) for key, had in grants.items() if had.exclusive)
    return {key: replace(had, cpus=had.cpus | own, exclusive=had.exclusive | own) for key, had in [*heirs][:1]}


def _two_owners(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    return replace(grant, cpus=grant.cpus | node.exclusive_cpus, exclusive=grant.exclusive | node.exclusive_cpus)


def _on_owned(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    return replace(grant, cpus=grant.cpus | node.exclusive_cpus)


def _no_cpu(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    return Grant(frozenset(), grant.mems)


def _everything(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    free = node.shared_cpus | grant.exclusive
    return replace(grant, cpus=free, exclusive=free)


def _forbidden(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    return replace(grant, cpus=grant.cpus | node.topology.forbidden_cpus)


def _beyond(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    return replace(grant, cpus=frozenset(sorted(grant.cpus)[:1])) if len(grant.exclusive) > 1 else grant


def _far_memory(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    return replace(grant, mems=frozenset(numa.id for numa in node.topology.nodes))


def _movable_memory(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    movable = {mem for mem in node.topology.mems if not node.topology.can_hold(frozenset({mem}))}
    return replace(grant, mems=frozenset(movable)) if movable else grant


def _reserved(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    lowest = frozenset(sorted(grant.cpus)[:1]) if not grant.exclusive and len(grant.cpus) > 1 else frozenset()
    return replace(grant, cpus=lowest, exclusive=lowest) if lowest else grant


def _moody(node: Node, container: Container, grant: Grant, number: int) -> Grant:
    shared = sorted(grant.cpus)
    return grant if grant.exclusive else replace(grant, cpus=frozenset(shared[: 1 + number % len(shared)]))


PLANTS: Mapping[str, tuple[Callable[[StaticOptions], Twisted], str]] = {
    "two owners": (lambda options: Twisted(options, _two_owners), "is exclusive to both"),
    "on an owned CPU": (lambda options: Twisted(options, _on_owned), "exclusive to another container"),
    "no CPU": (lambda options: Twisted(options, _no_cpu), "has no CPU"),
    "owns everything": (lambda options: Twisted(options, _everything), "no CPU is left for containers that share"),
    "forbidden CPUs": (lambda options: Twisted(options, _forbidden), "which pods may not use"),
    "owns beyond": (lambda options: Twisted(options, _beyond), "on which it may not run"),
    "memory that is not there": (lambda options: Twisted(options, _far_memory), "which pods may not use"),
    "movable memory alone": (lambda options: Twisted(options, _movable_memory), "without normal memory"),
    "owns reserved": (
        lambda options: Twisted(options, _reserved),
        "has exclusive use of reserved CPU|exclusive to another container",
    ),
    "gives CPUs to another": (
        lambda options: Twisted(options, keeps_cpus=True),
        "owned or free as they should not be|other CPUs are owned",
    ),
    "not deterministic": (lambda options: Twisted(options, _moody), "two steps by the same"),
}
"""What is wrong → such a policy, and what a sentence about it says (a regular expression)."""
