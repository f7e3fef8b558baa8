"""The cpuset that a container may have at this moment: its grant without CPUs that others still have to leave.

It depends only on the node, and is computed again after every change. So the order of updates (containers that lose
CPUs before those that get them) follows from the state, and survives failures, retries and restarts.
"""

from dataclasses import replace

from criproxy.model.attributes import granted, in_place
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Applied, CpuQuota, Grant
from criproxy.model.node import Node


def target(node: Node, key: str, held: CpuSet) -> Applied | None:
    """Return what to set for the container *key* now; None if it has to wait for others or has its grant.

    *held* are the CPUs on which others may be running, but which they must leave.

    A container that only gets CPUs waits until all of them are free. One that must leave some does so at once: it moves
    to the part of its grant that is free or that it already has or, if that is empty, to the CPUs that are not
    exclusive: preferably to those that no other container has to leave; if there are none, to all of them. Otherwise
    containers that swap CPUs would wait for each other for ever.

    A quota is restored at once, and lifted as soon as the container runs only on its exclusive CPUs.
    """
    grant, applied = node.grants[key], node.applied.get(key)
    if in_place(grant, applied):
        return None
    has = applied.cpus if applied else NO_CPUS
    free = grant.cpus - (held - has)
    if free != grant.cpus and applied is not None and applied.cpus <= grant.cpus:
        wanted = replace(applied, lifted=_lifted(grant, applied.cpus))  # its quota does not have to wait
    else:
        cpus = free or node.shared_cpus - held - (has - grant.cpus) or node.shared_cpus
        wanted = replace(granted(grant), cpus=cpus, lifted=_lifted(grant, cpus))
    return wanted if wanted.cpus and wanted != applied else None


def _lifted(grant: Grant, cpus: CpuSet) -> bool:
    """Whether the quota of a container is lifted while it is on *cpus*, on the way to its *grant*."""
    return grant.quota is CpuQuota.LIFTED and cpus <= grant.exclusive
