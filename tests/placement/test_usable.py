"""When the machine or the policy changes, containers get CPUs that the policy uses."""

from dataclasses import replace

from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import PolicyChanged, TopologyChanged
from criproxy.placement.invariants import violations
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine

MACHINE = machine(nodes=1, cores=4, threads=1)
FILE = {"availableResources": {"cpu": "cpuset:0-1"}}


def owner_and_sharer(own: str, shared: str) -> Node:
    """The owner came first."""
    owner = Container(key="owner", pod="s", name="owner", qos=QosClass.GUARANTEED, cpu_milli=1000)
    sharer = Container(key="sharer", pod="s", name="sharer")
    had = parse_cpuset(own)
    grants = {"owner": Grant(had, MACHINE.mems, had), "sharer": Grant(parse_cpuset(shared), MACHINE.mems)}
    return Node(MACHINE, containers={"owner": owner, "sharer": sharer}, grants=grants)


def test_the_last_cpu_that_the_policy_uses_is_shared() -> None:
    """Its owner gives it up when the other one goes offline, though CPUs are left that others use."""
    fewer = replace(MACHINE, cpus=parse_cpuset("0,2-3"))

    policy = StaticPolicy(StaticOptions.model_validate(FILE))
    after = step(owner_and_sharer("0", "1"), TopologyChanged(fewer), policy).node

    assert {key: format_cpuset(grant.cpus) for key, grant in after.grants.items()} == {"owner": "0", "sharer": "0"}
    assert violations(after) == []


def test_who_does_not_fit_shares_what_the_new_policy_uses() -> None:
    """It loses both CPUs and gets no others, which are not for containers."""
    owner = Container(key="owner", pod="s", name="owner", qos=QosClass.GUARANTEED, cpu_milli=2000)
    had = parse_cpuset("0-1")
    node = Node(MACHINE, containers={"owner": owner}, grants={"owner": Grant(had, MACHINE.mems, had)})

    after = step(node, PolicyChanged(apply_all=True), TopologyAwarePolicy(TopologyAwareOptions.model_validate(FILE)))

    assert after.node.grants["owner"] == Grant(had, MACHINE.mems)
