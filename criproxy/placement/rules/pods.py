"""Events about a pod: it is created, gets another total, or ends."""

from dataclasses import replace

from criproxy.model.entries import with_entries
from criproxy.model.node import Node
from criproxy.placement.decision import Decision
from criproxy.placement.events import PodCreated, PodNotReady, PodResized
from criproxy.placement.rules.keeping import Keeping
from criproxy.placement.rules.kept import owned_by, with_kept_of, within_total
from criproxy.placement.rules.pod_total import counted, recounted
from criproxy.placement.updates import updates_between


def of_pod(node: Node, event: PodCreated | PodResized | PodNotReady, policy: Keeping) -> Decision:
    """Apply an event about a pod in which no container ends."""
    match event:
        case PodCreated(pod, inherits):
            known = node.replace(pods=with_entries(node.pods, {pod.key: pod}))
            known = policy.ended(known) if pod.key in node.pods and node.kept else known  # its uid may have changed
            after = policy.inherited(known, pod, inherits)
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
    return node.replace(pods=with_entries(node.pods, {key: replace(pod, stopped=True)}))


def of_pod_ended(decision: Decision, before: Node, policy: Keeping) -> Decision:
    """Return the *decision* about the end of a sandbox, without kept CPUs of pods that have no other sandbox."""
    after = policy.ended(decision.node)
    if after is decision.node:
        return decision
    return replace(decision, node=after, updates=updates_between(before, after))


def _resized(node: Node, key: str, cpu_total_milli: int, policy: Keeping) -> Decision:
    """Apply the new total of the pod *key*; containers that share its CPUs get as many as it now allows."""
    pod = node.pods.get(key)
    if pod is None or pod.cpu_total_milli == cpu_total_milli:
        return Decision(node)
    pod = replace(pod, cpu_total_milli=cpu_total_milli)
    known = counted(node, key)
    after, reasons = recounted(known.replace(pods=with_entries(node.pods, {key: pod})), key, policy)
    if pod.uid in after.kept:
        left = within_total(after.kept[pod.uid], owned_by(after, pod.uid), pod, after)
        after = policy.changed(after, with_kept_of(after, pod.uid, left).kept)
    return Decision(after, updates_between(node, after), reasons)
