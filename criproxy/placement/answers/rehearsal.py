"""What would come of a new container or of another configuration: the engine is asked on a copy, nothing changes."""

from dataclasses import dataclass, replace

from criproxy.errors import BadAnnotation, Refused
from criproxy.model.node import Node
from criproxy.model.workload import Container, Miss, Pod
from criproxy.placement.answers.choice import Choice, weighed
from criproxy.placement.decision import Decision
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerCreating, PodCreated, PolicyChanged
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.pipeline import place


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What would come of it."""

    before: Node
    decision: Decision
    refused: tuple[tuple[Container, str], ...]
    """Containers for which the policy would have no place, and its sentence: with ``apply: all`` they would share CPUs
    at once, with ``apply: new`` they would be refused when they are created again."""


def rehearse(node: Node, policy: Policy, event: PolicyChanged) -> Rehearsal:
    """Apply *event* with *policy* to a copy of *node*. Slow with many containers; what a policy raises, it raises."""
    decision = step(node, event, policy)
    all_placed = decision.node if event.apply_all else step(node, replace(event, apply_all=True), policy).node
    return Rehearsal(node, decision, _refused(node, all_placed, policy))


def _refused(before: Node, after: Node, policy: Policy) -> tuple[tuple[Container, str], ...]:
    """Return the containers that share in *after* only because the *policy* has no place for them."""
    found = list[tuple[Container, str]]()
    for key, container in after.containers.items():
        if container.missed is None or container.missed.why is not Miss.UNFIT or key not in before.containers:
            continue
        try:
            place(after, container, policy)
        except Refused as error:
            found.append((container, str(error)))
    return tuple(found)


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
    before, event = step(node, PodCreated(pod), policy).node, ContainerCreating(container)
    try:
        result: Decision | Refused = step(before, event, policy)
    except Refused as refused:
        result = refused
    compared = not node.released and not isinstance(result, BadAnnotation)  # that nobody's leaving makes good
    asked = placing(before, event, policy) if compared else None
    found = weighed(asked, event, policy, refused=isinstance(result, Refused))
    return Fit(before, container, result, found[1] if found else None)
