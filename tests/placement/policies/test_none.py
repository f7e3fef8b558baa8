"""The policies that choose no CPUs: none leaves everybody alone, and the fallback keeps every rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, Event
from criproxy.placement.invariants import one_owner, sharers_keep_off, violations
from criproxy.placement.policies.none import Fallback
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import lives, machines

GUARANTEED = Container(key="c", pod="s", name="c", qos=QosClass.GUARANTEED, cpu_milli=2000)


STATIC = policy_of("static")


@given(machines(), lives, st.lists(st.booleans(), min_size=30, max_size=30))
def test_a_policy_that_fails_now_and_then_breaks_no_rule(
    topology: Topology, life: list[Event], fails: list[bool]
) -> None:
    """Whoever decides about each event, no owned CPU is used by two, and the fallback makes no owner."""
    node, used = Node(topology), set[str]()
    for event, fallback in zip(life, fails, strict=False):
        if isinstance(event, ContainerCreating):
            if event.container.key in used:
                continue
            used.add(event.container.key)
        before = node
        try:
            node = step(node, event, Fallback() if fallback else STATIC).node
        except NotEnough:
            continue
        assert violations(node) == []
        if fallback:
            assert node.exclusive_cpus <= before.exclusive_cpus


def test_newcomers_share_and_nobody_moves() -> None:
    """The grants of all others stay."""
    owner = Grant(frozenset({1}), frozenset({0}), frozenset({1}))
    node = Node(machine(nodes=1, cores=4), grants={"o": owner})

    change = Fallback().place(node, Container(key="n", pod="s", name="main", cpu_milli=1000))

    assert change.grants.keys() == {"n"}
    assert change.grants["n"].cpus == node.topology.cpus - {1}
    assert not change.grants["n"].exclusive
    after = node.replace(grants={**node.grants, **change.grants})
    assert [*one_owner(after), *sharers_keep_off(after)] == []
    assert Fallback().release(node.replace(grants=change.grants), owner).grants == {}


def test_without_a_shared_cpu_a_newcomer_is_refused() -> None:
    """It would otherwise run on somebody's own."""
    topology = machine(nodes=1, cores=2, threads=1)
    node = Node(topology, grants={"o": Grant(topology.cpus, frozenset({0}), topology.cpus)})

    with pytest.raises(NotEnough, match="every CPU is exclusive to another container"):
        Fallback().place(node, Container(key="n", pod="s", name="main"))
