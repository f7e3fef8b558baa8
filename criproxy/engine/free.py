"""How much CPU is free on each NUMA node: whoever chooses cards wants CPUs next to them."""

from collections import Counter
from collections.abc import Mapping

from criproxy.alloc.capacity import shared_milli
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState


def free_milli(node: Node, reserved: CpuSet) -> Mapping[int, int]:
    """By NUMA node, the milli-CPU that no container has asked for; of a node that is promised too much it is 0.

    A container that shares CPUs of several NUMA nodes counts on each by the number of its CPUs there.

    Args:
        node: with the places of its containers.
        reserved: CPUs that containers do not get.
    """
    usable = node.shared_cpus - reserved - node.topology.isolated_cpus
    asked = _asked(node, usable)
    free = dict[int, int]()
    for numa in node.topology.nodes:
        taken = sum(milli * len(place & numa.cpus) / len(place) for place, milli in asked.items())
        free[numa.id] = max(0, int(1000 * len(numa.cpus & usable) - taken))
    return free


def _asked(node: Node, usable: CpuSet) -> Counter[CpuSet]:
    """What containers ask for of the CPUs that they share, by these CPUs: hundreds of them have few places."""
    by_place: Counter[tuple[CpuSet, CpuSet]] = Counter()
    for key, container in node.containers.items():
        place = node.grants.get(key) or node.applied.get(key)
        if place is None or container.state is ContainerState.EXITED:
            continue
        exclusive = node.grants[key].exclusive if key in node.grants else NO_CPUS
        by_place[place.cpus, exclusive] += shared_milli(container, len(exclusive))
    found: Counter[CpuSet] = Counter()
    for (cpus, _), milli in by_place.items():
        if shared := cpus & usable:
            found[shared] += milli
    return found
