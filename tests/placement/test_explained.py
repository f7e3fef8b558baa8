"""A policy that shows other candidates than it chooses from is caught."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.alloc.rank import Candidates, Measure, Row, Unit
from criproxy.placement.events import ContainerCreating, ContainerStarted
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from tests.explained import explanation_is_true

NODE = Node(machine(nodes=2, cores=4, threads=1))


class Liar(TopologyAwarePolicy):
    """Decides well and tells something else."""

    def __init__(self, twist: Callable[[Candidates], Candidates]) -> None:
        super().__init__(TopologyAwareOptions())
        self._twist = twist

    def candidates(self, node: Node, container: Container) -> Candidates | None:
        """Those of the policy, twisted."""
        told = super().candidates(node, container)
        return told and self._twist(told)


def creating(milli: int) -> ContainerCreating:
    """An owner comes."""
    return ContainerCreating(Container(key="c", pod="p", name="c", qos=QosClass.GUARANTEED, cpu_milli=milli))


def backwards(told: Candidates) -> Candidates:
    """The worst first, and as chosen."""
    return replace(told, rows=told.rows[::-1], chosen=told.rows[-1].name)


def roomy(told: Candidates) -> Candidates:
    """Nobody lacks anything."""
    return replace(told, rows=tuple(replace(row, lacks="") for row in told.rows))


@pytest.mark.parametrize(
    ("twist", "milli", "sentence"),
    [
        (backwards, 2000, "comes before NUMA node 1, which is better"),
        (backwards, 2000, "and the container is in NUMA node 0"),
        (lambda told: replace(told, chosen="elsewhere"), 2000, "is none of the candidates"),
        (lambda told: replace(told, chosen="NUMA node 1"), 2000, "is said to be the best"),
        (lambda told: replace(told, rows=(Row("x", lacks="1 CPU"), *told.rows)), 2000, "one without room comes before"),
        (lambda told: replace(told, rows=told.rows * 2), 2000, "candidates have the same name"),
        (lambda told: replace(told, measures=(Measure("x", Unit.MORE),)), 2000, "values for 1 criteria"),
        (roomy, 9000, "is said to have room, and the container was refused"),
        (lambda told: replace(told, chosen="the machine"), 9000, "and the container was refused"),
    ],
)
def test_a_lie_is_caught(twist: Callable[[Candidates], Candidates], milli: int, sentence: str) -> None:
    """With a sentence that says which."""
    found = list(explanation_is_true(NODE, creating(milli), Liar(twist)))

    assert any(sentence in each for each in found)
    assert list(explanation_is_true(NODE, creating(milli), Liar(lambda told: told))) == []


def test_who_says_nothing_says_nothing_wrong() -> None:
    """A policy without candidates, and events at which nobody is placed."""
    assert list(explanation_is_true(NODE, creating(1000), NonePolicy(Options()))) == []
    assert list(explanation_is_true(NODE, ContainerStarted("c"), Liar(backwards))) == []
