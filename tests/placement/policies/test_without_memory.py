"""Policies keep nothing from one question to the next: what they were asked before changes no answer."""

import pytest

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, PodCreated
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_a_step_leaves_a_policy_as_it_was(name: str) -> None:
    """It has its options, and they are the same."""
    policy, node = policy_of(name), Node(machine(cores=8, threads=2))
    before = dict(vars(policy))
    hides = {"hide-hyperthreads.criproxy.io/pod": "true"}

    for key in ("a", "b"):
        pod = Pod(key=f"s-{key}", name=key, namespace="shop", qos=QosClass.GUARANTEED, annotations=hides)
        asking = Container(key=key, pod=pod.key, name=key, qos=QosClass.GUARANTEED, cpu_milli=2000)
        node = step(step(node, PodCreated(pod), policy).node, ContainerCreating(asking), policy).node
    step(node, ContainerGone("a"), policy)

    assert vars(policy) == before
    assert vars(policy).keys() <= {"options", "_pessimistic"}
