"""Sums that are kept from one layout to the next are what counting everybody again would give."""

from collections.abc import Sequence

from hypothesis import given

from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.placement.alloc.memory.promised import Crowds
from criproxy.placement.alloc.memory.zones import Memory
from criproxy.placement.alloc.sharing import divide
from criproxy.placement.events import Event
from tests.placement.built import policy_of
from tests.placement.lives import live, lives_with_found, machines


@given(machines(), lives_with_found)
def test_sums_are_those_of_a_new_count(topology: Topology, life: Sequence[Event]) -> None:
    """Loads of pools and promises of memory, whatever layouts were looked at before and in whatever order."""
    policy = policy_of("topology-aware")
    nodes = [Node(topology), *(node for *_, node in live(topology, policy, life))]
    seen, crowds = divide(topology, frozenset(), apart=True), Crowds(Memory(topology))
    for node in [node for node in nodes + nodes[::-1] if node.topology is topology]:
        key = next(iter(node.grants), "")
        crowd, anew = crowds.of(node, node.grants, key), Crowds(Memory(topology)).of(node, node.grants, key)
        assert crowd.promises.used == anew.promises.used
        assert {zone: set(keys) for zone, keys in crowd.keys.items()} == {
            zone: set(keys) for zone, keys in anew.keys.items()
        }
        assert seen.capacity(node).loads == divide(topology, frozenset(), apart=True).capacity(node).loads
