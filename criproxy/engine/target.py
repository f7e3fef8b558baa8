"""Which cpuset a container may be given at this moment: its grant, less what others still have to give up.

Nothing but the node decides it. It is asked again after every change, so the order of updates, shrinks before the
grows that need them, follows from the state and survives failures, retries and restarts.
"""

from dataclasses import replace

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Applied, CpuQuota, Grant, in_place
from criproxy.model.node import Node
from criproxy.model.resources import LIFTED_US, CfsQuota


def target(node: Node, key: str, held: CpuSet) -> Applied | None:
    """What to set for the container *key* now; None while it has to wait for others or is where it belongs.

    *held* are the CPUs on which others may be running that must give them up.

    A container that only gets CPUs waits until all of them are free. One that gives some up does so at once: it goes
    to the part of its grant that is free or where it is anyway, or, if nothing of it is, to the CPUs that are not
    exclusive: best to those that no other container has to leave, but if there are none, to all of them. Otherwise
    containers that change places would wait for each other for ever.

    A quota is given back at once, and lifted as soon as the container runs on its exclusive CPUs alone.
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
        wanted = Applied(cpus, grant.mems, _lifted(grant, cpus))
    return wanted if wanted.cpus and wanted != applied else None


def _lifted(grant: Grant, cpus: CpuSet) -> bool:
    """Whether a container that is on *cpus* on its way to its grant has no quota there."""
    return grant.quota is CpuQuota.LIFTED and cpus <= grant.exclusive


def quota_for(node: Node, key: str, wanted: Applied) -> CfsQuota | None:
    """The quota that the container *key* has with *wanted*; None where that is none of our business."""
    asked = node.containers[key].asked_quota
    if asked is None or node.grants[key].quota is CpuQuota.LEFT:
        return None
    return replace(asked, quota_us=LIFTED_US) if wanted.lifted else asked
