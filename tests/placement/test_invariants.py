"""What must always be true holds for every policy and every life, and each violation is noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet, parse_cpuset
from criproxy.model.grant import NO_CPUS, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerCreating, Event
from criproxy.placement.invariants import violations
from criproxy.placement.policies import BUILTIN
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of
from tests.placement.lives import live, lives, lives_with_found, machines
from tests.placement.test_checked_policy import Scripted

reserved_sets = st.sampled_from(["", "0", "0,3", "77"]).map(parse_cpuset)
policies = st.sampled_from(sorted(BUILTIN))
ALL = frozenset(range(8))
MEMS = frozenset({0})


def build(name: str, reserved: CpuSet) -> Policy:
    """The policy *name* with reserved CPUs."""
    return policy_of(name, {"reservedCpus": reserved})


@given(policies, reserved_sets, machines(), lives_with_found)
def test_hold_in_every_life(name: str, reserved: CpuSet, topology: Topology, life: list[Event]) -> None:
    """Whatever comes and goes, no invariant is violated."""
    for _, event, node in live(topology, build(name, reserved), life):
        assert violations(node, reserved) == [], event


@given(policies, machines(), lives)
def test_a_decision_knows_what_was_asked(name: str, topology: Topology, life: list[Event]) -> None:
    """What its explanation compares is what a second look at the create finds, without the second look."""
    policy = build(name, NO_CPUS)
    for before, event, after in live(topology, policy, life):
        if isinstance(event, ContainerCreating) and after is not before:
            assert step(before, event, policy).asked == placing(before, event, policy)


@given(reserved_sets, machines(), lives)
def test_static_leaves_nothing_idle(reserved: CpuSet, topology: Topology, life: list[Event]) -> None:
    """Under the static policy everybody who shares has every CPU that nobody owns."""
    for *_, node in live(topology, build("static", reserved), life):
        assert {grant.cpus for grant in node.grants.values() if not grant.exclusive} <= {node.shared_cpus}


@pytest.mark.parametrize(
    ("grant", "sentence"),
    [
        (Grant(parse_cpuset("2-3"), MEMS, parse_cpuset("2-3")), "CPU 2 is exclusive to both"),
        (Grant(ALL, MEMS), "new may run on CPU 2, exclusive to another container"),
        (Grant(frozenset(), MEMS), "new has no CPU"),
        (Grant(ALL, MEMS, ALL), "no CPU is left for containers that share"),
        (Grant(parse_cpuset("8"), MEMS), "new has CPU 8, which pods may not use"),
        (Grant(parse_cpuset("1"), frozenset({5})), "new has NUMA node 5, which pods may not use"),
        (Grant(parse_cpuset("1"), MEMS, parse_cpuset("3")), "new has exclusive CPU 3, on which it may not run"),
        (Grant(parse_cpuset("0"), MEMS, parse_cpuset("0")), "new has exclusive use of reserved CPU 0"),
    ],
)
def test_bad_layouts_are_noticed(grant: Grant, sentence: str) -> None:
    """A policy that breaks an invariant is caught with a sentence that names container and CPUs."""
    owner = Grant(parse_cpuset("2"), MEMS, parse_cpuset("2"))
    node = Node(machine(cores=8, threads=1), containers={"own": Container(key="own", pod="s", name="own")})
    node = node.replace(grants={"own": owner})
    assert violations(node, frozenset({0})) == []

    after = step(node, ContainerCreating(Container(key="new", pod="s", name="new")), Scripted({"new": grant})).node

    assert any(text.startswith(sentence) for text in violations(after, frozenset({0})))


@pytest.mark.parametrize(
    ("containers_left", "sentence"),
    [
        pytest.param({}, "unknown container c has a place", id="gone"),
        pytest.param(
            {"c": Container(key="c", pod="s", name="main", state=ContainerState.EXITED)},
            "main has a place, but has exited",
            id="exited",
        ),
    ],
)
def test_leaks_are_noticed(containers_left: dict[str, Container], sentence: str) -> None:
    """A place that outlives its container is found."""
    node = Node(machine(), containers=containers_left, grants={"c": Grant(parse_cpuset("0"), MEMS)})

    assert violations(node) == [sentence]
