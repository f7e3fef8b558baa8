"""The policy none leaves everybody alone."""

from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.simulate.hosts import machine

GUARANTEED = Container(key="c", pod="s", name="c", qos=QosClass.GUARANTEED, cpu_milli=2000)


def test_grants_nothing() -> None:
    """Nobody gets a grant, so nothing is rewritten and nobody is updated."""
    decision = step(Node(machine()), ContainerCreating(GUARANTEED), NonePolicy(Options()))

    assert decision.grant is None
    assert decision.updates == ()
    assert decision.sentences == ("c is left alone: the policy is none",)


def test_earlier_grants_end_with_their_container() -> None:
    """A place from an earlier policy stays until its container goes."""
    grants = {"old": Grant(parse_cpuset("0"), frozenset({0}))}
    node = Node(machine(), containers={"old": Container(key="old", pod="s", name="old")}, grants=grants)

    after = step(node, ContainerCreating(GUARANTEED), NonePolicy(Options())).node
    assert after.grants == grants
    assert step(after, ContainerGone("old"), NonePolicy(Options())).node.grants == {}
