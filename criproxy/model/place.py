"""Where a container was at a moment, to return there later."""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, Desired, Missed


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a container asked for beside the size of its place, and what it should have had."""

    cpu_limit_milli: int | None = None
    desired: Desired | None = None
    """As `Container.desired`."""
    missed: Missed | None = None
    """As `Container.missed`."""


@dataclass(frozen=True, slots=True)
class Place:
    """The grant of a container, and the size for which it was given."""

    grant: Grant
    cpu_milli: int = 0
    wish: Wish | None = None
    """None: an earlier version, which does not know it, has stored the place."""


Places = Mapping[str, Place]
"""By `Container.life`, which stays the same when the runtime assigns the id."""


def places_of(node: Node) -> Places:
    """Return the places of all containers of *node* that have one."""
    held = ((node.containers[key], grant) for key, grant in node.grants.items() if key in node.containers)
    return {container.life: Place(grant, container.cpu_milli, _wish(container)) for container, grant in held}


def _wish(container: Container) -> Wish:
    return Wish(
        cpu_limit_milli=container.cpu_limit_milli,
        desired=container.desired,
        missed=container.missed,
    )
