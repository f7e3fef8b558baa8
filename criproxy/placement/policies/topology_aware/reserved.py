"""The pool of containers for the reserved CPUs: these, or another one where these are full."""

from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.alloc.capacity import shared_milli
from criproxy.placement.alloc.sharing import RESERVED, Division


def reserved_pool(division: Division, others: Node, container: Container) -> tuple[str, int]:
    """The pool of a container for the reserved CPUs: these while they have room, else the whole machine.

    Args:
        division: of the machine.
        others: the node without the container; some of its reserved CPUs are left.
        container: one for the reserved CPUs.

    Returns:
        The name of the pool, and what the reserved CPUs have left for it in milli-CPU, less than 0 where too much was
        granted.
    """
    there = [key for key, grant in others.grants.items() if grant.pool == RESERVED]
    granted = sum(shared_milli(others.containers[key]) for key in there if key in others.containers)
    free = len(division.reserved_left(others)) * 1000 - granted
    return RESERVED if shared_milli(container) <= free else division.tree.pools[0].name, free
