"""The invariants of a node, as functions that tests, the simulator and ``status --check`` share.

Each yields one sentence for every violation.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.grant import NO_CPUS, CpuQuota
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState
from criproxy.placement.rules.kept import newest_sandbox, owned_by


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


NO_PODS: Mapping[str, CpuSet] = MappingProxyType({})


def violations(
    node: Node, reserved: CpuSet = NO_CPUS, *, grants_only: bool = False, later: Mapping[str, CpuSet] = NO_PODS
) -> list[str]:
    """Return all violations; *reserved* CPUs must not be exclusive, except those of *later*, by pod, which were before.

    With *grants_only*, check only grants: a policy may leave a container without one, and the engine then adds it.
    """
    checks = (check for check in CHECKS if not (grants_only and check is unplaced_keep_off))
    found = [text for check in checks for text in check(node)]
    for key, pod, cpus in owners_of(node, reserved):
        if taken := cpus - later.get(pod, NO_CPUS):
            found.append(f"{title_of(node, key)} has exclusive use of reserved {numbered('CPU', taken)}")
    return found


def one_owner(node: Node) -> Iterator[str]:
    """No CPU is exclusive to two containers."""
    owners: dict[int, str] = {}
    for key, grant in node.grants.items():
        for cpu in sorted(grant.exclusive):
            if cpu in owners and not _are_together(node, owners[cpu], key):
                yield f"CPU {cpu} is exclusive to both {title_of(node, owners[cpu])} and {title_of(node, key)}"
            owners[cpu] = key


def _are_together(node: Node, one: str, other: str) -> bool:
    """Whether two containers of one pod share the pod's exclusive CPUs, as with pod-level resources."""
    containers = node.containers.get(one), node.containers.get(other)
    pods = {container.pod if container else None for container in containers}
    return len(pods) == 1 and pods <= node.pods.keys() and node.grants[one].exclusive == node.grants[other].exclusive


def sharers_keep_off(node: Node) -> Iterator[str]:
    """No container may run on exclusive CPUs of another container."""
    for key, grant in node.grants.items():
        foreign = (grant.cpus & node.exclusive_cpus) - grant.exclusive
        if kept := foreign - node.owned_cpus:
            yield f"{title_of(node, key)} may run on {numbered('CPU', kept)}, kept for a pod"
        if owned := foreign & node.owned_cpus:
            yield f"{title_of(node, key)} may run on {numbered('CPU', owned)}, exclusive to another container"


def unplaced_keep_off(node: Node) -> Iterator[str]:
    """An unplaced container runs on no exclusive CPU of another container, except if criproxy must not move it."""
    for key in node.containers.keys() - node.grants.keys() if node.exclusive_cpus else ():
        if node.containers[key].state is ContainerState.EXITED or node.is_watched(key):
            continue
        foreign = node.applied[key].cpus & node.exclusive_cpus if key in node.applied else node.exclusive_cpus
        if foreign:
            title, cpus = title_of(node, key), numbered("CPU", foreign)
            yield f"{title} is not placed and may run on {cpus}, exclusive to another container"


def nobody_without_cpu(node: Node) -> Iterator[str]:
    """Every grant has a CPU."""
    for key, grant in node.grants.items():
        if not grant.cpus:
            yield f"{title_of(node, key)} has no CPU"


def shared_pool_left(node: Node) -> Iterator[str]:
    """There is a CPU for the next shared container."""
    if node.topology.cpus and not node.shared_cpus:
        yield "no CPU is left for containers that share"


def within_machine(node: Node) -> Iterator[str]:
    """Grants have only CPUs and memory that pods may use; exclusive CPUs are granted, or threads of granted cores."""
    for key, grant in node.grants.items():
        if not grant.cpus <= node.topology.cpus:
            beyond = numbered("CPU", grant.cpus - node.topology.cpus)
            yield f"{title_of(node, key)} has {beyond}, which pods may not use"
        if not grant.mems <= node.topology.mems:
            beyond = numbered("NUMA node", grant.mems - node.topology.mems)
            yield f"{title_of(node, key)} has {beyond}, which pods may not use"
        if idle := grant.exclusive - grant.cpus:
            cores = (node.topology.core_of[cpu].cpus for cpu in grant.cpus if cpu in node.topology.core_of)
            idle -= NO_CPUS.union(*cores)
        if idle:
            yield f"{title_of(node, key)} has exclusive {numbered('CPU', idle)}, on which it may not run"


def memory_is_usable(node: Node) -> Iterator[str]:
    """The nodes of a grant have normal memory for the kernel: movable-only nodes are never alone in a grant."""
    for key, grant in node.grants.items():
        if grant.mems not in (node.topology.mems, NO_CPUS) and not node.topology.can_hold(grant.mems):
            yield f"{title_of(node, key)} has only {numbered('NUMA node', grant.mems)}, without normal memory"


def memory_can_come_back(node: Node) -> Iterator[str]:
    """A container with additional memory nodes returns to fewer nodes, which have normal memory for the kernel."""
    for key, grant in node.grants.items():
        home = grant.home_mems
        if home and not (home < grant.mems and node.topology.can_hold(home)):
            has, back = numbered("NUMA node", grant.mems), format_cpuset(home)
            yield f"{title_of(node, key)} has {has} and should return to {back}"


def grants_have_containers(node: Node) -> Iterator[str]:
    """No container that is gone or has exited has a grant."""
    for key in node.grants:
        if key not in node.containers:
            yield f"unknown container {key} has a place"
        elif node.containers[key].state is ContainerState.EXITED:
            yield f"{title_of(node, key)} has a place, but has exited"


def kept_for_living_pods(node: Node) -> Iterator[str]:
    """CPUs are kept only for pods that have not ended, exist, and are not exclusive to others."""
    living = {pod.uid for pod in node.pods.values() if not pod.stopped}
    for uid, kept in node.kept.items():
        if uid not in living:
            yield f"the pod {uid}, which has ended, keeps {numbered('CPU', kept.cpus)}"
        if beyond := kept.cpus - node.topology.cpus:
            yield f"the pod {uid} keeps {numbered('CPU', beyond)}, which pods may not use"
        others = [each.cpus for other, each in node.kept.items() if other != uid]
        if twice := kept.cpus & ((node.owned_cpus - owned_by(node, uid)).union(*others)):
            yield f"the pod {uid} keeps {numbered('CPU', twice)}, which another pod or container has"


def within_totals(node: Node) -> Iterator[str]:
    """A pod keeps no CPUs beyond its total, and containers that share CPUs of their pod have no more than that."""
    for uid, kept in node.kept.items():
        newest, owned = newest_sandbox(node, uid), owned_by(node, uid)
        total = newest.cap_milli if newest else None
        if total is not None and len(kept.cpus | owned) * 1000 > max(total, len(owned) * 1000):
            cpus = kept.cpus | owned
            yield f"the pod {uid} has exclusive {numbered('CPU', cpus)}, and asks for {total}m in total"
    for key in node.pods_with_exclusive & node.pods.keys():
        pod, group = node.pods[key], [each for each in node.containers_of(key) if each.key in node.grants]
        own = [node.grants[each.key].exclusive & node.grants[each.key].cpus for each in group]
        cpus, low = NO_CPUS.union(*own), sum(each.cpu_request_milli.low for each in group)
        is_shared = len(cpus) < sum(map(len, own))  # other containers have their own requests, even beyond the total
        # A kubelet admits no container that requests more than its pod: then a resize of the pod is on its way.
        is_current = all(each.cpu_request_milli.low <= (pod.cap_milli or 0) for each in group)
        if is_shared and is_current and pod.cap_milli is not None and len(cpus) * 1000 > max(pod.cap_milli, low):
            yield f"the pod {pod.title} shares {numbered('CPU', cpus)}, and asks for {pod.cap_milli}m in total"


def lifted_own_all(node: Node) -> Iterator[str]:
    """A container without a CFS quota uses no CPU that another container may use, unless it has a class of CPUs."""
    for key, grant in node.grants.items():
        if grant.quota is CpuQuota.LIFTED and grant.shares and not grant.controls.class_of("cpu"):
            shared = numbered("CPU", grant.cpus - grant.exclusive)
            yield f"{title_of(node, key)} has no CFS quota and shares {shared}"


def released_are_free(node: Node) -> Iterator[str]:
    """After a release no CPU is exclusive; remaining grants are for all CPUs, and all other containers run on these."""
    for key, grant in node.grants.items() if node.released else ():
        if grant.exclusive or grant.cpus != node.topology.cpus:
            yield f"{title_of(node, key)} is still restricted to {numbered('CPU', grant.cpus)} after a release"
    for key in node.applied.keys() - node.grants.keys() if node.released else ():
        title, cpus = title_of(node, key), node.applied[key].cpus
        if not (cpus >= node.topology.cpus or node.is_watched(key)):
            only = numbered("CPU", cpus)
            yield f"{title} may run only on {only}: another program has restricted it since the release"


CHECKS: tuple[Callable[[Node], Iterator[str]], ...] = (
    one_owner,
    sharers_keep_off,
    unplaced_keep_off,
    nobody_without_cpu,
    shared_pool_left,
    within_machine,
    memory_is_usable,
    memory_can_come_back,
    grants_have_containers,
    kept_for_living_pods,
    within_totals,
    lifted_own_all,
    released_are_free,
)


def title_of(node: Node, key: str) -> str:
    """Return the name of the container *key*; the key itself if the node does not have it."""
    container = node.containers.get(key)
    return container.title if container else key
