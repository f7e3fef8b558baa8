"""Policies that break one rule each; the properties must notice all of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Change, Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.policies.static import StaticOptions, StaticPolicy

Twist = Callable[[Node, Grant, int], Grant]
"""What a bad policy makes of the newcomer's grant: node before, good grant, and a number that grows."""


class Twisted(StaticPolicy):
    """The static policy with a new container's grant twisted; without a *twist*, what is released goes to another."""

    def __init__(self, options: StaticOptions, twist: Twist | None) -> None:
        super().__init__(options)
        self._twist = twist
        self._calls = count()

    def place(self, node: Node, container: Container) -> Change:
        """The change of the static policy with the twisted grant in it."""
        change = super().place(node, container)
        if not self._twist:
            return change
        grant = self._twist(node, change.grants[container.key], next(self._calls))
        return Change({**change.grants, container.key: grant}, change.reasons)

    def release(self, node: Node, left: Grant) -> Change:
        """The change of the static policy; or one that gives exclusive CPUs to another container."""
        if self._twist or not left.exclusive:
            return super().release(node, left)
        heirs = [key for key, had in node.grants.items() if had.exclusive][:1]
        return Change({key: _more(node.grants[key], left.exclusive) for key in heirs})


def _more(grant: Grant, own: CpuSet) -> Grant:
    return replace(grant, cpus=grant.cpus | own, exclusive=grant.exclusive | own)


def _everything(node: Node, grant: Grant, number: int) -> Grant:
    free = node.shared_cpus | grant.exclusive
    return replace(grant, cpus=free, exclusive=free)


def _beyond(node: Node, grant: Grant, number: int) -> Grant:
    return replace(grant, cpus=frozenset(sorted(grant.cpus)[:1])) if len(grant.exclusive) > 1 else grant


def _movable_memory(node: Node, grant: Grant, number: int) -> Grant:
    movable = {mem for mem in node.topology.mems if not node.topology.can_hold(frozenset({mem}))}
    return replace(grant, mems=frozenset(movable)) if movable else grant


def _reserved(node: Node, grant: Grant, number: int) -> Grant:
    lowest = frozenset(sorted(grant.cpus)[:1]) if not grant.exclusive and len(grant.cpus) > 1 else frozenset()
    return replace(grant, cpus=lowest, exclusive=lowest) if lowest else grant


def _moody(node: Node, grant: Grant, number: int) -> Grant:
    shared = sorted(grant.cpus)
    return grant if grant.exclusive else replace(grant, cpus=frozenset(shared[: 1 + number % len(shared)]))


PLANTS: Mapping[str, tuple[Twist | None, str]] = {
    "two owners": (lambda node, grant, _: _more(grant, node.exclusive_cpus), "is exclusive to both"),
    "on an owned CPU": (
        lambda node, grant, _: replace(grant, cpus=grant.cpus | node.exclusive_cpus),
        "exclusive to another container",
    ),
    "no CPU": (lambda _, grant, __: Grant(frozenset(), grant.mems), "has no CPU"),
    "owns everything": (_everything, "no CPU is left for containers that share"),
    "forbidden CPUs": (
        lambda node, grant, _: replace(grant, cpus=grant.cpus | node.topology.forbidden_cpus),
        "which pods may not use",
    ),
    "owns beyond": (_beyond, "on which it may not run"),
    "memory that is not there": (
        lambda node, grant, _: replace(grant, mems=frozenset(numa.id for numa in node.topology.nodes)),
        "which pods may not use",
    ),
    "movable memory alone": (_movable_memory, "without normal memory"),
    "owns reserved": (_reserved, "has exclusive use of reserved CPU|exclusive to another container"),
    "gives CPUs to another": (None, "owned or free as they should not be|other CPUs are owned"),
    "not deterministic": (_moody, "two steps by the same"),
}
"""What is wrong → the twist, and what a sentence about it says (a regular expression)."""
