"""A container that the kubelet gave up before it ran, because others have not left the CPUs granted to it.

Their updates may fail for ever, so its next attempt gets other CPUs if there are some.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.ask import Placed
from criproxy.placement.rules.pipeline import place


@dataclass(frozen=True, slots=True)
class Blocked:
    """What prevented the start of the last attempt of a container."""

    granted: CpuSet = NO_CPUS
    """The exclusive CPUs granted to it."""
    used: CpuSet = NO_CPUS
    """All CPUs of the containers that have not left these; empty if there are none."""

    @property
    def text(self) -> str:
        """Why its next attempt gets other CPUs, for people."""
        return (
            f"it gets other CPUs than its last attempt, which could not start: other containers have not left CPUs "
            f"{format_cpuset(self.granted)}, and are on {numbered('CPU', self.used)}"
        )


NOT_BLOCKED = Blocked()


def blocked(node: Node, container: Container) -> Blocked:
    """Return what prevents the start of *container*; empty if it has run, or if no other container is on its CPUs."""
    grant = node.grants.get(container.key)
    if container.state is not ContainerState.CREATED or grant is None or not grant.exclusive:
        return NOT_BLOCKED
    found = ((node.applied[key].cpus, other.cpus) for key, other in node.grants.items() if key in node.applied)
    used = (cpus for cpus, granted in found if not grant.exclusive.isdisjoint(cpus - granted))
    return Blocked(grant.exclusive, NO_CPUS.union(*used))


def last_blocked(node: Node, older: Collection[Container]) -> Blocked:
    """Return what prevented the start of the last of the *older* attempts of a container."""
    return blocked(node, max(older, key=lambda each: each.attempt)) if older else NOT_BLOCKED


def elsewhere(node: Node, container: Container, why: Blocked, policy: Policy) -> Placed | None:
    """Return the node with *container* on other CPUs than those in use, which cannot become exclusive.

    None if there are too few others, or no container blocked the last attempt.
    """
    if not why.used:
        return None
    try:
        placed = place(node.replace(barred=why.used), container, policy)
    except Refused:
        return None
    if len(placed.node.own_cpus(container.key)) < len(why.granted):
        return None
    return replace(placed, node=placed.node.replace(barred=NO_CPUS))
