"""Whether a container would fit: what a create would get, on a node that stays as it is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import BadAnnotation, NotEnough
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.answers.rehearsal import fit
from criproxy.placement.classes.section import with_classes
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, PodCreated
from criproxy.placement.policies import BUILTIN
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

POLICY = policy_of("static", {"reservedCpus": "0"})
EMPTY = Node(machine(nodes=1, cores=8, threads=1))


def made_up(cpus: int, key: str = "new") -> tuple[Pod, Container]:
    """A Guaranteed pod of one container."""
    pod = Pod(key=f"pod-{key}", uid=f"uid-{key}", name=key, namespace="default", qos=QosClass.GUARANTEED)
    made = Container(key=key, pod=pod.key, name="main", pod_name=key, namespace="default", qos=pod.qos)
    return pod, replace(made, cpu_milli=cpus * 1000, cpu_limit_milli=cpus * 1000)


def with_owners(*sizes: int) -> Node:
    """A node with containers that own so many CPUs each."""
    node = EMPTY
    for number, cpus in enumerate(sizes):
        pod, made = made_up(cpus, f"owner-{number}")
        node = step(step(node, PodCreated(pod), POLICY).node, ContainerCreating(made), POLICY).node
    return node


@given(st.lists(st.integers(1, 2), max_size=3), st.integers(1, 9))
def test_it_says_what_a_create_would_get(sizes: list[int], cpus: int) -> None:
    """The same place or the same refusal."""
    node = with_owners(*sizes)
    pod, made = made_up(cpus)
    found = fit(node, POLICY, pod, made)

    before = step(node, PodCreated(pod), POLICY).node
    if isinstance(found.result, Decision):
        assert found.result.grant == step(before, ContainerCreating(made), POLICY).grant
        return
    with pytest.raises(NotEnough) as caught:
        step(before, ContainerCreating(made), POLICY)
    assert str(found.result) == str(caught.value)


def test_who_is_in_the_way() -> None:
    """The smallest list of containers without which it fits."""
    found = fit(with_owners(4, 1), POLICY, *made_up(5))

    assert isinstance(found.result, NotEnough)
    assert found.choice
    assert found.choice.leavers
    assert found.choice.leavers.containers == ("default/owner-0/main",)


def test_a_class_that_does_not_exist() -> None:
    """Nobody's leaving makes it exist, so none is named, and no pools were compared."""
    options = {"annotations": {"allow": {"*": ["class"]}}, "classes": {"a": {"irq": "away"}}}
    entry = BUILTIN["topology-aware"]
    policy = entry.build(with_classes(entry.options).model_validate(options))
    pod, made = made_up(1)
    pod = replace(pod, annotations={"class.criproxy.io": "b"})
    found = fit(with_owners(1), policy, pod, made)

    assert isinstance(found.result, BadAnnotation)
    assert found.choice is None
