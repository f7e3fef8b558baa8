"""Whether a container that does not exist would fit: the engine is asked on a node of its own, and nothing changes."""

from dataclasses import dataclass

from criproxy.errors import Refused
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.placement.answers.choice import Choice, weighed
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.policies.api import Policy


@dataclass(frozen=True, slots=True)
class Fit:
    """What would come of it."""

    before: Node
    """With the pod, without the container."""
    container: Container
    result: Decision | Refused
    choice: Choice | None
    """What was compared, and who would have to leave; None where the policy does not say."""


def fit(node: Node, policy: Policy, pod: Pod, container: Container) -> Fit:
    """Place *container* of *pod* on a copy of *node*. Slow where it does not fit, and what a policy raises, it raises.

    Args:
        node: as it is now.
        policy: asked as for a create.
        pod: with a key that no pod of *node* has.
        container: in it, as a create message describes it.
    """
    before = step(node, PodCreated(pod), policy).node
    event, result = ContainerCreating(container), _placed(before, container, policy)
    found = weighed(before, event, policy, refused=isinstance(result, Refused)) if not node.released else None
    return Fit(before, container, result, found[1] if found else None)


def _placed(before: Node, container: Container, policy: Policy) -> Decision | Refused:
    try:
        return step(before, ContainerCreating(container), policy)
    except Refused as refused:
        return refused
