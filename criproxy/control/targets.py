"""Which cpuset a container may be given at this moment: its grant, less what others still have to give up.

Pure functions of the node. They are asked again after every change, so the order of updates, shrinks before the
grows that need them, follows from the state and survives failures, retries and restarts.
"""

from collections.abc import Collection, Mapping

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Applied, in_place
from criproxy.model.node import Node
from criproxy.model.workload import MAY_RUN, Container


def overhang(node: Node, starting: Collection[str]) -> Mapping[str, CpuSet]:
    """CPUs beyond their grant that containers may be running on, by container key; empty at rest.

    Args:
        node: grants, and what is applied.
        starting: keys of containers whose start is under way.
    """
    found: dict[str, CpuSet] = {}
    for key, grant in node.grants.items():
        applied = node.applied.get(key)
        has = node.topology.cpus if applied is None else applied.cpus
        # At rest, which is nearly always, both are the very same set: this line is the cost of all containers.
        if has is not grant.cpus and not has <= grant.cpus and (key in starting or _may_run(node.containers[key])):
            found[key] = has - grant.cpus
    return found


def _may_run(container: Container) -> bool:
    """Whether it may have a process; a create of unknown outcome, which still has no id, was not started."""
    return container.state in MAY_RUN and container.key != container.reservation


def target(node: Node, key: str, over: Mapping[str, CpuSet]) -> Applied | None:
    """What to set for the container *key* now; None while it has to wait for others or is where it belongs.

    A container that only gets CPUs waits until all of them are free. One that gives some up does so at once: it goes
    to the part of its grant that is free, or, if nothing of it is, to the CPUs that nobody owns: best to those that
    nobody has to leave, but if there are none, to all of them. Otherwise two that change places would wait for ever.
    """
    grant, applied = node.grants[key], node.applied.get(key)
    if in_place(grant, applied):
        return None
    held = NO_CPUS.union(*(over[other] for other in in_the_way(node, key, over)))
    free = grant.cpus - held
    if free != grant.cpus and applied is not None and applied.cpus <= grant.cpus:
        return None
    wanted = Applied(free or node.shared_cpus - _others(over, key) or node.shared_cpus, grant.mems)
    return wanted if wanted.cpus and wanted != applied else None


def _others(over: Mapping[str, CpuSet], key: str) -> CpuSet:
    return NO_CPUS.union(*(cpus for other, cpus in over.items() if other != key))


def in_the_way(node: Node, key: str, over: Mapping[str, CpuSet]) -> list[str]:
    """Keys of the other containers that may still run on CPUs which they must give up and *key* gets."""
    cpus = node.grants[key].cpus if key in node.grants else NO_CPUS
    return [other for other, has in over.items() if other != key and not has.isdisjoint(cpus)]
