"""Where a container was at a moment, to return there later."""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.model.grant import Grant
from criproxy.model.node import Node


@dataclass(frozen=True, slots=True)
class Place:
    """The grant of a container, and the size for which it was given."""

    grant: Grant
    cpu_milli: int = 0


Places = Mapping[str, Place]
"""By `Container.life`, which stays the same when the runtime assigns the id."""


def places_of(node: Node) -> Places:
    """Return the places of all containers of *node* that have one."""
    held = ((node.containers[key], grant) for key, grant in node.grants.items() if key in node.containers)
    return {container.life: Place(grant, container.cpu_milli) for container, grant in held}
