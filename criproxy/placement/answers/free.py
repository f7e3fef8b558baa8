"""The free CPU of each NUMA node, for the choice of cards with free CPUs next to them."""

from collections import Counter
from collections.abc import Mapping

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.placement.alloc.capacity import shared_milli


def free_milli(node: Node, reserved: CpuSet) -> Mapping[int, int]:
    """Return the milli-CPU that no container has requested, by NUMA node; 0 for an overcommitted node.

    A container that shares CPUs of several NUMA nodes counts on each by the number of its CPUs there.

    Args:
        node: has the grants of its containers.
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
    """Return the requests of shared containers by their CPUs: hundreds of containers have few distinct sets."""
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
