"""What happens to a pod, and to the containers that share its CPUs: it is created, gets another total, or ends."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from criproxy.errors import Refused
from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import NO_CPUS, Reason
from criproxy.model.node import Explained, Node
from criproxy.model.workload import Container, Pod
from criproxy.placement.alloc.cpus import take_cpus
from criproxy.placement.decision import Decision, updates_between
from criproxy.placement.events import PodCreated, PodNotReady, PodResized
from criproxy.placement.options.policy_options import exclusive_of
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.kept import at_most_total, inherited, without_ended
from criproxy.placement.rules.pipeline import place
from criproxy.placement.rules.pod_sharing import siblings_of
from criproxy.placement.rules.pod_total import counted, overlap, requested_milli, shared_group


def of_pod(node: Node, event: PodCreated | PodResized | PodNotReady, policy: Policy) -> Decision:
    """Apply an event about a pod in which no container ends."""
    match event:
        case PodCreated(pod, inherits):
            known = node.replace(pods={**node.pods, pod.key: pod})
            known = without_ended(known, policy) if pod.key in node.pods and node.kept else known  # another uid
            after = inherited(known, pod, inherits, policy)
            return Decision(after, updates_between(node, after))
        case PodResized(key, cpu_total_milli):
            return _resized(node, key, cpu_total_milli, policy)
        case PodNotReady(key):
            return of_pod_ended(Decision(stopped(node, key)), node, policy)


def stopped(node: Node, key: str) -> Node:
    """Return the node with the sandbox *key* stopped: no more containers start in it."""
    pod = node.pods.get(key)
    if pod is None or pod.stopped:
        return node
    return node.replace(pods={**node.pods, key: replace(pod, stopped=True)})


def of_pod_ended(decision: Decision, before: Node, policy: Policy) -> Decision:
    """Return the *decision* about the end of a sandbox, without kept CPUs of pods that have no other sandbox."""
    return decision.with_node(without_ended(decision.node, policy), before)


def _resized(node: Node, key: str, cpu_total_milli: int, policy: Policy) -> Decision:
    """Apply the new total of the pod *key*; containers that share its CPUs get as many as it now allows."""
    pod = node.pods.get(key)
    if pod is None or pod.cpu_total_milli == cpu_total_milli:
        return Decision(node)
    pod = replace(pod, cpu_total_milli=cpu_total_milli)
    known = counted(node, key)
    after, reasons = recounted(known.replace(pods={**node.pods, key: pod}), key, policy)
    if pod.uid in after.kept:
        after = at_most_total(after, pod, after.kept[pod.uid], policy)
    return Decision(after, updates_between(node, after), reasons)


def recounted(node: Node, key: str, policy: Policy, *, arrives: bool = False, must: bool = False) -> Explained:
    """Return the `counted` node, with the container that counts for its siblings placed again if its count changes.

    If the policy has no room for a larger count, the container keeps the former one.

    Raises:
        Refused: there is no room, and it *must* have it.
    """
    known, reasons = counted(node, key, arrives=arrives), tuple[Reason, ...]()
    if known is node:
        return node, ()
    for each in known.containers_of(key):
        before = node.containers[each.key].cpu_milli
        if each.key not in known.grants or not each.of_pod or each.cpu_milli == before:
            continue
        try:
            placed = place(known, each, policy)
        except Refused:
            if must:
                raise
            as_before = replace(each, cpu_milli=min(each.cpu_milli, before))
            known = known.replace(containers={**known.containers, each.key: as_before})
            continue  # the counts of others may have changed, too
        known = placed.node
        reasons += placed.reasons
    return known, reasons


def apart_again(node: Node, gone: Container, policy: Policy) -> Node:
    """Return the node after *gone* ended or failed: its siblings may have had more CPUs because of it."""
    if gone.pod not in node.pods_with_exclusive or (pod := node.pods.get(gone.pod)) is None:
        return node
    siblings = siblings_of(node, gone)
    if exclusive_of(policy) is None:
        return _cut(node, pod, siblings)
    group = shared_group(pod, siblings)
    for each in siblings:
        has_own = group is None or each not in group.members
        if has_own and not each.stays and len(node.grants[each.key].exclusive) * 1000 > each.cpu_milli:
            with suppress(Refused):  # it stays where it is
                node = place(node, each, policy).node
    return node


def _exclusive_of_all(node: Node, group: Sequence[Container]) -> CpuSet:
    """Return the exclusive CPUs of all containers of *group*, which all have grants."""
    return NO_CPUS.union(*(node.grants[each.key].exclusive for each in group))


def _cut(node: Node, pod: Pod, siblings: Sequence[Container]) -> Node:
    """Return the node in which *siblings* share no more than they and their *pod* request; without the policy."""
    owners = [each for each in siblings if node.grants[each.key].exclusive]
    group = [each for each in owners if each.of_pod or any(overlap(node, [each, o]) for o in owners if o is not each)]
    if not group or any(each.stays for each in group):
        return node
    total, low = pod.cap_milli or max(each.cpu_milli for each in owners), requested_milli(owners)
    shared = _exclusive_of_all(node, group)
    own = _exclusive_of_all(node, owners) - shared
    room = max(total, low) // 1000 - len(own)
    if not 0 < room < len(shared):
        return node
    left = shared - take_cpus(node.topology, shared, room)
    old = {each.key: node.grants[each.key] for each in group}
    cut = {key: replace(grant, cpus=grant.cpus - left, exclusive=grant.exclusive - left) for key, grant in old.items()}
    if not all(grant.cpus for grant in cut.values()):
        return node
    return node.replace(grants={**node.grants, **cut})
