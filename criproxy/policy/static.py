"""The policy ``static``: whole CPUs to Guaranteed containers that ask for them, the rest is shared.

The rule is that of the kubelet's CPU manager with its policy of the same name: a container of a Guaranteed pod that
asks for a whole number of CPUs owns them, everybody else runs on what nobody owns, reserved CPUs included.
"""

from criproxy.alloc.cpus import take_cpus
from criproxy.alloc.memory import MemoryWish, place_memory, return_memory
from criproxy.alloc.resize import resize_cpus
from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, interned
from criproxy.model.entries import Entries, with_entries, without
from criproxy.model.grant import NO_CPUS, Grant, Layout
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.policy.entry import Entry
from criproxy.policy.options import Options

NEAR = MemoryWish(usual=frozenset())
"""The memory of the NUMA nodes of its CPUs."""


class StaticPolicy:
    """Exclusive whole CPUs, and one shared pool that is never empty."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Layout:
        """Own CPUs and, where safe, the memory of their NUMA nodes; or the shared pool and all memory."""
        node = self.options.within(node)
        count, own = exclusive_count(container), _own(node, container)
        if not count:
            shared = interned(node.shared_cpus | own)
            grants = with_entries(node.grants, {container.key: Grant(shared, _shared_mems(node, container))})
            reason = f"{container.title} shares CPUs {format_cpuset(shared)}: {_why_shared(container)}"
            return Layout(_reshare(node, grants, container.key), (reason,))
        cpus = self._take(node, container, own, count)
        grants = with_entries(node.grants, {container.key: Grant(cpus, NO_CPUS, exclusive=cpus)})
        near = node.topology.nodes_of(cpus)
        layout = place_memory(node, _reshare(node, grants, container.key), container, near, NEAR)
        reason = f"{container.title} owns CPUs {format_cpuset(cpus)}: its pod is Guaranteed and it asks for {count}"
        return Layout(layout.grants, (reason, *layout.reasons))

    def release(self, node: Node, key: str) -> Layout:
        """The layout without *key*; what it owned goes back to the shared pool."""
        node = self.options.within(node)
        return return_memory(node, _reshare(node, without(node.grants, (key,)), key))

    def _take(self, node: Node, container: Container, own: CpuSet, count: int) -> CpuSet:
        everything = node.shared_cpus | own
        free = everything - self.options.reserved(node.topology) - (node.watched_cpus - own)
        # Without a reserved CPU that pods can use, one CPU stays behind for those that share.
        available = len(free) - (free == everything)
        if count > available:
            raise NotEnough(_refusal(node, container, count, free, max(available, 0)))
        if own & free:
            return resize_cpus(node.topology, own & free, free, count)
        return take_cpus(node.topology, free, count)


def exclusive_count(container: Container) -> int:
    """How many CPUs the container shall own; 0 if it shares."""
    whole, rest = divmod(container.cpu_milli, 1000)
    return whole if container.qos is QosClass.GUARANTEED and not rest else 0


def _own(node: Node, container: Container) -> CpuSet:
    """What the container owns already: it is placed anew then."""
    grant = node.grants.get(container.key)
    return grant.exclusive if grant else NO_CPUS


def _shared_mems(node: Node, container: Container) -> CpuSet:
    """All memory, except where nobody has set any so far."""
    grant = node.grants.get(container.key)
    return grant.mems if grant and not grant.mems else node.topology.mems


def _why_shared(container: Container) -> str:
    if container.qos is not QosClass.GUARANTEED:
        return f"its pod is {container.qos.value}"
    return f"it asks for {container.cpu_milli}m, which is no whole number of CPUs"


def _reshare(node: Node, grants: Entries[Grant], key: str) -> Entries[Grant]:
    """Give everybody without own CPUs all that nobody owns; grants that stay as they are stay the same objects.

    *grants* are those of *node* but for *key*, and are changed in place.
    """
    owned = NO_CPUS.union(*(grant.exclusive for grant in grants.values() if grant.exclusive))
    pool = interned(node.topology.cpus - owned)
    # Sharers have very few different sets: to compare and to make each once keeps 500 containers cheap.
    moved: dict[tuple[CpuSet, CpuSet, CpuSet], Grant] = {}
    changed = [key]
    for other, grant in grants.items():
        if grant.exclusive or grant.cpus is pool or grant.cpus == pool:
            continue
        place = grant.cpus, grant.mems, grant.home_mems
        if place not in moved:
            moved[place] = Grant(pool, grant.mems, home_mems=grant.home_mems)
        grants[other] = moved[place]
        changed.append(other)
    return grants.derived_from(node.grants, changed)


def _refusal(node: Node, container: Container, count: int, free: CpuSet, available: int) -> str:
    by_node = [(numa.id, format_cpuset(numa.cpus & free)) for numa in node.topology.nodes if numa.cpus & free]
    where = ", ".join(f"{cpus} on NUMA node {numa}" for numa, cpus in by_node) or "none on any NUMA node"
    held = " (one of them stays with the containers that share)" if available < len(free) else ""
    held += ", its own included" if _own(node, container) else ""
    if node.watched_cpus:
        held += f"; on CPUs {format_cpuset(node.watched_cpus)} run containers that others than criproxy started"
    return (
        f"container {container.title} asks for {count} exclusive CPUs, but {available} are available: "
        f"free are {where}{held}"
    )


ENTRY = Entry(Options, StaticPolicy)
