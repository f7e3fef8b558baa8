"""Pod-level resources: containers without a size of their own share what the others leave of their pod's total.

One of them counts all of that rest, the others nothing, so that the containers of a pod never count more than its
total. `pod_sharing` gives them the exclusive CPUs of their pod.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from criproxy.model.node import Node
from criproxy.model.resources import MIN_REQUEST_MILLI
from criproxy.model.workload import Container, ContainerState, Pod, QosClass


@dataclass(frozen=True, slots=True)
class Group:
    """The containers of a pod that share its CPUs."""

    members: Sequence[Container]
    cpu_milli: int
    """What they share: the pod's total without the whole CPUs of other containers."""


def with_total(node: Node, key: str, cpu_total_milli: int) -> Node:
    """Return the node in which the pod *key* has another total; 0: the same."""
    pod = node.pods.get(key)
    if pod is None or cpu_total_milli in (0, pod.cpu_total_milli):
        return node
    return node.replace(pods={**node.pods, key: replace(pod, cpu_total_milli=cpu_total_milli)})


def counted(node: Node, key: str, *, arrives: bool = False) -> Node:
    """Return the node in which the containers of the pod *key* count no more than its total.

    If a container *arrives* (its create has the total), or if exclusive CPUs are shared, those that request exactly the
    total have no size of their own, unless all of them together fit into it.
    """
    pod = node.pods.get(key)
    if pod is None or (pod.cap_milli is None and pod.qos is not QosClass.GUARANTEED):  # as `_total`
        return node
    alive = [each for each in node.containers_of(key) if each.state is not ContainerState.EXITED]
    arrives = arrives or overlap(node, alive)
    bare = [each for each in alive if each.of_pod or (arrives and _is_bare(pod, each, alive))]
    total = _total(pod, bare) if bare else None
    if total is None or any(each.desired and each.desired.told for each in bare):
        return node
    names = {each.key for each in bare}
    rest = max(total - requested_milli(each for each in alive if each.key not in names), MIN_REQUEST_MILLI)
    first = max(bare, key=lambda each: each.cpu_milli).key
    amounts = {each.key: rest if each.key == first else MIN_REQUEST_MILLI for each in bare}
    changed = [each for each in bare if not each.of_pod or each.cpu_milli != amounts[each.key]]
    news = {each.key: replace(each, of_pod=True, cpu_milli=amounts[each.key]) for each in changed}
    return node.replace(containers={**node.containers, **news}) if news else node


def _is_bare(pod: Pod, container: Container, alive: Sequence[Container]) -> bool:
    """Whether *container*, which comes with the total of its *pod*, has no size of its own, like others of *alive*.

    Other attempts of *container* show nothing about its size.
    """
    if pod.cap_milli is None or container.cpu_milli != pod.cap_milli:
        return False
    others = [each for each in alive if each.name != container.name]
    limits = {each.asked_quota for each in others if each.of_pod and each.asked_quota}
    return container.asked_quota in limits or requested_milli([*others, container]) > pod.cap_milli


def requested_milli(containers: Iterable[Container]) -> int:
    """Return the least that *containers* request together."""
    return sum(each.cpu_request_milli.low for each in containers)


def _total(pod: Pod, bare: Iterable[Container]) -> int | None:
    """Return the total of *pod*; if it is unknown, it is the limit of containers without a size in a Guaranteed pod."""
    if pod.cap_milli is not None or pod.qos is not QosClass.GUARANTEED:
        return pod.cap_milli
    return max((each.cpu_limit_milli or 0 for each in bare), default=0) or None


def group_of(node: Node, container: Container) -> Group | None:
    """Return the containers with which *container* shares CPUs of its pod, and which of these have not exited.

    None if it has its own request: if it requests whole CPUs or nothing, or if no container is without a size.
    """
    pod = node.pods.get(container.pod)
    beside = [each for each in node.containers_of(container.pod) if each.key != container.key]
    alive = [each for each in beside if each.state is not ContainerState.EXITED]
    found = shared_group(pod, [*alive, container]) if pod else None
    return found if found and container in found.members else None


def shared_group(pod: Pod, alive: Sequence[Container]) -> Group | None:
    """Return those of the containers *alive* of a pod that share its CPUs; None if none is without a size."""
    bare = [each for each in alive if each.of_pod]
    total = _total(pod, bare)
    own = [each for each in alive if not each.of_pod and each.cpu_request_milli.low]
    if not bare or total is None or total - requested_milli(own) <= MIN_REQUEST_MILLI:
        return None
    whole = [each for each in own if each.cpu_milli >= 1000 and not each.cpu_milli % 1000]
    return Group([*bare, *(each for each in own if each not in whole)], total - requested_milli(whole))


def asks_milli(node: Node, container: Container) -> int:
    """Return the CPU that *container* requests, alone or together with those with which it shares, in milli."""
    group = group_of(node, container)
    return group.cpu_milli if group else container.cpu_milli


def total_shared_by(node: Node, container: Container) -> int | None:
    """Return the CPU that *container* shares with others of its pod, in milli; None if it has its own request."""
    pod, grant = node.pods.get(container.pod), node.grants.get(container.key)
    if pod is None or grant is None or not grant.exclusive:
        return None
    siblings = node.containers_of(container.pod)
    placed = [each for each in siblings if each.key in node.grants]
    if sum(1 for each in placed if node.grants[each.key].exclusive & grant.exclusive) < 2:
        return None
    if group := shared_group(pod, [each for each in siblings if each.state is not ContainerState.EXITED]):
        return group.cpu_milli
    return pod.cap_milli or max(each.cpu_milli for each in placed)


def overlap(node: Node, group: Sequence[Container]) -> bool:
    """Whether containers of *group* share exclusive CPUs."""
    own = [node.grants[each.key].exclusive for each in group if each.key in node.grants]
    return len(frozenset().union(*own)) < sum(map(len, own))
