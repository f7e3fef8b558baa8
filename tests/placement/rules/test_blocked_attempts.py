"""A container that others keep from its start gets other CPUs at its next attempt, as far as there are some."""

from dataclasses import replace

import pytest

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerCreated, ContainerCreating, ContainerExited, UpdateApplied
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.placement.rules.test_kept import build, container, kept, key_of, live, owns, pod, runs

TWO_NODES = Node(machine(nodes=2, cores=4, threads=1))
SHARER = replace(container("main", 0, sandbox="t-0"), qos=QosClass.BURSTABLE, cpu_milli=10)


@pytest.fixture
def policy() -> Policy:
    """The policy whose shared containers are not on all shared CPUs."""
    return build("topology-aware")


def attempt(number: int, cpus: int = 2) -> Container:
    """An attempt of the container that is kept from its start."""
    return container("main", cpus, number)


def created(each: Container) -> tuple[ContainerCreating, ContainerCreated]:
    """It is there, and never starts."""
    return ContainerCreating(each), ContainerCreated(each.key, key_of(each))


def stuck(node: Node, each: Container, cpus: CpuSet) -> Node:
    """The node in which no update of a container came through."""
    return replace(node, applied={**node.applied, key_of(each): replace(node.applied[key_of(each)], cpus=cpus)})


def waiting(policy: Policy) -> tuple[Node, CpuSet]:
    """A node on which a sharer does not leave the CPUs of the pod's first attempt; and where that sharer is."""
    node = live(policy, pod("t"), runs(SHARER), node=TWO_NODES)
    there = node.grants[key_of(SHARER)].cpus
    node = live(policy, pod("p", 2), created(attempt(0)), node=node)
    mine = node.grants[key_of(attempt(0))].exclusive
    assert len(mine) == 2
    assert mine <= there
    return stuck(node, SHARER, there), there


def test_the_next_attempt_goes_where_the_stuck_container_is_not(policy: Policy) -> None:
    """It starts at once there; `explain` says why, and shows the CPUs among which the policy chose."""
    node, there = waiting(policy)
    again = attempt(1)

    decision = step(node, ContainerCreating(again), policy)
    mine = decision.node.grants[again.key].exclusive
    assert len(mine) == 2
    assert mine.isdisjoint(there)
    assert decision.node.grants[key_of(SHARER)].cpus == there
    assert kept(decision.node) == ""
    assert f"containers have not left CPUs {owns(node, attempt(0))}" in decision.reasons[-1].text

    asked = placing(node, ContainerCreating(again), policy)
    assert asked is not None
    assert there <= asked[0].watched_cpus
    assert "blocked/elsewhere" not in decision.node.containers


def test_where_there_are_too_few_others_it_gets_the_same(policy: Policy) -> None:
    """Rather than to be refused: the update may come through."""
    node, _ = waiting(policy)
    other = container("main", 3, sandbox="w-0")
    full = live(policy, pod("w", 3), runs(other), node=node)
    again = live(policy, created(attempt(1)), node=full)
    assert owns(again, attempt(1)) == owns(node, attempt(0))


def test_an_attempt_that_nobody_keeps_from_its_start_keeps_its_cpus(policy: Policy) -> None:
    """The sharer has left them by now."""
    node, _ = waiting(policy)
    grant = node.grants[key_of(SHARER)]
    node = live(policy, UpdateApplied(key_of(SHARER), Applied(grant.cpus, grant.mems)), node=node)
    again = live(policy, created(attempt(1)), node=node)
    assert owns(again, attempt(1)) == owns(node, attempt(0))
    assert kept(again) == format_cpuset(again.grants[key_of(attempt(1))].exclusive)


def test_nothing_is_kept_of_cpus_that_it_could_not_use(policy: Policy) -> None:
    """Also where it is removed before its next attempt comes."""
    node, _ = waiting(policy)
    gone = live(policy, ContainerExited(key_of(attempt(0))), node=node)
    assert kept(gone) == ""
    assert not gone.exclusive_cpus


def test_one_that_has_run_keeps_its_cpus(policy: Policy) -> None:
    """It had them for itself once; what is still stuck there came later."""
    ran = live(policy, pod("t"), runs(SHARER), pod("p", 2), runs(attempt(0)), node=TWO_NODES)
    had = owns(ran, attempt(0))
    node = stuck(ran, SHARER, TWO_NODES.topology.cpus)
    ended = live(policy, ContainerExited(key_of(attempt(0))), node=node)
    assert kept(ended) == had
    assert owns(live(policy, created(attempt(1)), node=ended), attempt(1)) == had
