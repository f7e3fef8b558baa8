"""What must be true of a node at every moment, as functions that tests, simulator and ``status --check`` share.

Each returns one sentence for every violation; no sentence means that all is well.
"""

from collections.abc import Callable, Iterator

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState


def violations(node: Node, reserved: CpuSet = NO_CPUS) -> list[str]:
    """All violations; *reserved* are CPUs that nobody may own."""
    found = [text for check in CHECKS for text in check(node)]
    return found + [
        f"{_title(node, key)} owns reserved CPUs {format_cpuset(grant.exclusive & reserved)}"
        for key, grant in node.grants.items()
        if grant.exclusive & reserved
    ]


def one_owner(node: Node) -> Iterator[str]:
    """No exclusive CPU has two owners."""
    owners: dict[int, str] = {}
    for key, grant in node.grants.items():
        for cpu in sorted(grant.exclusive):
            if cpu in owners:
                yield f"CPU {cpu} is owned by both {_title(node, owners[cpu])} and {_title(node, key)}"
            owners[cpu] = key


def sharers_keep_off(node: Node) -> Iterator[str]:
    """Nobody may run on a CPU that another owns."""
    for key, grant in node.grants.items():
        foreign = (grant.cpus & node.exclusive_cpus) - grant.exclusive
        if foreign:
            yield f"{_title(node, key)} may run on CPUs {format_cpuset(foreign)}, which another container owns"


def nobody_without_cpu(node: Node) -> Iterator[str]:
    """Every grant has a CPU."""
    for key, grant in node.grants.items():
        if not grant.cpus:
            yield f"{_title(node, key)} has no CPU"


def shared_pool_left(node: Node) -> Iterator[str]:
    """The next container that shares finds a CPU."""
    if node.topology.cpus and not node.shared_cpus:
        yield "no CPU is left for containers that share"


def within_machine(node: Node) -> Iterator[str]:
    """Grants name CPUs and memory that pods may use, and own only what they have."""
    for key, grant in node.grants.items():
        if not grant.cpus <= node.topology.cpus:
            beyond = format_cpuset(grant.cpus - node.topology.cpus)
            yield f"{_title(node, key)} has CPUs {beyond}, which pods may not use"
        if not grant.mems <= node.topology.mems:
            beyond = format_cpuset(grant.mems - node.topology.mems)
            yield f"{_title(node, key)} has NUMA nodes {beyond}, which pods may not use"
        if not grant.exclusive <= grant.cpus:
            beyond = format_cpuset(grant.exclusive - grant.cpus)
            yield f"{_title(node, key)} owns CPUs {beyond}, on which it may not run"


def grants_have_containers(node: Node) -> Iterator[str]:
    """Nothing is held for a container that is gone or has exited."""
    for key in node.grants:
        if key not in node.containers:
            yield f"a place is held for {key}, which is not known"
        elif node.containers[key].state is ContainerState.EXITED:
            yield f"a place is held for {_title(node, key)}, which has exited"


CHECKS: tuple[Callable[[Node], Iterator[str]], ...] = (
    one_owner,
    sharers_keep_off,
    nobody_without_cpu,
    shared_pool_left,
    within_machine,
    grants_have_containers,
)


def _title(node: Node, key: str) -> str:
    container = node.containers.get(key)
    return container.title if container else key
