"""All CPUs that a policy uses may have an owner: it is another policy now, or they became fewer."""

from collections.abc import Mapping

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, ContainerResized, Event
from criproxy.placement.invariants import violations
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.template import TemplateOptions, TemplatePolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from tests.explained import explanation_is_true
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=2, threads=1)
FILE = {"availableResources": {"cpu": "cpuset:0-1"}}
EVERYWHERE = {**FILE, "pinCPU": False}
POLICIES: Mapping[str, Policy] = {
    "static": policy_of("static", FILE),
    "template": TemplatePolicy(TemplateOptions.model_validate(FILE)),
    "topology-aware": policy_of("topology-aware", FILE),
    "topology-aware, not pinned": policy_of("topology-aware", EVERYWHERE),
    "pools": policy_of("pools", FILE),
    "pools, not pinned": policy_of("pools", EVERYWHERE),
    "balloons": policy_of("balloons", FILE),
}
PRESERVE = {"cpu.preserve.criproxy.io/pod": "true"}


def sharing(key: str, namespace: str = "team") -> Container:
    """A container that asks for half a CPU."""
    return Container(key=key, pod=f"s-{key}", name=key, namespace=namespace, qos=QosClass.BURSTABLE, cpu_milli=500)


def left_by_another_policy() -> Node:
    """Both CPUs that are available have an owner, and two containers share the others."""
    owner = Container(key="owner", pod="s", name="owner", qos=QosClass.GUARANTEED, cpu_milli=2000)
    available, others = parse_cpuset("0-1"), parse_cpuset("2-3")
    return Node(
        MACHINE,
        pods={"s-kept": Pod(key="s-kept", annotations=PRESERVE)},
        containers={"owner": owner, "kept": sharing("kept"), "other": sharing("other")},
        grants={
            "owner": Grant(available, MACHINE.mems, available),
            "kept": Grant(others, MACHINE.mems),
            "other": Grant(others, MACHINE.mems),
        },
    )


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ContainerCreating(sharing("new")), id="newcomer"),
        pytest.param(ContainerCreating(sharing("new", "kube-system")), id="newcomer-for-reserved-cpus"),
        pytest.param(ContainerResized("other", Sizes(cpu_milli=700)), id="resize"),
    ],
)
def test_who_is_to_share_is_refused(name: str, event: Event) -> None:
    """It would have no CPU, or disturb the owner; on others nobody is put."""
    node = left_by_another_policy()
    with pytest.raises(NotEnough, match=r"container (team|kube-system)/(new|other) "):
        step(node, event, POLICIES[name])

    assert list(explanation_is_true(node, event, POLICIES[name])) == []


@pytest.mark.parametrize("name", POLICIES)
def test_who_runs_beyond_stays_there(name: str) -> None:
    """When somebody else goes, there is still nothing for it; when the owner goes, there is."""
    node = step(left_by_another_policy(), ContainerGone("other"), POLICIES[name]).node
    assert node.grants["kept"].cpus == parse_cpuset("2-3")
    assert violations(node) == []

    node = step(node, ContainerGone("owner"), POLICIES[name]).node
    node = step(node, ContainerCreating(sharing("new")), POLICIES[name]).node
    assert node.grants["new"].cpus <= parse_cpuset("0-1")
    assert violations(node) == []


def test_who_is_to_be_left_alone_runs_on_what_the_policy_does_not_use() -> None:
    """cpu.preserve puts nobody on the CPUs of an owner, and its container on all others of the machine."""
    event = ContainerResized("kept", Sizes(cpu_milli=700))
    allowed = TopologyAwareOptions.model_validate({**FILE, "annotations": {"allow": {"*": ["*"]}}})
    node = step(left_by_another_policy(), event, TopologyAwarePolicy(allowed)).node
    assert node.grants["kept"].cpus == parse_cpuset("2-3")
