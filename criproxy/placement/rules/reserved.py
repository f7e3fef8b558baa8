"""Containers with exclusive CPUs that the policy file reserves: they got them before the file reserved them."""

from collections.abc import Iterator

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node


def owners_of(node: Node, reserved: CpuSet) -> Iterator[tuple[str, str, CpuSet]]:
    """Yield the keys of container and pod, and the CPUs, of each container with exclusive CPUs among *reserved*."""
    for key, grant in node.grants.items() if reserved else ():
        if cpus := grant.exclusive & reserved:
            container = node.containers.get(key)
            yield key, container.pod if container else "", cpus


def owned_by_pod(node: Node, reserved: CpuSet) -> dict[str, CpuSet]:
    """Return the exclusive CPUs among *reserved* by pod: a container that restarts has a new key in the same pod."""
    found: dict[str, CpuSet] = {}
    for _, pod, cpus in owners_of(node, reserved):
        found[pod] = found.get(pod, NO_CPUS) | cpus
    return found
