"""Sums that are kept from one layout to the next are what counting everybody again would give."""

from collections.abc import Callable, Sequence
from operator import attrgetter

from hypothesis import given

from criproxy.model.cpuset import CpuSet
from criproxy.model.grant import Applied, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node, without
from criproxy.placement.alloc.memory.promised import Crowds
from criproxy.placement.alloc.memory.zones import Memory
from criproxy.placement.alloc.sharing import divide
from criproxy.placement.alloc.sums import Change, Sums
from criproxy.placement.events import Event
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import live, lives_with_found, machines

GRANT, OTHER = Grant(frozenset({0}), frozenset({0})), Grant(frozenset({1}), frozenset({0}))


Told = list[Change[CpuSet]]


def sums(part_of: Callable[[Node, str, Grant], CpuSet | None]) -> Sums[CpuSet, Told]:
    """Sums that are the last changes, by key."""
    return Sums(part_of, attrgetter("cpus"), [], lambda _, changes: sorted(changes))


def test_only_changes_are_counted() -> None:
    """Who comes, goes, has another part, or is left out for once; who stays as they are is not asked."""
    asked: list[str] = []

    def part_of(node: Node, key: str, grant: Grant) -> CpuSet:
        asked.append(key)
        return grant.cpus

    counted, node = sums(part_of), Node(machine(1, 2))
    first = {"a": GRANT, "b": GRANT}
    assert counted.of(node, first) == [("a", None, GRANT.cpus), ("b", None, GRANT.cpus)]
    asked.clear()
    second = {**first, "b": OTHER}
    assert counted.of(node, second) == [("b", GRANT.cpus, OTHER.cpus)]
    assert set(asked) == {"b"}
    assert counted.of(node, second, "a") == [("a", GRANT.cpus, None)]
    assert counted.of(node, second) == [("a", None, GRANT.cpus)]
    assert counted.of(node, without(second, ("a",))) == [("a", GRANT.cpus, None)]


def test_what_the_runtime_says_counts() -> None:
    """A part may depend on what is applied."""
    counted = sums(lambda node, key, grant: node.applied[key].mems if key in node.applied else None)
    node = Node(machine(2, 2), grants={"a": GRANT})

    assert counted.of(node, node.grants) == []
    after = node.replace(applied={"a": Applied(frozenset({0}), frozenset({1}))})
    assert counted.of(after, after.grants) == [("a", None, frozenset({1}))]


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
