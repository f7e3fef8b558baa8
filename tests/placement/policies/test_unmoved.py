"""A refusal names containers that withhold CPUs from exclusive use because criproxy does not move them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=4, threads=1)


def unmoved(name: str, namespace: str = "lab") -> Container:
    """A running container that an update could take a card away from."""
    known = Container(key=name, pod=f"p-{name}", name="main", pod_name=name, namespace=namespace)
    return replace(known, state=ContainerState.RUNNING, stays=True)


def refusal(policy: str, places: Mapping[Container, frozenset[int]]) -> str:
    """The refusal of a container that asks for all CPUs but one."""
    newcomer = Container(key="c", pod="p", name="c", qos=QosClass.GUARANTEED, cpu_milli=8000, cpu_limit_milli=8000)
    there = {each.key: each for each in places}
    applied = {each.key: Applied(frozenset(cpus), MACHINE.mems) for each, cpus in places.items()}
    node = Node(MACHINE, containers={**there, "c": newcomer}, applied=applied)
    with pytest.raises(NotEnough) as caught:
        policy_of(policy, {"reservedCpus": "0"}).place(node, newcomer)
    return str(caught.value)


@pytest.mark.parametrize("policy", ["static", "topology-aware"])
def test_a_refusal_names_two_containers_that_are_not_moved(policy: str) -> None:
    """Those on the most CPUs first, then by name; the number of the others follows."""
    few, most, also = unmoved("a"), unmoved("mig"), unmoved("b")

    one = refusal(policy, {most: MACHINE.cpus})
    three = refusal(policy, {few: frozenset({2}), most: MACHINE.cpus, also: frozenset({1})})

    assert "; containers that criproxy does not move run on CPUs 0-7 (lab/mig/main)" in one
    assert three.endswith(
        "containers that criproxy does not move run on CPUs 0-7 (lab/mig/main, lab/a/main and 1 more)"
    )
