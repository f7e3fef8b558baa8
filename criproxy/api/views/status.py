"""The state of the node as JSON values: the answer of `criproxy status`. docs/status.md documents the keys.

Pure functions of a `Situation`, so that a daemon and a command that only has the database give the same answer. Sets
are in kernel notation, amounts have their unit in the key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from criproxy.api.views import status_check
from criproxy.api.views.shortfalls import refusals
from criproxy.api.views.situation import Situation, argument, identity, in_order
from criproxy.api.views.status_check import Found, all_notices, is_in_place
from criproxy.model.attributes import granted, shown
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import CpuQuota, Kept
from criproxy.model.node import Node
from criproxy.model.resources import Interval
from criproxy.model.text.notices import Values
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.rules.kept import pod_title
from criproxy.placement.rules.pod_total import total_shared_by

MAX_CONTAINERS = 5_000
"""The number of rows in one answer; it contains how many more there are."""


def collect(situation: Situation, arguments: Mapping[str, Any]) -> Values:
    """Return the answer of `status`: arguments ``namespace``, ``pod``, ``exclusive`` and ``check``.

    Raises:
        UsageError: an argument has the wrong type.
    """
    check, exclusive = argument(arguments, "check", False), argument(arguments, "exclusive", False)
    namespace, pod = argument(arguments, "namespace", ""), argument(arguments, "pod", "")
    found = status_check.find(situation) if check else None
    values = {**situation.front, **summary(situation, found), **(found.to_json() if found else {})}
    listed = list(rows(situation, namespace, pod, exclusive=exclusive))
    return {**values, "omitted": len(listed[MAX_CONTAINERS:]), "containers": listed[:MAX_CONTAINERS]}


def rows(situation: Situation, namespace: str = "", pod: str = "", *, exclusive: bool = False) -> Iterator[Values]:
    """Yield the containers, sorted by namespace, pod and name; only those of *namespace* and *pod*, if given."""
    grants = situation.node.grants
    for container in in_order(situation.node.containers.values()):
        is_there = namespace in ("", container.namespace) and pod in ("", container.pod_name)
        if is_there and (not exclusive or (container.key in grants and grants[container.key].exclusive)):
            yield row(situation, container)


def row(situation: Situation, container: Container) -> Values:
    """Return one container: identity, requests, desired and applied state; its sets are empty without a grant."""
    key, node = container.key, situation.node
    grant, applied, trouble = node.grants.get(key), node.applied.get(key), situation.troubles.get(key)
    return {
        **identity(container),
        "reservation": container.reservation,
        "attempt": container.attempt,
        "state": container.state.value,
        "starting": key in situation.starting,
        "qos": container.qos.value,
        "cpu_request_milli": _interval(container.cpu_request_milli),  # CRI does not contain exact requests
        "cpu_limit_milli": container.cpu_limit_milli,
        "memory_request_bytes": _interval(container.memory_request_bytes),
        "memory_limit_bytes": container.memory_limit_bytes,
        "pod_cpu_milli": total_shared_by(node, container),
        "placed": grant is not None,
        **shown("", grant and granted(grant)),
        "exclusive_cpus": format_cpuset(grant.exclusive) if grant else "",
        "pool": grant.pool if grant else "",
        "cpu_quota": (grant.quota if grant else CpuQuota.LEFT).value,
        **shown("applied_", applied),
        "in_place": is_in_place(container, grant, applied),
        "error": trouble.error if trouble else "",
        "failures": trouble.failures if trouble else 0,
    }


def summary(situation: Situation, found: Found | None = None) -> Values:
    """Return the summary of the node: CPUs, NUMA nodes, counts, and notices, those in *found* if they are known."""
    notices = found.notices if found else all_notices(situation)
    node, topology = situation.node, situation.node.topology
    free = situation.free
    return {
        "policy": situation.policy,
        "notices": [notice.to_json() for notice in notices],
        "refusals": [refusal.to_json() for refusal in (*refusals(node, situation.resizes), *situation.refusals)],
        "refusals_omitted": situation.refusals_omitted,
        "cpus": {
            "allowed": format_cpuset(topology.cpus),
            "exclusive": format_cpuset(node.exclusive_cpus),
            "shared": format_cpuset(node.shared_cpus),
            "free": None if free is None else format_cpuset(free),
            "reserved": format_cpuset(situation.reserved & topology.cpus) if situation.knows_reserved else None,
            "isolated": format_cpuset(topology.isolated_cpus & topology.cpus),
            "watched": format_cpuset(node.watched_cpus),
            "offline": format_cpuset(topology.offline_cpus),
        },
        "cpu_counts": _counts(situation, free),
        "shared_by_all": {grant.cpus for grant in node.grants.values() if not grant.exclusive} == {node.shared_cpus},
        "kept": [_kept(node, uid, kept) for uid, kept in sorted(node.kept.items()) if kept.cpus - node.owned_cpus],
        "memory_nodes": format_cpuset(topology.mems),
        "numa_nodes": [
            {
                "id": numa.id,
                "cpus": format_cpuset(numa.cpus & topology.cpus),
                "exclusive_cpus": format_cpuset(numa.cpus & node.exclusive_cpus),
                "shared_cpus": format_cpuset(numa.cpus & node.shared_cpus),
                "free_cpus": None if free is None else format_cpuset(numa.cpus & free),
                "free": None if free is None else len(numa.cpus & free),
                "memory_bytes": numa.memory_bytes,
            }
            for numa in topology.nodes
        ],
        "totals": totals(node),
    }


def _counts(situation: Situation, free: CpuSet | None) -> Values:
    """How many CPUs are exclusive, how many could be at the most, and how many of these are *free*; None: unknown."""
    node = situation.node
    if free is None:
        return {"exclusive": len(node.exclusive_cpus), "capacity": None, "free": None}
    capacity = replace(situation, node=Node(node.topology)).can_become_exclusive.cpus | node.exclusive_cpus
    count = situation.can_become_exclusive.count
    return {"exclusive": len(node.exclusive_cpus), "capacity": len(capacity), "free": count}


def _kept(node: Node, uid: str, kept: Kept) -> Values:
    """Return the kept CPUs of a pod, except those that its containers have again."""
    names = sorted(name for name, cpus in kept.by_name.items() if cpus - node.owned_cpus)
    cpus = format_cpuset(kept.cpus - node.owned_cpus)
    return {"pod": pod_title(node, uid), "uid": uid, "cpus": cpus, "containers": names}


def totals(node: Node) -> Values:
    """Return how many pods and containers there are, and how many of them are not as they should be."""
    alive = [c for c in node.containers.values() if c.state is not ContainerState.EXITED]
    owners = sum(1 for grant in node.grants.values() if grant.exclusive)
    return {
        "pods": sum(not pod.stopped for pod in node.pods.values()),
        "containers": len(node.containers),
        "exited": len(node.containers) - len(alive),
        "exclusive": owners,
        "shared": len(node.grants) - owners,
        "unplaced": sum(1 for c in alive if c.key not in node.grants),
        "unknown": sum(1 for c in alive if c.state is ContainerState.UNKNOWN),
        "not_in_place": sum(1 for c in alive if not is_in_place(c, node.grants.get(c.key), node.applied.get(c.key))),
    }


def _interval(amount: Interval | None) -> list[int] | None:
    return [amount.low, amount.high] if amount else None
