"""What a configuration would do to the containers of a node: the engine is asked on a copy, and nothing changes."""

from dataclasses import dataclass, replace

from criproxy.errors import Refused
from criproxy.model.node import Node
from criproxy.model.workload import Container, Miss
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import PolicyChanged
from criproxy.placement.policies.api import Policy
from criproxy.placement.rules.complete import complete


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
            complete(policy).place(after, container)
        except Refused as error:
            found.append((container, str(error)))
    return tuple(found)
