"""A container that was given up before it ran, because others have not left the CPUs that it was granted.

Their updates may fail for ever, so its next attempt gets other CPUs as far as there are some.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.entries import with_entries
from criproxy.model.grant import NO_CPUS, Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.policy.api import Policy

_BLOCKED = "blocked/elsewhere"
"""Key of a container that there is not; no runtime's id or reservation has a slash."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """What kept the last attempt of a container from its start."""

    granted: CpuSet = NO_CPUS
    """The exclusive CPUs that it was granted."""
    used: CpuSet = NO_CPUS
    """All CPUs of the containers that have not left these; empty where none is in the way."""

    @property
    def text(self) -> str:
        """Why its next attempt is elsewhere, for people."""
        return (
            f"it gets other CPUs than its last attempt, which did not run: containers have not left CPUs "
            f"{format_cpuset(self.granted)} and are on CPUs {format_cpuset(self.used)}"
        )


def blocked(node: Node, container: Container) -> Blocked:
    """What keeps *container* from its start; nothing where it has run, owns no CPU, or has its CPUs for itself."""
    grant = node.grants.get(container.key)
    if container.state is not ContainerState.CREATED or grant is None or not grant.exclusive:
        return Blocked()
    found = ((node.applied[key].cpus, other.cpus) for key, other in node.grants.items() if key in node.applied)
    used = (cpus for cpus, granted in found if not grant.exclusive.isdisjoint(cpus - granted))
    return Blocked(grant.exclusive, NO_CPUS.union(*used))


def last_blocked(node: Node, older: Iterable[Container]) -> Blocked:
    """What kept the last of the *older* attempts of a container from its start."""
    last = max(older, key=lambda each: each.attempt, default=None)
    return blocked(node, last) if last else Blocked()


def elsewhere(node: Node, container: Container, why: Blocked, policy: Policy) -> Node | None:
    """The *node* as it is shown where *container* shall get other CPUs: those in use cannot become exclusive.

    None where there are too few others, or nothing was in the way.
    """
    if not why.used:
        return None
    barred = Container(key=_BLOCKED, pod="", name="")
    view = node.replace(
        containers=with_entries(node.containers, {_BLOCKED: barred}),
        applied=with_entries(node.applied, {_BLOCKED: Applied(why.used, node.topology.mems)}),
    )
    try:
        grant = policy.place(view, container).grants.get(container.key)
    except Refused:
        return None
    return view if grant and len(grant.exclusive) >= len(why.granted) else None
