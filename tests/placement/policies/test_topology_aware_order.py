"""The order of pools is a total one, whatever the node, the container and the rules, and explain shows it."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import BadAnnotation
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container
from criproxy.placement.engine import placing
from criproxy.placement.events import ContainerCreating, Event
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from lab.properties.machines import machines
from lab.properties.wishes import annotated
from tests.explained import explanation_is_true
from tests.placement.lives import PODS, containers, events, live

lives = st.tuples(annotated(PODS), st.lists(events, max_size=12)).map(lambda parts: [*parts[0], *parts[1]])


@given(machines(), st.sampled_from(["nri", "crirm"]), lives, containers)
def test_total_order(topology: Topology, rules: str, life: Sequence[Event], newcomer: Container) -> None:
    """The first of the shown order is taken; the first criterion in which the next one differs is said to decide."""
    said = {"rules": rules, "annotations": {"allow": {"*": ["*"]}}, "colocateNamespaces": True}
    policy = TopologyAwarePolicy(TopologyAwareOptions.model_validate(said))
    node = Node(topology)
    for _, _, after in live(topology, policy, life):
        node = after
    event = ContainerCreating(newcomer)
    assert list(explanation_is_true(node, event, policy)) == []
    asked = placing(node, event, policy)
    try:
        candidates = policy.candidates(*asked) if asked else None
    except BadAnnotation:
        return
    fitting = [row for row in candidates.rows if not row.lacks] if candidates else []
    if candidates is None or len(fitting) < 2:
        return

    differing = [place for place, value in enumerate(fitting[0].values) if value != fitting[1].values[place]]
    assert candidates.decided_by == (candidates.measures[differing[0]] if differing else None)
    assert fitting[0].values == min(row.values for row in fitting)
