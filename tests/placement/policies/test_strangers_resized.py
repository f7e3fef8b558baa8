"""Containers that somebody else started are placed anew like all others: their own CPUs stand in nobody's way."""

import pytest

from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerResized, Found, PodCreated, PolicyChanged, Present
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=4, threads=1)
STRANGER = Container(
    key="c" * 64, pod="s1", name="main", pod_name="stranger", namespace="default", state=ContainerState.RUNNING,
    qos=QosClass.GUARANTEED, cpu_milli=1000, cpu_limit_milli=1000, memory_limit_bytes=1 << 30,
)  # fmt: skip
RESERVING = {"reservedCpus": "0"}


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy_of("static", RESERVING), id="static"),
        pytest.param(policy_of("topology-aware", RESERVING), id="topology-aware"),
    ],
)
@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ContainerResized(STRANGER.key, Sizes(cpu_milli=2000, cpu_limit_milli=2000)), id="resized"),
        pytest.param(PolicyChanged(apply_all=True, configuration="new"), id="apply-all"),
    ],
)
def test_its_own_cpus_are_not_in_its_way(policy: Policy, event: ContainerResized | PolicyChanged) -> None:
    """One that runs everywhere owns CPUs once it is placed anew: nobody else runs on them."""
    node = step(Node(MACHINE), PodCreated(Pod(key="s1", name="stranger", namespace="default")), policy).node
    everywhere = Applied(MACHINE.cpus, MACHINE.mems)
    node = step(node, Found(containers=(Present(STRANGER, everywhere),)), policy).node
    assert not node.grants[STRANGER.key].exclusive

    after = step(node, event, policy).node

    assert len(after.grants[STRANGER.key].exclusive) == (2 if isinstance(event, ContainerResized) else 1)
