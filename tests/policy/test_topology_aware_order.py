"""The order of pools is a total one, whatever the node, the container and the rules."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from criproxy.alloc.rank import decider, ranked
from criproxy.engine.events import Event
from criproxy.errors import BadAnnotation
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container
from criproxy.policy.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from tests.engine.lives import PODS, containers, events, live
from tests.properties.machines import machines
from tests.properties.wishes import annotated

lives = st.tuples(annotated(PODS), st.lists(events, max_size=12)).map(lambda parts: [*parts[0], *parts[1]])


@given(machines(), st.sampled_from(["nri", "crirm"]), lives, containers, st.randoms(use_true_random=False))
def test_total_order(
    topology: Topology, rules: str, life: Sequence[Event], newcomer: Container, random: Random
) -> None:
    """No two pools are alike, the order of the input does not matter, and neighbours differ in a named criterion."""
    said = {"rules": rules, "annotations": {"allow": {"*": ["*"]}}, "colocateNamespaces": True}
    policy = TopologyAwarePolicy(TopologyAwareOptions.model_validate(said))
    node = Node(topology)
    for _, _, after in live(topology, policy, life):
        node = after
    try:
        choosing, isolated = policy.choosing(node, newcomer)
    except BadAnnotation:
        return
    found = choosing.owning(isolated) if choosing.request.owned else choosing.sharing()

    assert len({candidate.key for candidate in found}) == len(found)
    assert len({tuple(criterion.name for criterion in candidate.criteria) for candidate in found}) <= 1
    shuffled = random.sample(found, len(found))
    assert ranked(shuffled) == ranked(found)
    for better, worse in pairwise(ranked(found)):
        decided = decider(better, worse)
        assert decided in better.criteria if decided else better.index < worse.index
