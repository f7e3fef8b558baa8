"""How a container is placed under every policy, rule by rule.

Before the policy: its pod's exclusive CPUs, and the CPUs that are kept for its pod and for others. After it: CFS
quotas, preserved containers (both in `ask`), the siblings that share its CPUs, the total of its pod, its classes, and
what these say about its quota.
"""

from dataclasses import replace

from criproxy.errors import NotEnough, Refused
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import Fallback
from criproxy.placement.rules.ask import Placed, ask, shown
from criproxy.placement.rules.attributes.classes import classified
from criproxy.placement.rules.attributes.idle_burst import with_quota
from criproxy.placement.rules.kept import kept_text, place_with_kept, without_excess
from criproxy.placement.rules.pod_sharing import gathered, place_in_pod


def place(node: Node, container: Container, policy: Policy) -> Placed:
    """Return *node* with *container* placed; raise what *policy* raises."""
    return with_classes(node, _place(node, container, policy), container, policy)


def with_classes(node: Node, placed: Placed, container: Container, policy: Policy) -> Placed:
    """Return what was made of *node*, in which *container* was *placed*, with what classes set, and with its quota."""
    grants, reasons = classified(node, placed.node.grants, container, policy)
    after = placed.node if grants is placed.node.grants else placed.node.replace(grants=grants)
    after, more = with_quota(node, after, container, policy)
    return Placed(after, (*placed.reasons, *reasons, *more), placed.shown)


def _place(node: Node, container: Container, policy: Policy) -> Placed:
    pod = node.pods.get(container.pod)
    try:
        if pod is None:
            return ask(node, container, policy, shown(node))
        placed = place_in_pod(node, container, policy)
        if placed is None and pod.uid in node.kept and not isinstance(policy, Fallback):  # which gives no CPUs
            placed = place_with_kept(node, container, pod, policy)
        placed = gathered(placed or ask(node, container, policy, shown(node)), container, policy)
        after = without_excess(node, placed.node, pod, policy)
        return placed if after is placed.node else replace(placed, node=after)
    except NotEnough as error:
        if text := kept_text(node, pod.uid if pod else ""):
            raise NotEnough(f"{error}; {text}") from None
        raise


def shown_for(node: Node, container: Container, policy: Policy) -> Node | None:
    """Return the node as *policy* sees it when it places *container*; None if it does not choose the CPUs."""
    try:
        return place(node, container, policy).shown
    except Refused:
        pod = node.pods.get(container.pod)
        return shown(node, node.kept[pod.uid].cpus) if pod and pod.uid in node.kept else shown(node)
