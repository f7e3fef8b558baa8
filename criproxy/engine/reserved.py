"""Containers with exclusive CPUs that the policy file reserves: only those that had them before it did."""

from collections.abc import Iterator

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node


def owners_of(node: Node, reserved: CpuSet) -> Iterator[tuple[str, str, CpuSet]]:
    """Container, pod (both as keys) and CPUs, of each container that owns any of *reserved*."""
    for key, grant in node.grants.items() if reserved else ():
        if cpus := grant.exclusive & reserved:
            container = node.containers.get(key)
            yield key, container.pod if container else "", cpus


def owned_by_pod(node: Node, reserved: CpuSet) -> dict[str, CpuSet]:
    """Which of *reserved* each pod owns; a container that crashes comes back into the same pod under another key."""
    found: dict[str, CpuSet] = {}
    for _, pod, cpus in owners_of(node, reserved):
        found[pod] = found.get(pod, NO_CPUS) | cpus
    return found
