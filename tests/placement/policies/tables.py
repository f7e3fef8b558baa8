"""The candidates of a policy as a text that tests compare."""

from collections.abc import Mapping

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.placement.alloc.rank import Candidates
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerCreating, ContainerResized, PodCreated
from criproxy.placement.policies.api import Policy, candidates_of


def shown(
    node: Node, newcomer: Container, policy: Policy, annotations: Mapping[str, str] | None = None
) -> Candidates | None:
    """What *policy* would choose from for a newcomer whose pod has such annotations."""
    if newcomer.pod not in node.pods:
        pod = Pod(key=newcomer.pod, name="web", namespace=newcomer.namespace, annotations=annotations or {})
        node = step(node, PodCreated(pod), policy).node
    asked = placing(node, ContainerCreating(newcomer), policy)
    assert asked is not None
    return candidates_of(policy, *asked)


def shown_resize(node: Node, event: ContainerResized, policy: Policy) -> Candidates | None:
    """What *policy* would choose from at a resize."""
    asked = placing(node, event, policy)
    assert asked is not None
    return candidates_of(policy, *asked)


def text(candidates: Candidates | None) -> str:
    """The candidates in order, those without room with what they lack; the chosen one with a star, and what decided."""
    if candidates is None:
        return "nothing"
    rows = [
        f"{'*' if row.name == candidates.chosen else ''}{row.name}{f' -{row.lacks}' if row.lacks else ''}"
        for row in candidates.rows
    ]
    decided = candidates.decided_by
    return ", ".join(rows) + (f"; {decided.name}" if decided else "")
