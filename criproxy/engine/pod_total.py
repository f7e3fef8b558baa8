"""The CPU total of a pod: what its sandbox was told, and what it means for the containers of the pod."""

from dataclasses import replace

from criproxy.engine.decision import Decision
from criproxy.model.entries import with_entries
from criproxy.model.node import Node
from criproxy.policy.api import Policy


def pod_resized(node: Node, key: str, cpu_total_milli: int, policy: Policy) -> Decision:
    """Know the new total of the pod *key*; the newest one counts."""
    pod = node.pods.get(key)
    if pod is None or pod.cpu_total_milli == cpu_total_milli:
        return Decision(node)
    return Decision(node.replace(pods=with_entries(node.pods, {key: replace(pod, cpu_total_milli=cpu_total_milli)})))
