"""Kept CPUs: which CPUs stay with a pod when its containers end, and when they are released.

A container that crashes must get its CPUs again: otherwise one that waits for room would take them meanwhile. Together
with the exclusive CPUs of its running containers, a pod never keeps more than its total.
"""

from collections.abc import Iterable, Mapping

from criproxy.model.cpuset import CpuSet, numbered
from criproxy.model.grant import NO_CPUS, Kept
from criproxy.model.node import Node
from criproxy.model.text.amounts import are
from criproxy.model.workload import Container, ContainerState, Pod
from criproxy.placement.alloc.cpus import take_cpus
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.exclusive import exclusive_of
from criproxy.placement.rules.transitions import has_later_attempt

NOTHING = Kept()
_NAMED = 3
"""The number of pods that a sentence names."""


def keeps(policy: Policy) -> bool:
    """Whether *policy* keeps the CPUs of ended containers for their pod."""
    options = exclusive_of(policy)
    return options is not None and options.keep == "pod"


def owned_by(node: Node, uid: str) -> CpuSet:
    """Return the exclusive CPUs of the containers of the pod *uid*, including those in an older sandbox."""
    return NO_CPUS.union(*(node.grants[key].exclusive for key in _holders(node, uid)))


def newest_sandbox(node: Node, uid: str) -> Pod | None:
    """Return the newest sandbox of the pod *uid* that is not stopped."""
    living = (pod for pod in node.pods.values() if pod.uid == uid and not pod.stopped)
    return max(living, key=lambda pod: pod.attempt, default=None)


def pod_title(node: Node, uid: str) -> str:
    """Return NAMESPACE/POD of the pod *uid*."""
    return next((pod.title for pod in node.pods.values() if pod.uid == uid), uid)


def kept_text(node: Node, uid: str) -> str:
    """Return a sentence about CPUs kept for pods other than *uid*, for refusals; empty if there are none."""
    others = [(other, kept.cpus - node.owned_cpus) for other, kept in sorted(node.kept.items()) if other != uid]
    texts = [
        f"{numbered('CPU', cpus)} {are(len(cpus))} kept for {pod_title(node, other)}" for other, cpus in others if cpus
    ]
    more = f" and more for {len(texts) - _NAMED} other pods" if len(texts) > _NAMED else ""
    return f"{', '.join(texts[:_NAMED])}{more}, whose containers have ended and may come back" if texts else ""


def by_name(node: Node, uid: str) -> dict[str, CpuSet]:
    """Return the exclusive CPUs of the pod *uid* by container name, for its next sandbox."""
    alive = {node.containers[key].name: node.grants[key].exclusive for key in _holders(node, uid)}
    return {**node.kept.get(uid, NOTHING).by_name, **alive}


def _holders(node: Node, uid: str) -> list[str]:
    sandboxes = {key for key, pod in node.pods.items() if pod.uid == uid} & node.pods_with_exclusive
    containers = (each for sandbox in sandboxes for each in node.containers_of(sandbox))
    return [each.key for each in containers if each.key in node.grants and node.grants[each.key].exclusive]


def with_leaver(node: Node, container: Container, had: CpuSet, policy: Policy) -> Node:
    """Return the node that keeps the exclusive CPUs that *container*, which has ended, *had*.

    The CPUs of a container that the runtime never created, that has a later attempt, or of an ended pod are not kept.
    """
    pod = node.pods.get(container.pod)
    if not had or node.released or not container.has_id or not keeps(policy):
        return node
    if pod is None or pod.stopped or not pod.uid or has_later_attempt(node, container):
        return node
    kept = node.kept.get(pod.uid, NOTHING).with_last(container.name, had)
    others = (key for key in _holders(node, pod.uid) if key != container.key)
    owned = NO_CPUS.union(*(node.grants[key].exclusive for key in others))
    return with_kept_of(node, pod.uid, within_total(kept, owned, pod, node))


def within_total(kept: Kept, owned: CpuSet, pod: Pod, node: Node) -> Kept:
    """Return what *pod*, whose containers have *owned*, may keep of *kept*; the oldest kept CPUs are released first.

    Requests of its running containers beyond their exclusive CPUs count towards the total, too. Without a known total,
    it may keep all of it.
    """
    if pod.cap_milli is None:
        return kept
    room, found = (pod.cap_milli - _shared_milli(node, pod)) // 1000 - len(owned), owned
    names: dict[str, CpuSet] = {}
    for name in reversed(list(kept.by_name)):
        cpus = kept.by_name[name]
        more = cpus - found
        stay = more if len(more) <= room else take_cpus(node.topology, more, max(room, 0))
        names[name] = (cpus & found) | stay
        room, found = room - len(stay), found | stay
    return Kept({name: names[name] for name in kept.by_name if names[name]})


def _shared_milli(node: Node, pod: Pod) -> int:
    """Return the CPU that running containers of *pod* request beyond their exclusive CPUs, in milli.

    Containers without a size of their own do not count, nor one that requests the total: it may be among them.
    """
    alive = (each for each in node.containers_of(pod.key) if each.state is not ContainerState.EXITED)
    sized = (each for each in alive if each.key in node.grants and not each.of_pod)
    placed = [(each.cpu_request_milli.low, node.grants[each.key]) for each in sized]
    return sum(max(low - 1000 * len(grant.exclusive), 0) for low, grant in placed if low < (pod.cap_milli or 0))


def with_kept_of(node: Node, uid: str, kept: Kept) -> Node:
    """Return the node with *kept* for the pod *uid*; no container moves."""
    if kept == node.kept.get(uid, NOTHING) and list(kept.by_name) == list(node.kept.get(uid, NOTHING).by_name):
        return node
    rest: dict[str, Kept] = {other: cpus for other, cpus in node.kept.items() if other != uid}
    return node.replace(kept={**rest, uid: kept} if kept.by_name else rest)


def of_living(node: Node) -> Mapping[str, Kept]:
    """Return the kept CPUs of pods that have a sandbox which has not ended."""
    living = {pod.uid for pod in node.pods.values() if not pod.stopped}
    return node.kept if node.kept.keys() <= living else {u: kept for u, kept in node.kept.items() if u in living}


def unused(node: Node, cpus: CpuSet, places: Iterable[CpuSet]) -> CpuSet:
    """Return those of *cpus* that are neither exclusive nor watched, and not in any of *places*."""
    return (cpus & node.topology.cpus) - node.exclusive_cpus - node.watched_cpus - NO_CPUS.union(*set(places))
